"""From a loader over the whole data set to one worker's loader, with shares by work load.

:meth:`bireme.Module.fit` calls it for its ``work_load_list``.
"""

from typing import Any

from torch.utils import data as torch_data

from bireme.balance.choosing import WorkLoads
from bireme.data.balanced import BalancedBatchSampler
from bireme.errors import ConfigError
from bireme.kvstore.base import KVStoreBase

__all__ = ("Portions", "balanced_loader", "sampler_of")

_KEPT = (
    "num_workers",
    "collate_fn",
    "pin_memory",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "generator",
    "prefetch_factor",
    "persistent_workers",
)


class Portions:
    """This worker's portions of the batches that a module trains on.

    Example:
        >>> loader = torch_data.DataLoader(range(8), batch_size=4)
        >>> mine, sampler = Portions().of(loader, "auto", None)
        >>> [batch.tolist() for batch in mine], sampler.num_parts
        ([[0, 1, 2, 3], [4, 5, 6, 7]], 1)
    """

    def __init__(self) -> None:
        self._shared: tuple[object, Any] | None = None

    def of(
        self, loader: Any, work_load_list: WorkLoads, store: KVStoreBase | None
    ) -> tuple[Any, BalancedBatchSampler | None]:
        """Return what this worker loads, and the balanced sampler that deals it, if one does.

        Asked for the same again, it returns the same loader, so that portions and the order of
        samples go on from where they were.

        Args:
            loader: Data as given to ``fit``.
            work_load_list: As given to ``fit``; ``None`` takes ``loader`` as it is.
            store: Whose workers share each batch.

        Raises:
            ConfigError: As for :func:`balanced_loader`.
        """
        if work_load_list is not None:
            wish = (loader, work_load_list)
            num_workers, rank = (1, 0) if store is None else (store.num_workers, store.rank)
            if self._shared is None or self._shared[0] != wish:
                made = balanced_loader(loader, work_load_list, num_workers, rank)
                self._shared = (wish, made)
            loader = self._shared[1]
        return loader, sampler_of(loader)


def sampler_of(loader: Any) -> BalancedBatchSampler | None:
    """Return the balanced sampler that ``loader`` takes its batches from, if it does."""
    found = getattr(loader, "batch_sampler", None)
    return found if isinstance(found, BalancedBatchSampler) else None


def balanced_loader(
    loader: Any, work_load_list: WorkLoads, num_workers: int, rank: int
) -> torch_data.DataLoader[Any]:
    """Return a loader that hands this worker its portion of each of ``loader``'s batches.

    Args:
        loader: A ``DataLoader`` over the whole data set, in order or with ``shuffle=True``, whose
            ``batch_size`` is that of all workers together.
        work_load_list: As for :class:`bireme.data.BalancedBatchSampler`.
        num_workers: Workers that share each batch.
        rank: This one.

    Raises:
        ConfigError: ``loader`` is no such loader.
    """
    if not isinstance(loader, torch_data.DataLoader) or sampler_of(loader) is not None:
        raise ConfigError(
            "work_load_list shares out the batches of a DataLoader over the whole data set, got "
            f"{loader!r:.80}; or leave it out, and give the DataLoader a "
            "bireme.data.BalancedBatchSampler"
        )
    count = len(loader.dataset)  # type: ignore[arg-type]
    shuffled = isinstance(loader.sampler, torch_data.RandomSampler)
    plain = isinstance(loader.sampler, torch_data.SequentialSampler) or (
        isinstance(loader.sampler, torch_data.RandomSampler)
        and not loader.sampler.replacement
        and loader.sampler.num_samples == count
    )
    if loader.batch_size is None or not plain:
        raise ConfigError(
            "work_load_list needs a DataLoader with batch_size and without a sampler of its own "
            f"(each worker draws its portion of every batch); this one has "
            f"{type(loader.sampler).__name__}"
        )
    ahead = loader.num_workers * (loader.prefetch_factor or 0)
    sampler = BalancedBatchSampler(
        count,
        loader.batch_size,
        num_workers,
        rank,
        work_load_list=work_load_list,
        shuffle=shuffled,
        drop_last=loader.drop_last,
        lookahead=ahead,
    )
    kept: dict[str, Any] = {name: getattr(loader, name) for name in _KEPT}
    return torch_data.DataLoader(loader.dataset, batch_sampler=sampler, **kept)
