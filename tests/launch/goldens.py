"""Golden files: what a backend renders, compared to the last character.

A missing file fails. To change one on purpose: ``write_golden(name, text)`` in a Python shell, and
look at the difference before you commit it.
"""

import itertools
import os
from pathlib import Path

from bireme.launch.hosts import Host, parse_hosts
from bireme.launch.job import JobSpec, Resources
from bireme.settings import JobSettings

FOLDER = Path(__file__).parent / "golden"
SECRET = "0123456789abcdef0123456789abcdef"


def job(**options):
    """A job that every backend can render; nothing of it depends on where it is made."""
    defaults = {
        "command": ("python", "train.py", "--name", "two words", "it's"),
        "num_workers": 3,
        "num_servers": 2,
        "name": "job-1",
        "node_fields": {"secret": SECRET, "job": "job-1"},
        "inherited": {"PATH": "/usr/bin", "TOKEN": "not to be shown"},
        "env": {"MODE": "fast and loose"},
        "server_env": {"OMP_NUM_THREADS": "2"},
        "workdir": "/home/ann/my project",
    }
    return JobSpec(**{**defaults, **options})


_numbers = itertools.count(1)


def running_job(**options):
    """As `job`, but one of its own: what is left of a job ends wherever it runs, also beside us."""
    fields = {"secret": SECRET, "job": f"job-{os.getpid()}-{next(_numbers)}"}
    return job(**{"node_fields": fields, **options})


HOSTS = (
    *parse_hosts("leda:2,ann@castor:1"),
    Host(name="2001:db8::7", slots=1, user="bob", port=2222),
)

JOBS = {
    "parameter-server": job(),
    "all-reduce": job(num_servers=0, server_env={}),
    "resources": job(
        num_workers=4,
        resources=Resources(cores=4, gpus=1, memory_bytes=8 << 30, time_s=5400, queue="long"),
        settings=JobSettings(start_timeout_s=300),
        launch_timeout_s=300.0,
    ),
}
"""The jobs that each backend renders, by the second part of a golden file's name."""


def same_as_golden(name, text):
    """Whether a text is what ``golden/NAME.txt`` holds, to the last character."""
    return (FOLDER / f"{name}.txt").read_bytes() == text.encode()


def write_golden(name, text):
    """Write what a text is to be from now on."""
    (FOLDER / f"{name}.txt").write_bytes(text.encode())
