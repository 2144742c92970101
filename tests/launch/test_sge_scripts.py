import signal
import subprocess
import sys
import time

import pytest
from tests.launch.goldens import job

from bireme.launch.sge_scripts import output_of, pe_script, private_file

WAITS = (
    "import signal, sys, time\n"
    "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
    "print('ready', flush=True)\n"
    "time.sleep(60)\n"
)


def started(tmp_path, code):
    spec = job(workdir=str(tmp_path))
    private_file(spec).write_text("export A='it is'\n")
    script = pe_script(spec, "mpi", (), (sys.executable, "-S", "-c", code))
    return spec, subprocess.Popen(["/bin/sh", "-c", script], stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize(("code", "seen"), [(0, 0), (3, 3), (99, 1), (100, 1)])
def test_exit_codes(tmp_path, code, seen):
    _, process = started(tmp_path, f"import sys; sys.exit({code})")
    process.communicate(timeout=20)
    assert process.returncode == seen


def test_the_private_file_is_read_and_taken_away(tmp_path):
    spec, process = started(tmp_path, "import os; print(os.environ['A'])")
    assert process.communicate(timeout=20)[0] == "it is\n"
    assert not private_file(spec).exists()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2])
def test_the_command_hears_that_the_job_is_to_end(tmp_path, signum):
    _, process = started(tmp_path, WAITS)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signum)
    start_s = time.monotonic()
    process.communicate(timeout=20)
    assert process.returncode == 7
    assert time.monotonic() - start_s < 10


def test_files_are_in_the_output_folder_where_there_is_one():
    assert str(output_of(job(output_dir="/logs"))) == "/logs/job-1.log"
    assert str(private_file(job())) == "/home/ann/my project/.job-1.env"
