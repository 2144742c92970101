import pytest

from bireme.horovod.session import CURRENT


@pytest.fixture(autouse=True)
def _nobody_launched_this_process(monkeypatch):
    """Tests run the same inside of a job of some launcher, and leave no job of their own behind."""
    for name in (
        *("RANK", "WORLD_SIZE", "HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_TIMELINE", "BIREME_RANK"),
        *("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE"),
    ):
        monkeypatch.delenv(name, raising=False)
    yield
    CURRENT.stop()


@pytest.fixture
def hvd():
    """A job of one process."""
    import bireme.horovod.torch as hvd

    hvd.init()
    return hvd
