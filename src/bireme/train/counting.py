"""Says how many samples stand behind each replica's gradients of a step. The trainer asks it."""

from typing import TYPE_CHECKING

from bireme.errors import StateError
from bireme.kvstore.base import KVStore, KVStoreBase
from bireme.train.shares import NumSamples, check_counts, shares

if TYPE_CHECKING:
    from bireme.data.balanced import BalancedBatchSampler

__all__ = ("Counting",)


class Counting:
    """The sample counts of one trainer's steps.

    What is said with a step counts; else what was said before its backward pass, else this
    worker's portion of the sampler's batch, else every replica counts the same.

    Args:
        num_replicas: Replicas of this process, >= 1.
        store: That merges their gradients, or ``None``.

    Attributes:
        sampler: Of whose batches the steps are, once there is one.

    Example:
        >>> counting = Counting(2, None)
        >>> counting.begin(counting.of([3, 1]))
        >>> counting.of_step(None), counting.of_step(None)
        ([3.0, 1.0], [1.0, 1.0])
    """

    def __init__(self, num_replicas: int, store: KVStoreBase | None) -> None:
        self.sampler: BalancedBatchSampler | None = None
        self._num_replicas = num_replicas
        self._store = store
        self._begun: NumSamples = None

    def of(self, num_samples: NumSamples) -> list[float]:
        """Return one count for each replica.

        Raises:
            ConfigError: ``num_samples`` is out of range or of the wrong length; or all 0, where
                no other worker's samples count in the same sum.
        """
        sampler = self.sampler
        if num_samples is None and sampler is not None and sampler.num_samples:
            num_samples = [sampler.num_samples / self._num_replicas] * self._num_replicas
        counts = check_counts(num_samples, self._num_replicas)
        store = self._store
        in_rounds = not isinstance(store, KVStore) or store.meets_in_rounds
        if store is None or store.num_workers == 1 or not in_rounds:
            shares(counts, sum(counts))
        return counts

    def of_step(self, num_samples: NumSamples) -> list[float]:
        """Return the counts of the step that ends now; what was said before it is used up.

        Raises:
            ConfigError: As for :meth:`of`.
        """
        begun, self._begun = self._begun, None
        return self.of(begun if num_samples is None else num_samples)

    def refuse_begun(self) -> None:
        """Raise if the counts of this step were said already.

        Raises:
            StateError: They were.
        """
        if self._begun is not None:
            raise StateError("this step has begun already; call begin() once, before the backward")

    def begin(self, counts: list[float]) -> None:
        """Keep the counts of the step that begins."""
        self._begun = counts
