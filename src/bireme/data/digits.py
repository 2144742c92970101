"""Scikit-learn's handwritten digits: real data that needs no download.

Called by the examples, which train on them unless they are given a directory.
"""

import numpy as np

from bireme.data.arrays import LabelledImages
from bireme.errors import ConfigError

__all__ = ("load_digits",)

_DARKEST = np.float32(16)


def load_digits() -> LabelledImages:
    """Return 1,797 handwritten digits of 8 by 8 pixels.

    Returns:
        Images float32 of shape (1797, 1, 8, 8) in [0, 1]; labels 0..9, about 180 of each.

    Raises:
        ConfigError: scikit-learn, which ships them, is not installed.

    Example:
        >>> train, test = load_digits().split(297)
        >>> len(train), len(test), train.images.shape[1:]
        (1500, 297, (1, 8, 8))

    Source:
        E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine
        Learning Repository, 1998 (its test set).
    """
    try:
        from sklearn import datasets
    except ImportError as error:
        raise ConfigError(
            "the digits come with scikit-learn, which is not installed; "
            "install it with: pip install 'bireme[examples]'"
        ) from error
    bunch = datasets.load_digits()
    images = bunch.images.astype(np.float32)[:, None] / _DARKEST
    return LabelledImages(images, bunch.target.astype(np.int64))
