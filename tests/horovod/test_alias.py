import importlib
import sys

import pytest

from bireme.horovod import alias


@pytest.fixture(autouse=True)
def _restored():
    yield
    alias.uninstall()


def test_both_names_lead_to_the_same_modules():
    alias.install()
    theirs = importlib.import_module("horovod.torch.mpi_ops")
    ours = importlib.import_module("bireme.horovod.torch.mpi_ops")
    assert theirs is ours
    assert ours.__name__ == ours.__spec__.name == "bireme.horovod.torch.mpi_ops"
    import horovod.torch as hvd

    assert hvd is sys.modules["bireme.horovod.torch"]
    assert importlib.import_module("horovod").__version__ == "0.28.1"


@pytest.mark.parametrize(
    "name",
    [
        *("torch.compression", "torch.functions", "torch.optimizer", "torch.sync_batch_norm"),
        *("torch.elastic.sampler", "torch.elastic.state", "common.basics", "common.util"),
        *("common.process_sets", "common.exceptions", "common.elastic", "runner.launch"),
        *("runner.elastic.worker", "runner.common.util.env", "runner.util.threads"),
    ],
)
def test_the_module_paths_that_scripts_import_exist(name):
    alias.install()
    assert importlib.import_module(f"horovod.{name}") is sys.modules[f"bireme.horovod.{name}"]


def test_a_module_that_bireme_does_not_have_says_what_it_has():
    alias.install()
    with pytest.raises(ModuleNotFoundError, match=r"no bireme.horovod.tensorflow; it has horovod"):
        importlib.import_module("horovod.tensorflow")


def test_twice_is_once_and_uninstall_undoes_it():
    before = list(sys.meta_path)
    alias.install()
    alias.install()
    assert len(sys.meta_path) == len(before) + 1
    importlib.import_module("horovod.common.util")
    alias.uninstall()
    assert sys.meta_path == before
    assert not [name for name in sys.modules if name.split(".")[0] == "horovod"]


def test_other_imports_are_left_alone():
    alias.install()
    with pytest.raises(ModuleNotFoundError, match="horovodrunner"):
        importlib.import_module("horovodrunner")
