import pytest

from bireme.errors import BiremeError
from bireme.horovod.common import exceptions


@pytest.mark.parametrize(
    ("kind", "base"),
    [
        (exceptions.HorovodInternalError, RuntimeError),
        (exceptions.HostsUpdatedInterrupt, RuntimeError),
        (exceptions.HorovodVersionMismatchError, ImportError),
        (exceptions.NotInitialized, ValueError),
        (exceptions.MisusedOptimizer, AssertionError),
    ],
)
def test_scripts_catch_them_as_they_did(kind, base):
    assert issubclass(kind, base)


def test_ours_belong_to_the_tree_of_errors():
    assert issubclass(exceptions.HorovodInternalError, BiremeError)
    assert "hvd.init()" in str(exceptions.NotInitialized())


def test_what_they_carry():
    assert exceptions.HostsUpdatedInterrupt(True).skip_sync
    error = exceptions.HorovodVersionMismatchError("torch", "2", "1")
    assert (error.name, error.version, error.installed_version) == ("torch", "2", "1")
    assert str(error) == exceptions.get_version_mismatch_message("torch", "2", "1")
