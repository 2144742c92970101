"""One rank of a job: does collectives as its first argument says, until something happens."""

import os
import sys
import time
import warnings
from pathlib import Path

import torch
from torch.distributed import FileStore, PrefixStore
from torch.utils.data import DataLoader

from bireme.collective import ReduceOp, Topology, start
from bireme.errors import BiremeError
from bireme.settings.collective import CollectiveSettings

MODE, RANK, SIZE, FOLDER = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
LIMIT_S = 40.0


def begin():
    store = PrefixStore("job", FileStore(str(FOLDER / "store"), SIZE))
    settings = CollectiveSettings(cpu_backend=os.environ.get("TEST_BACKEND", "bireme"))
    return start(Topology.on_one_machine(RANK, SIZE), settings, store=store)


def until_an_error(engine):
    """Reduce for ever; with ``waiting`` one rank submits nothing, and the others wait for it."""
    tensor = torch.ones(10 if MODE == "small" else 1 << 20)
    engine.allreduce([tensor], names=["t"]).wait(LIMIT_S)
    (FOLDER / f"busy-{RANK}").touch()
    if MODE == "waiting" and str(RANK) == os.environ["TEST_IDLE_RANK"]:
        time.sleep(LIMIT_S)
    try:
        while True:
            handles = [engine.allreduce([tensor], names=[f"t{n}"]) for n in range(4)]
            for handle in handles:
                handle.wait(LIMIT_S)
    except BiremeError as error:
        sys.stdout.write(f"{type(error).__name__}|{time.time()}|{error}\n")
    engine.close()


class Probe(torch.utils.data.Dataset):
    """Uses the engine in the worker that loads, which must not work."""

    def __init__(self, engine):
        self.engine = engine

    def __len__(self):
        return 1

    def __getitem__(self, index):
        try:
            self.engine.barrier()
        except BiremeError as error:
            return type(error).__name__
        return "no error"


def with_a_loader(engine):
    engine.allreduce([torch.ones(2)], names=["t"]).wait(LIMIT_S)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (found,) = [each[0] for each in DataLoader(Probe(engine), num_workers=1)]
    (total,) = engine.allreduce([torch.ones(2)], names=["t"], op=ReduceOp.SUM).wait(LIMIT_S)
    sys.stdout.write(f"{found}|{'fine' if total.tolist() == [2.0, 2.0] else total}\n")
    engine.close()


def leaves(engine):
    engine.allreduce([torch.ones(2)], names=["t"]).wait(LIMIT_S)
    if RANK == 1:
        return
    try:
        engine.allreduce([torch.ones(2)], names=["t"]).wait(LIMIT_S)
    except BiremeError as error:
        sys.stdout.write(f"{type(error).__name__}|{error}\n")


def once(engine):
    (total,) = engine.allreduce([torch.ones(1)], names=["t"], op=ReduceOp.SUM).wait(LIMIT_S)
    sys.stdout.write(f"{total.item()}\n")
    engine.close()


ACTIONS = {"loader": with_a_loader, "leaves": leaves, "once": once}

if __name__ == "__main__":
    torch.set_num_threads(1)
    ACTIONS.get(MODE, until_an_error)(begin())
