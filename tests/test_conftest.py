"""What the suite's own settings promise."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SLOW = """
import time
from hypothesis import given, strategies as st

@given(st.data())
def test_slow(data):
    while data.draw(st.integers(0, 1 << 40)) >= 0:
        time.sleep(0.01)
"""


def test_a_property_that_takes_too_long_says_so(tmp_path):
    (tmp_path / "test_slow.py").write_text(SLOW)
    options = ["-q", "-p", "tests.conftest", "-p", "no:cacheprovider", "--timeout", "0.3"]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "test_slow.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "TimeIsUp: Timeout (>0.3s)" in ended.stdout
    assert "Flaky" not in ended.stdout
