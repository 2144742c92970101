import pytest

from bireme.errors import ConfigError
from bireme.node.interface import address_of_interface


def test_an_interface_has_an_address():
    assert address_of_interface("lo") == "127.0.0.1"


@pytest.mark.parametrize("name", ["", "no such one", "x" * 300])
def test_an_unknown_interface_is_refused_with_those_that_exist(name):
    with pytest.raises(ConfigError, match=r"must be one of .*lo"):
        address_of_interface(name)
