"""Jobs of several processes under Horovod's names."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import bireme

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.parametrize("num_proc", [2, 3])
def test_operations_errors_and_training_on_every_rank(tmp_path, num_proc):
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "bireme", "run", "-np", str(num_proc), sys.executable),
            *("-m", "tests.integration.programs.horovod_job", str(tmp_path)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(num_proc)]
    assert found == [{}] * num_proc
    assert ended.returncode == 0, ended.stderr[-2000:]


SCRIPT = """
import json, os, sys
import horovod, horovod.torch as hvd, torch
from horovod.torch.mpi_ops import rank
hvd.init()
model = torch.nn.Linear(1, 1, bias=False)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters())
model(torch.ones(1, 1) * (rank() + 1)).sum().backward()
optimizer.step()
if hvd.rank() == 0:
    names = {event.get("name") for event in json.load(open(os.environ["HOROVOD_TIMELINE"]))}
    print(json.dumps([model.weight.grad.item(), horovod.torch.__name__, sorted(names - {None})]))
"""


@pytest.mark.parametrize("launcher", ["bireme", "torchrun"])
def test_an_unmodified_script_runs_under_either_launcher(tmp_path, launcher):
    script, timeline = tmp_path / "train.py", tmp_path / "timeline.json"
    script.write_text(SCRIPT)
    command = {
        "bireme": ["bireme", "run", "--as-horovod", "-np", "2", sys.executable],
        "torchrun": ["torch.distributed.run", "--standalone", "--nproc-per-node", "2"],
    }[launcher]
    bootstrap = Path(bireme.__file__).parent / "horovod" / "bootstrap"
    path = [str(ROOT / "src")] if launcher == "bireme" else [str(bootstrap), str(ROOT / "src")]
    from bireme.horovod import environment

    env = environment.read() | {"PYTHONPATH": ":".join(path), "HOROVOD_TIMELINE": str(timeline)}
    env["HOROVOD_TIMELINE_MARK_CYCLES"] = "1"
    ended = subprocess.run(
        [sys.executable, "-m", *command, str(script)],
        env=env,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    (line,) = [line for line in ended.stdout.splitlines() if "bireme.horovod" in line]
    grad, module, names = json.loads(line[line.index("[1") :])
    assert (grad, module) == (1.5, "bireme.horovod.torch")
    assert {"NEGOTIATE_ALLREDUCE", "ALLREDUCE", "CYCLE_START"} <= set(names)
    assert "allreduce.weight" in timeline.read_text()


def test_a_functions_results_come_in_the_order_of_ranks():
    def function(a, *, b):
        import torch

        import bireme.horovod.torch as hvd

        hvd.init()
        return hvd.rank(), hvd.allreduce(torch.tensor([a + b + hvd.rank()]), op=hvd.Sum).tolist()

    assert bireme.run(function, (1,), {"b": 2}, num_proc=2) == [(0, [7]), (1, [7])]


def test_a_functions_exception_comes_back_and_ends_the_others():
    def function():
        import time

        from bireme.horovod.runner.common.util.env import get_env_rank_and_size

        if get_env_rank_and_size()[0] == 1:
            raise KeyError("spoon")
        time.sleep(120)

    with pytest.raises(RuntimeError, match="rank 1 raised KeyError: 'spoon'") as caught:
        bireme.run(function, num_proc=2)
    assert isinstance(caught.value.__cause__, KeyError)
    assert "in function" in str(caught.value)
