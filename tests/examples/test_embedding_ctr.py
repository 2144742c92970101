import os
import re
import subprocess
import sys

import pytest
from tests.examples.conftest import EXAMPLES

SCRIPT = EXAMPLES / "embedding_ctr.py"
SMALL = ["--impressions", "60000", "--ids", "5000", "--num-epochs", "2", "--batch-size", "1000"]
LINE = re.compile(r"epoch (\d): loss [\d.]+, AUC ([\d.]+) \(planted ([\d.]+)\), (\d+) rows in")


def check(printed):
    found = [match.groups() for match in LINE.finditer(printed)]
    assert [epoch for epoch, *_ in found] == ["1", "2"], printed
    ours, best = (float(each) for each in found[-1][1:3])
    assert 0.78 < ours < best < 0.92
    assert float(found[0][1]) < ours
    assert 3000 < int(found[0][3]) < int(found[1][3]) <= 8 * 5000


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_one_process_learns_most_of_what_is_planted(run_example, tmp_path):
    check(run_example("embedding_ctr.py", *SMALL, "--save", tmp_path))
    assert (tmp_path / "ids.table.json").exists()


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["dist_sync", "dist_async"])
def test_a_cluster_learns_it_too(kind):
    command = [*(sys.executable, "-m", "bireme", "run", "-n", "2", "-s", "2"), sys.executable]
    done = subprocess.run(
        [*command, str(SCRIPT), *SMALL, "--kv-store", kind],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    check(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--kv-store", "local"), "'dist_sync'"),
        (("--ids", "0"), "integer >= 1"),
    ],
)
def test_wrong_options_are_one_line(refusal, arguments, message):
    assert message in refusal("embedding_ctr.py", *arguments)
