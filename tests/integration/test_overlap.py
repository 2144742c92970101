"""Real processes reach the same bits with overlap as without, and leave timelines behind."""

import json

import pytest
import torch
from tests.integration.jobs import launch


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    ("on_store", "num_workers", "transport"), [("1", 3, "tcp"), ("0", 2, "shm")]
)
def test_the_same_bits(tmp_path, on_store, num_workers, transport):
    launch(
        "overlapped",
        tmp_path,
        on_store,
        num_workers=num_workers,
        num_servers=2,
        bireme_transport=transport,
        bireme_slice_bytes="65536",
        bireme_timeline=str(tmp_path / "trace.json"),
    )
    runs = [
        found
        for rank in range(num_workers)
        for found in torch.load(tmp_path / f"{rank}.pt", weights_only=True)
    ]
    assert len(runs) == 4 * num_workers
    for found in runs:
        for value, expected in zip(found, runs[0], strict=True):
            assert torch.equal(value, expected)
    for name in ("worker0", "server1"):
        events = json.loads((tmp_path / f"trace.{name}.json").read_text())["traceEvents"]
        left = {event["name"] for event in events if event["ph"] == "b"}
        assert any(each.startswith("push" if name == "worker0" else "value") for each in left)
        if name == "worker0":
            spans = {event["name"] for event in events if event["ph"] == "X"}
            assert {"forward first", "backward back.weight", "step"} <= spans
