"""An embedding whose table lives on the servers only: rows come for a batch, gradients go back.

:class:`ShardedEmbedding` is a layer like ``torch.nn.Embedding`` without a parameter. What a
backward pass leaves is collected in :mod:`bireme.nn.gradients` and pushed by
:class:`bireme.Trainer`, or by :meth:`ShardedEmbedding.step`.
"""

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from bireme import kvstore as kvstores
from bireme.errors import ConfigError, UnsupportedError, WaitTimeout
from bireme.kvstore.base import KVStoreBase
from bireme.kvstore.dist.store import DistStore
from bireme.kvstore.tables import Table, TableOptions
from bireme.nn.gradients import Collected
from bireme.nn.prefetch import Prefetched
from bireme.update import OptimizerSpec

__all__ = ("ShardedEmbedding",)

_EXPORT_ROWS = 1 << 16


class ShardedEmbedding(nn.Module):
    """Looks up rows of a table that lives on the servers of a ``dist`` store.

    A row is made of ``seed``, the table's name and its id when it is first looked up, and takes
    memory from its first update on; so a table may have any number of rows, and ids may be
    hashes. Each row is a parameter of its own for the optimizer: a row that a step does not touch
    keeps its value, its momentum and its step count.

    Args:
        num_embeddings: Ids run from 0 to below it; ``None`` takes any int64.
        embedding_dim: Elements of a row.
        padding_idx: An id whose row is zeros and is never updated.
        name: Of the table, the same on every worker. Default: its number among the store's tables.
        kvstore: A distributed store, or the type of one to make: ``"dist_sync"``, ``"dist_async"``.
        optimizer: What the servers do with the gradients of rows. Default: what the optimizer of
            the :class:`bireme.Trainer` does, first group, followed live.
        init: First values: ``"normal"``, ``"uniform"`` (from ``-scale`` to ``scale``), ``"zeros"``.
        scale: Of the first values.
        seed: Of the first values.
        dtype: ``torch.float32`` or ``torch.float64``.
        max_rows: Rows that servers keep at most; each takes an equal part. ``None``: no limit.
        eviction: When they are too many: ``"refuse"`` the push, or let rows go that were updated
            the longest ago (``"lru"``) or most seldom (``"lfu"``). They begin anew if they are
            needed again.

    Raises:
        ConfigError: An argument is out of range, or another worker declares the table in another
            way (raised on all workers).
        UnsupportedError: The store has no servers.

    Guarantees:
        Duplicates in a batch travel once. In synchronous training a step gives a row the same
        value, up to rounding, as the same model with ``torch.nn.Embedding`` in one process on the
        whole batch, wherever the optimizer leaves rows without a gradient alone.

    Example:
        >>> layer = ShardedEmbedding(10**12, 3, optimizer=OptimizerSpec("sgd", {"lr": 1.0}))
        >>> ids = torch.tensor([[7, 10**11], [7, 7]])
        >>> before = layer(ids)
        >>> before.sum().backward(); layer.step()
        >>> (before - layer(ids))[:, :, 0]
        tensor([[3., 1.],
                [3., 3.]], grad_fn=<SelectBackward0>)
        >>> layer.close()
    """

    def __init__(  # noqa: PLR0913 (they are one table's options)
        self,
        num_embeddings: int | None,
        embedding_dim: int,
        padding_idx: int | None = None,
        *,
        name: str | None = None,
        kvstore: KVStoreBase | str = "dist_sync",
        optimizer: OptimizerSpec | None = None,
        init: str = "normal",
        scale: float = 1.0,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
        max_rows: int | None = None,
        eviction: str = "refuse",
    ) -> None:
        super().__init__()
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = _checked_padding(padding_idx, num_embeddings)
        if optimizer is not None and not isinstance(optimizer, OptimizerSpec):
            raise ConfigError(
                f"optimizer must be a bireme.OptimizerSpec or None, got {optimizer!r:.60}"
            )
        store, owned = _store(kvstore)
        try:
            options = TableOptions(
                name if name is not None else f"table{len(store.tables)}",
                embedding_dim,
                num_embeddings,
                dtype,
                init,
                scale,
                seed,
                max_rows,
                eviction,
            )
            self._table = store.table(options)
            if optimizer is not None:
                self._table.set_optimizer(optimizer)
        except BaseException:
            if owned:
                store.close()
            raise
        self._store, self._owned = store, owned
        self.follows_trainer = optimizer is None
        """Whether the optimizer is that of the trainer."""
        self.collected = Collected(self._table)
        self._prefetched = Prefetched(self._table)

    @property
    def table(self) -> Table:
        """The table behind the layer, which its copies share."""
        return self._table

    @property
    def kvstore(self) -> DistStore:
        """The store whose servers hold the table."""
        return self._store

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the rows of ``ids``.

        Args:
            ids: int64 (or int32), of any shape and on any device.

        Returns:
            Of shape ``(*ids.shape, embedding_dim)``, on the device of ``ids``.

        Raises:
            ConfigError: An id is out of range, or ``ids`` holds something else.
            WaitTimeout: A server did not answer in time; names it.
        """
        rows, places, padding = self._rows(ids)
        out = functional.embedding(places, rows, padding_idx=padding)
        return out.view(*ids.shape, self.embedding_dim)

    def prefetch(self, ids: torch.Tensor) -> None:
        """Ask for the rows of a batch to come and return at once.

        A :meth:`forward` of the same ids takes what has come. Call it after the ``forward`` of
        the batch before: the rows are then sent as they are after the step that follows, so that
        training sees the same numbers as without. When another step, or none, comes in between,
        ``forward`` asks again.

        Args:
            ids: As for :meth:`forward`.

        Raises:
            ConfigError: As for :meth:`forward`.
        """
        flat, _ = self._without_padding(_checked_ids(ids))
        self._prefetched.ask(flat, ahead=int(self.collected.has_open_step))

    def step(self, num_samples: float = 1.0) -> None:
        """Push the gradients of all backward passes since the last step; returns at once.

        For scripts without a :class:`bireme.Trainer`, whose ``step`` does it for every table of
        its model. In synchronous training every worker calls it once in each round, whether it
        has gradients or not, and rows get the mean of the workers' gradients.

        Args:
            num_samples: Weight of this worker's gradients in the mean, such as the samples of its
                batch.

        Raises:
            StateError: There is no optimizer.
            ConfigError: ``num_samples`` is negative or not finite.
        """
        if not 0 <= num_samples < float("inf"):
            raise ConfigError(f"num_samples must be a finite number >= 0, got {num_samples!r}")
        self._table.require_optimizer()
        parts, grads = self.collected.take()
        self._table.push_dealt(parts, grads, float(num_samples))

    def set_optimizer(self, optimizer: OptimizerSpec) -> None:
        """Change what the servers do with gradients; every worker calls it.

        Another one of the same class changes the numbers and keeps the state of rows. The layer
        stops to follow a trainer's optimizer.

        Raises:
            UnsupportedError: It does not work row by row.
        """
        self._table.set_optimizer(optimizer)
        self.follows_trainer = False

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients that were not pushed."""
        super().zero_grad(set_to_none)
        self.collected.clear()

    def stats(self) -> dict[str, Any]:
        """Return how many rows the servers hold, their bytes, and evictions; see :class:`Table`."""
        return self._table.stats()

    def save(self, folder: str) -> None:
        """Write the table to ``folder``, a file for each server; every worker calls it.

        The folder must exist, and be the same one for all servers. All or nothing.
        """
        self._table.save(folder)

    def load(self, folder: str, *, optimizer_states: bool = True) -> None:
        """Replace all rows by those that :meth:`save` wrote; every worker calls it.

        Args:
            folder: The same as for :meth:`save`; the number of servers may be another one.
            optimizer_states: Whether the state of rows is taken over.
        """
        self._table.load(folder, optimizer_states=optimizer_states)

    def to_embedding(self, num_embeddings: int | None = None) -> nn.Embedding:
        """Return a plain ``torch.nn.Embedding`` with the rows as they are now.

        Args:
            num_embeddings: Rows 0 to below it. Default: the number that the table was made with.

        Raises:
            ConfigError: The table has no number of rows, and none is given.
        """
        count = self.num_embeddings if num_embeddings is None else num_embeddings
        if count is None:
            raise ConfigError("the table takes any id; say how many rows to export")
        weight = torch.empty(count, self.embedding_dim, dtype=self._table.options.dtype)
        for begin in range(0, count, _EXPORT_ROWS):
            ids = torch.arange(begin, min(count, begin + _EXPORT_ROWS))
            weight[begin : begin + len(ids)] = self._table.pull(ids)
        if self.padding_idx is not None and self.padding_idx < count:
            weight[self.padding_idx] = 0
        return nn.Embedding(count, self.embedding_dim, self.padding_idx, _weight=weight)

    def close(self) -> None:
        """Close the store, if the layer made it; a second call does nothing."""
        if self._owned:
            self._store.close()

    def extra_repr(self) -> str:
        """Return what ``print(module)`` shows."""
        options = self._table.options
        return f"{self.num_embeddings}, {self.embedding_dim}, name={options.name!r}"

    def __deepcopy__(self, memo: dict[int, Any]) -> "ShardedEmbedding":
        """Return a layer over the same table: what a replica of the model needs."""
        twin = type(self).__new__(type(self))
        nn.Module.__init__(twin)
        own = {"collected": Collected(self._table), "_prefetched": Prefetched(self._table)}
        for name, value in self.__dict__.items():
            if name not in twin.__dict__:
                twin.__dict__[name] = own.get(name, value)
        twin._owned = False
        twin.training = self.training
        memo[id(self)] = twin
        return twin

    def __getstate__(self) -> dict[str, Any]:
        raise UnsupportedError(
            "a ShardedEmbedding cannot be pickled, as its links to servers cannot; use save()"
        )

    def _rows(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, int | None]:
        """Return rows, the place of each id among them, and the place of a row of zeros."""
        flat, is_padding = self._without_padding(_checked_ids(ids))
        batch = self._prefetched.take(flat)
        try:
            rows = self._table.wait(batch)
        except WaitTimeout:
            # The limit of what was prefetched began long ago; this one begins now.
            batch = self._table.begin(flat)
            rows = self._table.wait(batch)
        places = torch.from_numpy(batch.deal.inverse)
        padding = None
        if is_padding is not None:
            padding = len(rows)
            rows = torch.cat([rows, rows.new_zeros(1, self.embedding_dim)])
            every = places.new_full(is_padding.shape, padding)
            every[~is_padding] = places
            places = every
        rows = rows.to(ids.device)
        if torch.is_grad_enabled():
            self.collected.watch(rows, batch.deal)
        return rows, places.to(ids.device).view(ids.shape), padding

    def _without_padding(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        if self.padding_idx is None:
            return ids, None
        is_padding = ids == self.padding_idx
        return (ids[~is_padding], is_padding) if bool(is_padding.any()) else (ids, None)


def _checked_ids(ids: torch.Tensor) -> torch.Tensor:
    if not isinstance(ids, torch.Tensor) or ids.dtype not in (torch.int64, torch.int32):
        kind = ids.dtype if isinstance(ids, torch.Tensor) else type(ids).__name__
        raise ConfigError(f"ids must be an int64 or int32 tensor, got {kind}")
    if ids.device.type == "meta":
        raise ConfigError("ids on the meta device have no values to look up")
    return ids.detach().reshape(-1).to("cpu", torch.int64)


def _checked_padding(padding_idx: int | None, num_embeddings: int | None) -> int | None:
    if padding_idx is None:
        return None
    if isinstance(padding_idx, bool) or not isinstance(padding_idx, int):
        raise ConfigError(f"padding_idx must be an integer, got {padding_idx!r:.60}")
    if num_embeddings is None:
        return padding_idx
    if not -num_embeddings <= padding_idx < num_embeddings:
        raise ConfigError(f"padding_idx must be one of {num_embeddings} rows, got {padding_idx}")
    return padding_idx % num_embeddings


def _store(kvstore: KVStoreBase | str) -> tuple[DistStore, bool]:
    store = kvstores.create(kvstore) if isinstance(kvstore, str) else kvstore
    if isinstance(store, DistStore):
        return store, isinstance(kvstore, str)
    raise UnsupportedError(
        f"a {getattr(store, 'type', store)!r} store has no servers to hold a table; use "
        "'dist_sync' or 'dist_async', which also work in one process"
    )
