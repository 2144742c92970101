"""The order in which an epoch goes through a data set, the same on every worker.

Called by the samplers.
"""

import numpy as np
import numpy.typing as npt

__all__ = ("epoch_order",)


def epoch_order(n: int, seed: int, epoch: int, *, shuffle: bool) -> npt.NDArray[np.int64]:
    """Return the numbers 0 to n - 1 in the order of an epoch.

    Args:
        n: Samples in the data set, >= 0.
        seed: 0 <= ``seed`` < 2**64.
        epoch: 0 <= ``epoch`` < 2**64.
        shuffle: Permute; else count upwards.

    Guarantees:
        The order depends on the arguments only: not on the platform or numpy's version.

    Example:
        >>> sorted(epoch_order(4, seed=0, epoch=1, shuffle=True).tolist())
        [0, 1, 2, 3]
    """
    if not shuffle:
        return np.arange(n)
    # Raw bits and a stable sort: numpy may change its shuffles between versions, and
    # workers with different versions must still agree.
    key = np.array([seed, epoch], dtype=np.uint64)
    return np.argsort(np.random.Philox(key=key).random_raw(n), kind="stable")
