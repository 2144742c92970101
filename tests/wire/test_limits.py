"""Limits are within what a header can say."""

import pytest

from bireme.errors import ConfigError
from bireme.wire.limits import BEFORE_PROOF, DEFAULT_LIMITS, Limits


def test_strangers_get_less():
    assert BEFORE_PROOF.max_body_bytes < DEFAULT_LIMITS.max_body_bytes
    assert BEFORE_PROOF.max_payload_bytes == 0


@pytest.mark.parametrize("field", ["max_body_bytes", "max_payload_bytes"])
@pytest.mark.parametrize("value", [-1, 2**63])
def test_what_no_header_can_say_is_refused(field, value):
    with pytest.raises(ConfigError, match=field):
        Limits(**{field: value})
