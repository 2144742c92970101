import pytest
import torch
from tests.integration.jobs import run_threads

from bireme.kvstore import OptimizerSpec, create
from bireme.kvstore.dist import server_states

NAMES = ("Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop")
NAMES += ("Rprop", "SGD", "Adafactor", "Muon")
SHAPES = {"matrix": (10, 9), "cube": (4, 3, 5), "vector": (37,), "scalar": ()}
EXTRA = {"SGD": {"momentum": 0.9}, "Adam": {"amsgrad": True}}


def grads(step, shapes):
    draws = torch.Generator().manual_seed(step)
    return [torch.randn(shape, generator=draws, dtype=torch.float64) for shape in shapes.values()]


@pytest.mark.parametrize("name", NAMES)
def test_a_file_goes_on_with_any_number_of_servers(name, tmp_path, monkeypatch):
    # Several groups even for values as small as these.
    monkeypatch.setattr(server_states, "_GROUP_BYTES", 200)
    shapes = {"matrix": (10, 9)} if name == "Muon" else SHAPES
    spec = OptimizerSpec(name, {"lr": 0.01, **EXTRA.get(name, {})})
    keys = list(shapes)

    def ready(store, values):
        store.set_optimizer(spec)
        store.init(keys, values)
        return store

    reference = ready(
        create("local"), [torch.ones(s, dtype=torch.float64) for s in shapes.values()]
    )
    for step in range(4):
        reference.push(keys, grads(step, shapes))

    def start(session):
        first = [torch.ones(s, dtype=torch.float64) for s in shapes.values()]
        with ready(session.store("dist_sync"), first) as store:
            for step in range(2):
                half = [each / 2 for each in grads(step, shapes)]
                store.push(keys, half)
            store.save_optimizer_states(str(tmp_path / "states"))
            return store.pull(keys)

    def go_on(session):
        with ready(session.store("dist_sync"), middle) as store:
            store.load_optimizer_states(str(tmp_path / "states"))
            for step in range(2, 4):
                store.push(keys, grads(step, shapes))
            return store.pull(keys)

    middle = run_threads(2, 3, start, slice_bytes=64)[0]
    (end,) = run_threads(1, 2, go_on, slice_bytes=128)
    for ours, theirs in zip(end, reference.pull(keys), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-9)
