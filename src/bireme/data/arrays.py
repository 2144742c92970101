"""What every reader of this package returns: images with their labels, as numpy arrays.

Called by the readers beside it and by training scripts, which turn the arrays into tensors
(``torch.from_numpy``) themselves: nothing here knows torch.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bireme.errors import ConfigError

__all__ = ("Array", "LabelledImages")

Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class LabelledImages:
    """A data set of images and one class number for each.

    Args:
        images: Shape (n, channels, height, width); uint8 in 0..255 as stored, or floating
            point in [0, 1].
        labels: Shape (n,), int64, >= 0.

    Raises:
        ConfigError: A shape or dtype is not as above, or the lengths differ.

    Example:
        >>> data = LabelledImages(np.zeros((3, 1, 8, 8), np.uint8), np.array([0, 1, 2]))
        >>> len(data), data.scaled().images.dtype
        (3, dtype('float32'))
    """

    images: Array
    labels: Array

    def __post_init__(self) -> None:
        kind = self.images.dtype
        if self.images.ndim != 4 or not (kind == np.uint8 or np.issubdtype(kind, np.floating)):
            raise ConfigError(
                "images must be uint8 or floating point of shape (n, channels, height, width), "
                f"got {kind} of shape {self.images.shape}"
            )
        if self.labels.ndim != 1 or self.labels.dtype != np.int64:
            raise ConfigError(
                f"labels must be int64 of shape (n,), got {self.labels.dtype} of shape "
                f"{self.labels.shape}"
            )
        if len(self.images) != len(self.labels):
            raise ConfigError(f"{len(self.images)} images but {len(self.labels)} labels")

    def __len__(self) -> int:
        return len(self.labels)

    def scaled(self) -> "LabelledImages":
        """Return the same data with float32 images in [0, 1].

        Guarantees:
            Images that are float32 already are shared, not copied.
        """
        if self.images.dtype == np.uint8:
            return LabelledImages(self.images.astype(np.float32) / np.float32(255), self.labels)
        return LabelledImages(self.images.astype(np.float32, copy=False), self.labels)

    def split(self, num_test: int, *, seed: int = 0) -> "tuple[LabelledImages, LabelledImages]":
        """Return a training part and a test part of ``num_test`` images, chosen at random.

        Args:
            num_test: Images in the second part, 1 <= ``num_test`` < n.
            seed: >= 0. The same seed gives the same two parts, everywhere and always.

        Raises:
            ConfigError: A value is out of range.

        Guarantees:
            The parts share no image and together hold all of them.
        """
        if not 1 <= num_test < len(self):
            raise ConfigError(f"num_test must be in 1..{len(self) - 1}, got {num_test}")
        if seed < 0:
            raise ConfigError(f"seed must be >= 0, got {seed}")
        # Raw bits and a stable sort: numpy may change its shuffles between versions, not these.
        order = np.argsort(np.random.Philox(key=seed).random_raw(len(self)), kind="stable")
        train, test = np.sort(order[num_test:]), np.sort(order[:num_test])
        return (
            LabelledImages(self.images[train], self.labels[train]),
            LabelledImages(self.images[test], self.labels[test]),
        )
