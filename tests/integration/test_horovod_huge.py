"""More than 2^31 elements, where a 32-bit count would end."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NEEDED_BYTES = 14e9

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.timeout(1200),
]


def available_bytes():
    with open("/proc/meminfo") as lines:
        kib = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    return 1024 * kib["MemAvailable"]


@pytest.mark.parametrize("backend", ["bireme", "gloo"])
def test_every_operation_takes_more_than_31_bits_of_elements(tmp_path, backend):
    if available_bytes() < NEEDED_BYTES:
        pytest.skip("needs 14 GB of memory")
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "bireme", "run", "-np", "2", sys.executable),
            *("-m", "tests.integration.programs.huge", str(tmp_path)),
        ],
        cwd=ROOT,
        env=os.environ | {"BIREME_CPU_BACKEND": backend},
        capture_output=True,
        text=True,
        timeout=1100,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-1000:] + ended.stderr[-3000:]
    assert len(list(tmp_path.glob("fine-*"))) == 2
