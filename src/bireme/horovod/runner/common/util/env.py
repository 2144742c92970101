"""What scripts ask about the environment before ``hvd.init()``."""

from bireme.horovod import environment
from bireme.settings.ranks import RankSettings

__all__ = ("get_env_rank_and_size",)


def get_env_rank_and_size() -> tuple[int, int]:
    """Return this process's rank and the number of processes, as its launcher said; or (0, 1).

    Raises:
        ConfigError: The environment contradicts itself.
    """
    place = RankSettings.from_env(environment.read())
    return place.rank, place.size
