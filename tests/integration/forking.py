"""Real jobs without the wait: `bireme run` whose processes are forked from one with torch loaded.

Importing torch takes two seconds of a core, and a job has four or five processes. So the launcher
and its children are forked from a fork server that has imported everything; from there on all is
real: processes, pipes, signals, sockets, exit codes.
"""

import atexit
import io
import multiprocessing
import os
import runpy
import signal
import sys
import tempfile
import threading
import time
import traceback
from multiprocessing import resource_tracker
from pathlib import Path

from bireme import cli
from bireme.launch import child

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    [
        "torch",
        "bireme.kvstore.factory",
        "bireme.train.trainer",
        "bireme.cli",
        "tests.integration.forking",
    ]
)


class ForkedProcess:
    """What ``subprocess.Popen`` offers of a child, for one that was forked."""

    def __init__(self, pid, stdout, stderr):
        self.pid, self.stdout, self.stderr = pid, stdout, stderr
        self._status = None

    def wait(self):
        if self._status is None:
            self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._status


def start_by_fork(command, env, workdir, register, pass_fds):
    """Stand in for the launcher's ``exec``: ``command`` is ``python script arguments``."""
    (out_read, out_write), (err_read, err_write) = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.chdir(workdir or ".")
        register()
        for source, target in ((out_write, 1), (err_write, 2)):
            os.dup2(source, target)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        close_all_but({0, 1, 2, *pass_fds})
        become(command, env)
    os.close(out_write)
    os.close(err_write)
    return ForkedProcess(pid, io.FileIO(out_read), io.FileIO(err_read))


def close_all_but(kept):
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            try:
                os.close(int(name))
            except OSError:
                continue


def become(command, env):
    """Do what the interpreter does with a script, from its first line to its exit status."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for signum in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_DFL)
    atexit._clear()
    # The fork server's tracker is no tracker of this process: its descriptor is closed here.
    resource_tracker._resource_tracker._fd = resource_tracker._resource_tracker._pid = None
    sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), write_through=True)
    sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), write_through=True)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = list(command[1:])
    status = 0
    try:
        runpy.run_path(command[1], run_name="__main__")
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException as error:
        traceback.print_exc()
        sys.last_value = error
        status = -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    threading._shutdown()
    atexit._run_exitfuncs()
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def launcher(argv, env, folder):
    """Be ``bireme`` with these arguments: the target of the process that a test starts."""
    for name, fd in (("out", 1), ("err", 2)):
        os.dup2(os.open(folder / name, os.O_CREAT | os.O_WRONLY | os.O_APPEND), fd)
    sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), write_through=True)
    sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), write_through=True)
    os.environ.clear()
    os.environ.update(env)
    tempfile.tempdir = None
    child._start = start_by_fork
    sys.exit(cli.main(argv))


class Job:
    """A job under way.

    Args:
        folder: An empty one for its output.
        options: Of ``bireme run``.
        script: What all processes run.
        env: More variables.
    """

    def __init__(self, folder, options, script, **env):
        self.folder = Path(folder)
        self.folder.mkdir(exist_ok=True)
        for name in ("out", "err"):
            (self.folder / name).touch()
        argv = ["run", *map(str, options), sys.executable, str(script)]
        clean = {
            name: text
            for name, text in os.environ.items()
            if not name.startswith(("BIREME_", "DMLC_", "PS_"))
        }
        env = {name: str(value) for name, value in env.items()}
        env = {**clean, "OMP_NUM_THREADS": "1", "XDG_RUNTIME_DIR": str(self.folder), **env}
        self.process = _CONTEXT.Process(target=launcher, args=(argv, env, self.folder))
        self.began_s = time.monotonic()
        self.process.start()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.process.is_alive():
            self.process.terminate()
            self.process.join(15)
        if self.process.is_alive():
            self.process.kill()
        self.process.join()

    @property
    def out(self):
        return (self.folder / "out").read_text()

    @property
    def err(self):
        return (self.folder / "err").read_text()

    def end(self, limit_s=30):
        """Wait for the launcher and return its exit code."""
        self.process.join(limit_s)
        assert self.process.exitcode is not None, f"still runs:\n{self.out}\n{self.err}"
        return self.process.exitcode

    def await_line(self, text, limit_s=30):
        """Return the first line of output that holds ``text``, once it has come."""
        return self.await_lines(text, 1, limit_s)[0]

    def await_lines(self, text, count, limit_s=30):
        """Return ``count`` lines that hold ``text``, once they have come."""
        deadline_s = time.monotonic() + limit_s
        while True:
            lines = [line for line in (self.out + self.err).splitlines() if text in line]
            if len(lines) >= count:
                return lines
            assert self.process.is_alive(), f"ended without {text!r}:\n{self.out}\n{self.err}"
            assert time.monotonic() < deadline_s, f"no {text!r}:\n{self.out}\n{self.err}"
            time.sleep(0.005)

    def pids(self, count):
        """Return the process numbers by node name, once ``count`` processes have told theirs."""
        found = {}
        while len(found) < count:
            for line in self.await_lines("| pid ", len(found) + 1):
                found[line.split("|")[0].strip()] = int(line.rsplit(" ", 1)[1])
        return found


def script(name):
    """Return the path of a script of this folder."""
    return Path(__file__).parent / name
