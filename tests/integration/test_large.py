"""Jobs as large as they come: a gigabyte of output, two thousand hosts; ``make test-long``."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from tests.launch.fake_shells import fake_hosts

FAKES = str(Path(__file__).parent.parent / "launch")
RUN = (sys.executable, "-m", "bireme", "run")
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


def test_a_gigabyte_of_output_needs_little_memory():
    """It comes by an agent, all of it, with 400 MB of address space for the launcher and each."""
    lines, size_bytes = 5_000_000, 200
    code = f"import os\nline = b'x' * {size_bytes - 1} + b'\\n'\n"
    code += f"for _ in range({lines // 100}): os.write(1, line * 100)\n"
    limited = ("sh", "-c", 'ulimit -v 400000; exec "$@"', "sh")
    job = ("-np", "1", "-H", "leda:1", "--", sys.executable, "-S", "-c", code)
    env = {**os.environ, "PATH": f"{FAKES}:{os.environ['PATH']}"}
    read_bytes = 0
    with subprocess.Popen((*limited, *RUN, *job), stdout=subprocess.PIPE, env=env) as launcher:
        while data := launcher.stdout.read1(1 << 20):
            read_bytes += len(data)
    assert launcher.returncode == 0
    assert read_bytes == lines * (size_bytes + len("W[0] | "))


def test_two_thousand_hosts_start_and_end(tmp_path):
    """Shells that only say what agents would, so that what it costs is the launcher's."""
    hosts = fake_hosts(tmp_path, 2000, stays_open=True)
    before_s = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    job = (*RUN, "-np", "2000", *hosts, "--start-timeout", "600", "true")
    ended = subprocess.run(job, capture_output=True, text=True, timeout=850, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("| x") == 2000
    spent_s = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before_s
    assert spent_s < 60, f"{spent_s:.0f} s of a core for 2000 hosts"
