import inspect

import pytest

from bireme.train.mode import Mode
from bireme.train.plain_update import PlainUpdate
from bireme.train.store_update import StoreUpdate
from bireme.train.worker_update import WorkerUpdate

NAMES = [name for name in vars(Mode) if not name.startswith("_")]


@pytest.mark.parametrize("kind", [PlainUpdate, WorkerUpdate, StoreUpdate])
def test_every_mode_has_the_whole_interface(kind):
    assert len(NAMES) == 10
    for name in NAMES:
        ours, theirs = inspect.getattr_static(kind, name), inspect.getattr_static(Mode, name)
        if isinstance(theirs, property):
            assert isinstance(ours, property)
        else:
            assert inspect.signature(ours) == inspect.signature(theirs)
