import json
import os

import pytest
import torch
from tests.integration.jobs import run_threads

from bireme import OptimizerSpec
from bireme.errors import ConfigError, DataError
from bireme.kvstore.tables import TableOptions
from bireme.kvstore.tables.saving import manifest_path

ADAM = OptimizerSpec("adam", {"lr": 0.1})
IDS = torch.cat([torch.arange(200), torch.tensor([-5, 10**17])])


def options(**change):
    return TableOptions(**{"name": "user/id", "dim": 3, "dtype": torch.float64, **change})


def step(table, number):
    ids = IDS[number::2]
    table.push(ids, torch.full((len(ids), 3), 1.0 + number, dtype=torch.float64))


def save(folder, num_servers=2):
    def work(session):
        with session.store("dist_sync") as store:
            table = store.table(options())
            table.set_optimizer(ADAM)
            for number in (0, 1, 0):
                step(table, number)
            table.save(str(folder))
            saved = table.pull(IDS)
            step(table, 1)
            return saved, table.pull(IDS)

    return run_threads(2, num_servers, work)[0]


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 1), (1, 1)])
@pytest.mark.parametrize("told", [True, False])
def test_a_table_goes_on_on_another_number_of_servers(tmp_path, before, after, told):
    # Names of folders need not be text.
    tmp_path = tmp_path / os.fsdecode(b"caf\xe9")
    tmp_path.mkdir()
    saved, later = save(tmp_path, before)
    assert len(list(tmp_path.iterdir())) == before + 1

    def work(session):
        with session.store("dist_sync") as store:
            table = store.table(options())
            if told:
                table.set_optimizer(ADAM)
                step(table, 0)
            table.load(str(tmp_path))
            loaded = table.pull(IDS)
            table.set_optimizer(ADAM)
            step(table, 1)
            return loaded, table.pull(IDS)

    for loaded, stepped in run_threads(2, after, work):
        assert torch.equal(loaded, saved)
        assert torch.equal(stepped, later)


def test_saving_again_replaces_the_files(tmp_path):
    save(tmp_path)
    first = {path.name for path in tmp_path.iterdir()}
    save(tmp_path)
    second = {path.name for path in tmp_path.iterdir()}
    assert len(second) == 3
    assert first & second == {"user%2Fid.table.json"}


def test_errors_reach_every_worker_and_leave_nothing(tmp_path):
    def work(session):
        with session.store("dist_sync") as store:
            table = store.table(options())
            table.set_optimizer(ADAM)
            step(table, 0)
            with pytest.raises(ConfigError, match="every server sees"):
                table.save(str(tmp_path / "none"))
            with pytest.raises(ConfigError, match="was not saved"):
                table.load(str(tmp_path))
            rows = table.pull(IDS)
            step(table, 0)
            assert not torch.equal(table.pull(IDS), rows)

    run_threads(2, 2, work)
    assert not list(tmp_path.iterdir())


def refused(folder, error, text, *, optimizer=ADAM, **change):
    def work(session):
        with session.store("dist_sync") as store:
            table = store.table(options(**change))
            table.set_optimizer(optimizer)
            step(table, 0)
            before = table.pull(IDS)
            with pytest.raises(error, match=text):
                table.load(str(folder))
            assert torch.equal(table.pull(IDS), before)

    run_threads(2, 2, work)


def test_files_of_another_table_or_optimizer_are_refused(tmp_path):
    save(tmp_path)
    refused(tmp_path, ConfigError, "seed=0", seed=1)
    refused(tmp_path, ConfigError, "states of Adam", optimizer=OptimizerSpec("sgd"))
    refused(tmp_path, ConfigError, "was not saved", name="other")


def test_damaged_files_are_refused(tmp_path):
    save(tmp_path)
    path = manifest_path(str(tmp_path), "user/id")
    with open(path, encoding="utf-8") as file:
        manifest = json.load(file)
    part = tmp_path / manifest["files"][1]
    whole = part.read_bytes()
    part.write_bytes(whole[:-8])
    refused(tmp_path, ConfigError, "readable part")
    part.write_bytes(whole)
    for change, error in (
        ({"files": manifest["files"][:1]}, DataError),
        ({"files": ["../x"]}, DataError),
        ({"files": 3}, DataError),
        ({"format": "x"}, DataError),
    ):
        with open(path, "w", encoding="utf-8") as file:
            json.dump({**manifest, **change}, file)
        refused(tmp_path, error, "table")
    with open(path, "w", encoding="utf-8") as file:
        file.write("{")
    refused(tmp_path, DataError, "damaged")


def test_rows_may_be_loaded_without_state(tmp_path):
    saved, _ = save(tmp_path)

    def work(session):
        with session.store("dist_sync") as store:
            table = store.table(options())
            table.set_optimizer(OptimizerSpec("sgd", {"lr": 1.0}))
            table.load(str(tmp_path), optimizer_states=False)
            assert torch.equal(table.pull(IDS), saved)
            step(table, 0)
            even = torch.arange(202)[:, None] % 2 == 0
            assert torch.allclose(saved - table.pull(IDS), even.double())

    run_threads(1, 3, work)
