import sys

import numpy as np
import pytest

from bireme.data.digits import load_digits
from bireme.errors import ConfigError


def test_digits_have_the_promised_form():
    data = load_digits()
    assert data.images.shape == (1797, 1, 8, 8)
    assert data.images.dtype == np.float32
    assert (data.images.min(), data.images.max()) == (0.0, 1.0)
    assert np.bincount(data.labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_without_scikit_learn_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ConfigError, match=r"bireme\[examples\]"):
        load_digits()
