"""What a keyed store offers. Plug-ins subclass :class:`KVStoreBase`; ours :class:`KVStore`."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Self, TypeAlias, TypeVar

import torch

from bireme.consistency.local import LocalSteps
from bireme.errors import ConfigError, UnsupportedError
from bireme.kvstore.pending import Pending
from bireme.observe.timeline import Timeline
from bireme.types.keys import Key as Key
from bireme.update.rule import Updater as Updater

if TYPE_CHECKING:
    from bireme.compress.base import Compressor
    from bireme.update.spec import OptimizerSpec

__all__ = ("KVStore", "KVStoreBase", "Key", "Plugin", "Updater", "Values")

Values: TypeAlias = torch.Tensor | Sequence[torch.Tensor] | Sequence[Sequence[torch.Tensor]]
"""A tensor; one tensor per device; or, for a list of keys, one of these for each key."""

Plugin = TypeVar("Plugin", bound="type[KVStoreBase]")
"""A plug-in's class, which the decorator hands back."""


class KVStoreBase(ABC):
    """The least that a plug-in store must offer: broadcast, pushpull and who it is.

    Register a subclass with :func:`bireme.kvstore.register`; ``create`` then knows it by its
    lower-cased class name.

    Source:
        MXNet 1.9 ``python/mxnet/kvstore/base.py`` (same required and optional methods).
    """

    OPTIMIZER: ClassVar[str] = "optimizer"
    """The capability to run an optimizer in the store."""

    @staticmethod
    def register(cls: Plugin) -> Plugin:
        """Make a plug-in store known to ``create``: :func:`bireme.kvstore.register`."""
        # Imported on use: the registry imports this module.
        from bireme.kvstore.registry import register

        return register(cls)

    @property
    @abstractmethod
    def type(self) -> str:
        """The lower-cased name the store was created under."""

    @property
    @abstractmethod
    def rank(self) -> int:
        """This worker's number, 0 <= rank < num_workers."""

    @property
    @abstractmethod
    def num_workers(self) -> int:
        """How many workers share the store."""

    @abstractmethod
    def broadcast(
        self, key: Key | Sequence[Key], value: Values, out: Values, priority: int = 0
    ) -> None:
        """Initialise ``key`` with rank 0's ``value`` and write it into every ``out``."""

    @abstractmethod
    def pushpull(
        self,
        key: Key | Sequence[Key],
        value: Values,
        out: Values | None = None,
        priority: int = 0,
    ) -> None:
        """Push ``value``, then pull the result into ``out`` (into ``value`` when ``None``)."""

    def is_capable(self, capability: str) -> bool:
        """Return whether the store has ``capability``; the one known is ``"optimizer"``.

        Raises:
            ConfigError: The capability is unknown.
        """
        if not isinstance(capability, str) or capability.lower() != self.OPTIMIZER:
            raise ConfigError(f"unknown capability {capability!r}; the one known is 'optimizer'")
        return False

    def set_optimizer(self, optimizer: "torch.optim.Optimizer | OptimizerSpec") -> None:
        """Run ``optimizer`` in the store on every push."""
        raise UnsupportedError(f"a {self.type!r} store runs no optimizer; update on the worker")

    def save_optimizer_states(self, path: str) -> None:
        """Write the optimizer's state to ``path``."""
        raise UnsupportedError(f"a {self.type!r} store runs no optimizer, so it has no state")

    def load_optimizer_states(self, path: str) -> None:
        """Read what :meth:`save_optimizer_states` wrote."""
        raise UnsupportedError(f"a {self.type!r} store runs no optimizer, so it has no state")


