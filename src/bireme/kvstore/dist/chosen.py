"""Whether all workers have chosen the same optimizer for the servers, and who has chosen what.

Called by :mod:`bireme.kvstore.dist.server_optimizer` when an optimizer of another class than before
is set.
"""

import hashlib
from collections.abc import Mapping

from bireme.errors import ConfigError, WaitTimeout
from bireme.kvstore.dist.agreement import Agreement
from bireme.update import OptimizerSpec
from bireme.update.classes import arguments_of

__all__ = ("check_all_set",)

_DIGEST = 16
_MOST_RANKS = 8


def check_all_set(agreement: Agreement, spec: OptimizerSpec) -> None:
    """Return when every worker has come with the same optimizer and the same numbers.

    Raises:
        ConfigError: They differ; on every worker, and names who sets what. Or some worker does
            not set an optimizer now.
    """
    try:
        told = agreement.gather("optimizer", _described(spec))
    except WaitTimeout as error:
        raise ConfigError(
            f"this worker sets {spec.title}, which is another optimizer than before; every worker "
            f"must do so at the same place of its script: {error}"
        ) from error
    ranks: dict[str, list[int]] = {}
    titles: dict[str, str] = {}
    for rank, text in told.items():
        digest = text[:_DIGEST]
        ranks.setdefault(digest, []).append(rank)
        titles.setdefault(digest, text[_DIGEST:])
    if len(ranks) > 1:
        who = "; ".join(f"{_named(each)}: {titles[digest]}" for digest, each in ranks.items())
        raise ConfigError(
            f"the workers set different optimizers: {who}; all must set the same class and numbers"
        )


def _described(spec: OptimizerSpec) -> str:
    """Return a digest of everything that counts, and the optimizer in words."""
    defaults = arguments_of(spec.optimizer_class).defaults
    numbers = _comparable(spec.arguments(None))
    special = (*spec.groups, *spec.lr_mult, *spec.wd_mult)
    own = {repr(key): sorted(_comparable(spec.arguments(key)).items()) for key in special}
    everything = (spec.name, sorted(numbers.items()), sorted(own.items()), spec.rescale_grad)
    digest = hashlib.sha256(repr(everything).encode()).hexdigest()[:_DIGEST]
    given = [
        f"{name}={value!r}"
        for name, value in spec.arguments(None).items()
        if name not in defaults or value != defaults[name] or name == "lr"
    ]
    if spec.rescale_grad != 1.0:
        given.append(f"rescale_grad={spec.rescale_grad!r}")
    if own:
        given.append(f"own numbers for {len(own)} keys")
    return f"{digest}{spec.title}({', '.join(given)})"


def _comparable(numbers: Mapping[str, object]) -> dict[str, str]:
    """Return the numbers such that 0 and 0.0, lists and tuples are the same."""
    return {name: repr(_plain(value)) for name, value in numbers.items()}


def _plain(value: object) -> object:
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return float(value) if isinstance(value, int) else value


def _named(ranks: list[int]) -> str:
    shown = ", ".join(f"W[{rank}]" for rank in ranks[:_MOST_RANKS])
    return f"{shown} and {len(ranks) - _MOST_RANKS} more" if len(ranks) > _MOST_RANKS else shown
