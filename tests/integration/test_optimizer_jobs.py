"""Optimizers on the servers of real jobs: two workers, two servers."""

import runpy

import pytest
import torch
from tests.integration.forking import Job, script

from bireme.update import states
from bireme.update.state_dicts import to_state_dict

pytestmark = pytest.mark.slow

SCRIPT = script("optimizer_script.py")
SMALL = ("-n", 2, "-s", 2)


def start(folder, optimizer, *options, **env):
    env = {"STATES": folder, "BIREME_SLICE_BYTES": 2048, **env}
    return Job(folder / "job", [*SMALL, *options], SCRIPT, OPTIMIZER=optimizer, **env)


@pytest.mark.parametrize(
    ("optimizer", "options", "names"),
    [
        ("AdamW", (), {"exp_avg", "exp_avg_sq", "max_exp_avg_sq", "step"}),
        ("Muon", (), {"momentum_buffer"}),
        ("Signed", ("--allow-optimizer", "__main__"), {"total"}),
    ],
)
def test_it_trains_as_one_process_and_servers_write_their_parts(
    tmp_path, optimizer, options, names
):
    with start(tmp_path, optimizer, *options) as job:
        assert job.end(60) == 0, job.err
        assert job.out.count("done") == 2
    assert len(list((tmp_path / "parts").iterdir())) == 3
    made = runpy.run_path(str(SCRIPT))
    net = made["make_net"]()
    mine = made["OPTIMIZERS"][optimizer](net.parameters())
    content = states.read(tmp_path / "parts")
    if optimizer == "Signed":
        assert content.optimizer == "__main__:Signed"
    else:
        mine.load_state_dict(to_state_dict(tmp_path / "parts", net, mine))
    for key, param in zip(("0.weight", "2.weight"), net.parameters(), strict=True):
        state = content.states[f"trainer0/{key}"]
        assert state.keys() == names
        for name in names - {"step"}:
            assert state[name].shape == param.shape
            assert state[name].count_nonzero() == param.numel()


def test_a_class_that_the_job_does_not_allow(tmp_path):
    with start(tmp_path, "Signed") as job:
        assert job.end(60) != 0
        job.await_line("bireme run --allow-optimizer __main__")


@pytest.mark.parametrize("killed", [0, 1])
def test_a_server_that_is_killed_while_it_writes_leaves_the_old_states(tmp_path, killed):
    with start(tmp_path, "AdamW", KILL=killed) as job:
        assert job.end(60) != 0
        assert job.out.count("saved") == 2
        assert "done" not in job.out
    content = states.read(tmp_path / "parts")
    for state in content.states.values():
        assert state["step"] == 6
        assert torch.isfinite(state["exp_avg"]).all()
    assert len(content.states) == 2
