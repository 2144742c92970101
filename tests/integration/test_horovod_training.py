"""Training of several ranks equals that of one process, in the ways that take longest to try."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]


def run(num_proc, program, *arguments):
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "bireme", "run", "-np", str(num_proc), sys.executable),
            *("-m", f"tests.integration.programs.{program}", *map(str, arguments)),
        ],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]


has_compiler = pytest.mark.skipif(
    shutil.which("g++") is None, reason="inductor needs a C++ compiler, g++"
)


@pytest.mark.parametrize(
    ("backend", "num_proc"),
    [("aot_eager", 3), pytest.param("inductor", 2, marks=has_compiler)],
)
def test_compiled_models_with_batch_norm_over_all_ranks(tmp_path, backend, num_proc):
    run(num_proc, "compiled_models", backend, tmp_path)
    assert len(list(tmp_path.glob("fine-*"))) == num_proc


@pytest.mark.parametrize("num_proc", [2, 3, 4])
def test_parameters_equal_those_of_one_process(tmp_path, num_proc):
    run(num_proc, "horovod_training", tmp_path)
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(num_proc)]
    assert found == [{}] * num_proc
