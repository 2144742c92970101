import pytest

from bireme.horovod.objects import from_bytes, to_bytes


def test_functions_of_the_script_travel_with_their_code():
    offset = 3
    assert from_bytes(to_bytes(lambda x: x + offset))(4) == 7


def test_what_cannot_be_sent_is_an_error():
    with pytest.raises(TypeError, match="cannot pickle"):
        to_bytes(each for each in ())
