"""A sampler that deals a data set to processes, and what is left of it when they change."""

import random
from collections.abc import Iterator, Mapping, Sized
from typing import Any

from torch.utils.data import Sampler

from bireme.horovod.session import CURRENT

__all__ = ("ElasticSampler",)


class ElasticSampler(Sampler[int]):
    """Deals indices in an order of its own each epoch, without those that were recorded.

    Args:
        dataset: Of one size on every process and at all times.
        shuffle: Whether to change the order each epoch.
        seed: The same on every process.

    The last indices are completed from the first ones, so that every process gets as many. Put it
    into a `TorchState`; call `record_batch` after each batch and `set_epoch` at the end of each
    epoch, not at its beginning, so that an interrupted epoch goes on where it was.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.processed_num = 0
        self.num_replicas = 0
        self.rank = 0
        self.remaining_indices: list[int] = []
        self.num_samples = 0
        self.total_size = 0
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch: nothing of it has been processed."""
        self.epoch = epoch
        self.processed_num = 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Take note that every process has done with a batch.

        Args:
            batch_idx: Number of the batch; not used.
            batch_size: Samples of one process's batch.
        """
        del batch_idx
        self.processed_num += batch_size * self.num_replicas

    def state_dict(self) -> dict[str, Any]:
        """Return how far the epoch is."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from where a state says."""
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]
        self.reset()

    def reset(self) -> None:
        """Deal what is left of the epoch to the processes that there are now."""
        self.num_replicas = CURRENT.topology.size
        self.rank = CURRENT.topology.rank
        order = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(order)
        self.remaining_indices = order[self.processed_num :]
        self.num_samples = -(-len(self.remaining_indices) // self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        if not self.remaining_indices:
            return iter(())
        left = self.remaining_indices
        times = -(-self.total_size // len(left))
        return iter((left * times)[self.rank : self.total_size : self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples
