"""Run Horovod's own tests against ours, from a checkout of Horovod somewhere else.

Usage: ``python tools/horovod_suite.py HOROVOD_FOLDER [-np 2] [FILE ...] [-- PYTEST OPTIONS]``.

The tests import ``horovod``, which means ``bireme.horovod`` in the processes that this starts; none
of Horovod's files become part of this project. It needs ``mock`` and ``parameterized`` installed.
torch's Muon takes matrices only, which tests that try every optimizer do not know: they are shown
all optimizers but that one (``--with-muon`` shows it, too).
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

PARALLEL = ("test/parallel/test_torch.py", "test/parallel/test_common.py")
ALONE = (
    "test/parallel/test_timeline.py",
    "test/single/test_torch_elastic.py",
    "test/integration/test_interactiverun.py",
    "test/single/test_elastic_run.py",
)
PLUGIN = """
import torch

everything = torch.optim.Optimizer.__subclasses__


def without_muon():
    return [each for each in everything() if each.__name__ != "Muon"]


torch.optim.Optimizer.__subclasses__ = without_muon
"""


def main(argv: list[str]) -> int:
    """Run the files one after another and return the first bad exit status."""
    own, _, options = " ".join(argv).partition(" -- ")
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("horovod", type=Path, help="folder that holds Horovod's test folder")
    parser.add_argument("files", nargs="*", help="test files (default: those that can run)")
    parser.add_argument("-np", "--num-proc", type=int, default=2)
    parser.add_argument("--with-muon", action="store_true")
    given = parser.parse_intermixed_args(own.split())
    status = 0
    with tempfile.TemporaryDirectory() as folder:
        plugin = [] if given.with_muon else ["-p", "no_muon"]
        (Path(folder) / "no_muon.py").write_text(PLUGIN)
        for file in given.files or (*PARALLEL, *ALONE):
            num_proc = given.num_proc if "test/parallel/" in file else 1
            print(f"{file}, {num_proc} processes", flush=True)
            env = {**os.environ, "PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}"}
            path = given.horovod / file
            command = [sys.executable, "-m", "bireme", "run", "--as-horovod", "-np", str(num_proc)]
            command += ["--", sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
            command += [*plugin, "--timeout", "0", path.name, *options.split()]
            done = subprocess.run(command, cwd=path.parent, env=env, check=False)
            status = status or done.returncode
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