class KVStore(KVStoreBase):
    """A keyed store: push gradients or values, pull the current value.

    Values are dense tensors, or row-sparse ones: ``torch.sparse_coo`` with exactly one sparse
    dimension, the first. A key keeps the shape, dtype and layout that it was initialised with
    (a dense key also takes row-sparse gradients).

    Guarantees:
        Values pushed for one key in one call are summed (half types in float32). Without an
        updater or optimizer the sum replaces the stored value; with one, the updater applies
        it. The store never keeps a reference to a tensor that it was given. A pull that starts
        after a push of the same key has returned, in any thread, sees that push. Calls for one
        key are atomic; calls for different keys may interleave. A call that raises changes
        nothing.

    Source:
        MXNet 1.9 ``python/mxnet/kvstore/kvstore.py``.
    """

    @property
    def spans_processes(self) -> bool:
        """Whether the values live outside this process, for other workers to share."""
        return False

    @property
    def updates_elsewhere(self) -> bool:
        """Whether an optimizer in the store runs on other machines' time, as on servers."""
        return self.spans_processes

    @property
    def timeline(self) -> Timeline | None:
        """Where to record what happens when, or ``None``."""
        return None

    @property
    def meets_in_rounds(self) -> bool:
        """Whether a push counts together with one push of every other worker."""
        return True

    @property
    def staleness(self) -> int | None:
        """Rounds that a worker may be ahead of the slowest; ``None`` when there is no bound."""
        return 0 if self.meets_in_rounds else None

    @property
    def local_steps(self) -> LocalSteps | None:
        """How often workers meet that train alone in between; ``None`` when they do not."""
        return None

    def sum_over_workers(self, name: str, value: torch.Tensor) -> torch.Tensor:
        """Return the sum of every worker's ``value``, whatever the store does with pushes.

        For small agreements between workers, such as how many samples each of them has.

        Args:
            name: What is agreed on; every worker that uses it must take part each time.
            value: A small dense tensor, of the same shape and dtype on every worker.
        """
        return value.clone()

    @abstractmethod
    def init(self, key: Key | Sequence[Key], value: Values) -> None:
        """Give ``key`` its first value: rank 0's, on every worker.

        Raises:
            StateError: The key exists already.
            ConfigError: Integer and string keys are mixed, or the value is not a tensor.
        """

    @abstractmethod
    def push(self, key: Key | Sequence[Key], value: Values, priority: int = 0) -> None:
        """Sum ``value`` over devices (and workers) and give the sum to the updater.

        Args:
            key: One key or a list; a key that appears twice gets the sum of both values.
            value: A tensor, a list (one per device), or one of these for each key.
            priority: Higher goes first where the store reorders; no effect on the result.

        Raises:
            UnknownKeyError: A key was never initialised.
            ConfigError: Shape, dtype, layout or number of values does not fit.
        """

    @abstractmethod
    def pull(
        self, key: Key | Sequence[Key], out: Values | None = None, priority: int = 0
    ) -> torch.Tensor | list[torch.Tensor] | None:
        """Write the current value into every ``out``.

        Returns:
            ``None``; or, when ``out`` is ``None``, a copy of the value (a list of them for a
            list of keys), on the device that holds it.

        Raises:
            UnknownKeyError: A key was never initialised.
            ConfigError: Shape or dtype of an ``out`` does not fit, or an ``out`` is sparse
                (use :meth:`row_sparse_pull`).
        """

    @abstractmethod
    def row_sparse_pull(
        self,
        key: Key | Sequence[Key],
        out: Values | None = None,
        row_ids: Values | None = None,
        priority: int = 0,
    ) -> torch.Tensor | list[torch.Tensor] | None:
        """Fetch only the rows ``row_ids`` of a value, as a row-sparse tensor.

        Args:
            key: One key or a list.
            out: Row-sparse tensors whose content is replaced; a new one when ``None``.
            row_ids: Integer tensors of any shape; repeated and unsorted ids are allowed. One
                for all ``out`` of a key, or one for each.
            priority: As in :meth:`push`.

        Raises:
            ConfigError: A row id is out of range, or an ``out`` is dense.
        """

    @abstractmethod
    def set_updater(self, updater: Updater | None) -> None:
        """Call ``updater(key, merged, stored)`` on every push; ``None`` goes back to assigning."""

    @abstractmethod
    def set_gradient_compression(
        self, compression: "Mapping[str, object] | Compressor | None"
    ) -> None:
        """Compress what is pushed from now on; ``None`` switches compression off.

        In a distributed store without an optimizer, sums of gradients that all workers cast to
        ``fp16``, or all to ``bf16``, are rounded to that type once, and come back in it.

        Raises:
            ConfigError: The type or a parameter is unknown.
            UnsupportedError: This store does not compress.
        """

    @property
    @abstractmethod
    def runs_updates(self) -> bool:
        """Whether a push goes to an updater or optimizer instead of replacing the value."""

    def pushpull_async(
        self,
        key: Key | Sequence[Key],
        value: Values,
        out: Values | None = None,
        priority: int = 0,
    ) -> Pending:
        """Begin a :meth:`pushpull` and return at once; the results are there after ``wait()``.

        ``value`` must not change and ``out`` must not be read or written before
        :meth:`Pending.wait <bireme.kvstore.pending.Pending.wait>` has returned. A store without a
        network may do everything at once.

        Args:
            key: As in :meth:`pushpull`.
            value: As in :meth:`pushpull`.
            out: As in :meth:`pushpull`.
            priority: Of calls under way at the same time, those of higher priority overtake the
                others, on the way there and back.

        Raises:
            BiremeError: As :meth:`pushpull`, for what is wrong with the arguments.
        """
        self.pushpull(key, value, out, priority)
        return Pending()

    def average_async(
        self,
        key: Key | Sequence[Key],
        value: Values,
        out: Values,
        weight: float,
    ) -> Pending:
        """Begin a :meth:`pushpull` of the workers' weighted mean; return at once.

        Where pushes count together, their sum is divided by the sum of the workers' weights.
        Elsewhere each one counts for one in so many workers, and weights count for nothing.

        Args:
            key: As in :meth:`pushpull`.
            value: As in :meth:`pushpull`; not to change before the end.
            out: As in :meth:`pushpull`; not to be read or written before the end.
            weight: Of this worker, >= 0.
        """
        return self.pushpull_async(key, value, out)

    def skip_round(self, key: Key | Sequence[Key]) -> None:
        """Take part in a round of ``key`` without pushing anything.

        Where others wait for whoever is too far behind (a bound on staleness), a worker that has
        nothing to push must still count. Elsewhere it does nothing.

        Args:
            key: One key or a list.
        """

    def overwrite(self, key: Key | Sequence[Key], value: Values) -> None:
        """Replace stored values without any rule; every worker calls it, and rank 0's count.

        Raises:
            UnknownKeyError: A key was never initialised.
            ConfigError: Shape or dtype does not fit.
        """
        raise UnsupportedError(f"a {self.type!r} store cannot overwrite values")

    def optimizer_states(self) -> dict[Key, dict[str, object]]:
        """Return a copy of the optimizer's state for each key; a worker may call it alone.

        Raises:
            StateError: The store runs no optimizer.
        """
        raise UnsupportedError(f"a {self.type!r} store does not hand out states")

    def set_optimizer_states(self, states: Mapping[Key, Mapping[str, object]]) -> None:
        """Replace all of the optimizer's state; every worker calls it, and rank 0's counts.

        Raises:
            StateError: The store runs no optimizer.
            ConfigError: A state does not belong to a key of the store.
        """
        raise UnsupportedError(f"a {self.type!r} store does not take states")

    @abstractmethod
    def barrier(self) -> None:
        """Return when every worker has called it."""

    @abstractmethod
    def wait_all(self) -> None:
        """Return when everything this worker has pushed and pulled is done."""

    @abstractmethod
    def close(self) -> None:
        """Leave the store and free what it holds; a second call does nothing."""

    @abstractmethod
    def num_dead_nodes(self) -> int:
        """Return how many nodes of the job are known to be dead; 0 in one process."""

    def __getstate__(self) -> dict[str, object]:
        raise UnsupportedError(
            f"a {self.type!r} store cannot be copied or pickled, as its threads and locks cannot; "
            "create one in each process"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
