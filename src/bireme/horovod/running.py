"""``bireme.run(fn, num_proc=2)``: a function on several processes, and their results.

The function travels as bytes in a folder that only its owner may enter; ``bireme run`` starts the
processes, each of which leaves its result or its error there (``running_worker``).
"""

import contextlib
import importlib.util
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import cloudpickle

from bireme.errors import ConfigError, JobError
from bireme.horovod import alias, environment
from bireme.horovod.objects import from_bytes, to_bytes
from bireme.launch.exits import abort_of

__all__ = ("Failure", "FunctionFailed", "Task", "run")

_STOP_S = 15.0


@dataclass(frozen=True, slots=True)
class Task:
    """What every process does."""

    call: bytes
    """A function without arguments."""
    path: tuple[str, ...]
    """Where the caller imports from."""
    is_aliased: bool
    """Whether ``import horovod`` means Bireme there."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What a process leaves when its function raised."""

    text: str
    """Type and message."""
    trace: str
    error: bytes
    """The exception; empty where it cannot be sent."""


class FunctionFailed(JobError):
    """The function raised on some process, or a process died.

    The original exception is ``__cause__``.

    Args:
        message: Names the rank, and holds the traceback of its process.
        rank: Which one; None: a process died without a word.
    """

    def __init__(self, message: str, rank: int | None = None) -> None:
        super().__init__(message)
        self.rank = rank


def run(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    num_proc: int = 1,
    options: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    executable: str | None = None,
) -> list[Any]:
    """Call ``fn(*args, **kwargs)`` in several processes and return what each returned.

    Works from scripts, tests and notebooks; there what the processes print appears in the cell.
    Functions of the script itself and lambdas may be used. The processes find their ranks as in
    any job: ``hvd.init()``.

    Args:
        fn: What to call. It, its arguments and its results are pickled.
        args: Its arguments.
        kwargs: Its named arguments.
        num_proc: How many processes.
        options: More flags for ``bireme run``, such as ``("-H", "localhost:2,leda:2")``; other
            machines see the same files.
        env: Variables for the processes, beside the environment of now.
        executable: The Python to run; None: this one.

    Returns:
        The results, in the order of ranks.

    Raises:
        ConfigError: ``num_proc`` is not positive, or ``fn`` cannot be called.
        FunctionFailed: A RuntimeError: the function raised, or a process died. The others are
            ended.

    Example::

        def train(lr):
            hvd.init()
            return hvd.allreduce(torch.tensor(lr)).item()

        bireme.run(train, (0.1,), num_proc=2)
    """
    if isinstance(num_proc, bool) or not isinstance(num_proc, int) or num_proc < 1:
        raise ConfigError(f"num_proc must be an integer >= 1, got {num_proc!r}")
    if not callable(fn):
        raise ConfigError(f"fn must be something to call, got {fn!r}")
    with tempfile.TemporaryDirectory(prefix="bireme-run-") as name:
        folder = Path(name)
        (folder / "task").write_bytes(to_bytes(_task(fn, args, kwargs or {})))
        python = executable or sys.executable
        command = [
            *(sys.executable, "-m", "bireme", "run", "-np", str(num_proc), *options, "--"),
            *(python, "-m", "bireme.horovod.running_worker", name),
        ]
        status, said = _start(command, {**environment.read(), **(env or {})})
        return _results(folder, num_proc, status, said)


def _task(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Task:
    given, named = tuple(args), dict(kwargs)
    with _sent_by_value(fn):
        call = to_bytes((fn, given, named))
    return Task(call, tuple(each or "." for each in sys.path), alias.is_installed())


@contextlib.contextmanager
def _sent_by_value(fn: Callable[..., Any]) -> Iterator[None]:
    """Send the function's code where the other processes could not import its module."""
    module = sys.modules.get(getattr(fn, "__module__", None) or "")
    if module is None or _can_be_imported(module.__name__):
        yield
        return
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def _can_be_imported(name: str) -> bool:
    if name == "__main__":
        return True  # Always sent by value.
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _start(command: list[str], env: Mapping[str, str]) -> tuple[int, str]:
    """Run the launcher; return its exit status and the last lines of its error output."""
    tail: list[str] = []
    with subprocess.Popen(
        command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        threads = [
            threading.Thread(target=_forward, args=pair, daemon=True)
            for pair in ((process.stdout, sys.stdout, []), (process.stderr, sys.stderr, tail))
        ]
        for thread in threads:
            thread.start()
        try:
            status = process.wait()
        except BaseException:
            _stop(process)
            raise
        for thread in threads:
            thread.join(_STOP_S)
    return status, "".join(tail[-20:])


def _forward(source: IO[bytes], target: IO[str], tail: list[str]) -> None:
    """Show what a process prints where this one's output goes now: a terminal, a test, a cell."""
    for line in source:
        text = line.decode(errors="replace")
        tail.append(text)
        del tail[:-50]
        with contextlib.suppress(OSError, ValueError):
            target.write(text)
            target.flush()


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()


def _results(folder: Path, num_proc: int, status: int, said: str) -> list[Any]:
    failures = {
        rank: from_bytes((folder / f"failure.{rank}").read_bytes())
        for rank in range(num_proc)
        if (folder / f"failure.{rank}").exists()
    }
    absent = [rank for rank in range(num_proc) if not (folder / f"result.{rank}").exists()]
    first = _first_failure(folder, failures, silent={*absent} - {*failures})
    if first is not None:
        raise _error_of(first, failures[first]) from _original(failures[first])
    absent = [rank for rank in absent if rank not in failures]
    if status or absent:
        raise FunctionFailed(
            f"the job ended with exit code {status} and without results of ranks {absent}; the "
            f"last that was said:\n{said}"
        )
    return [from_bytes((folder / f"result.{rank}").read_bytes()) for rank in range(num_proc)]


def _first_failure(
    folder: Path, failures: Mapping[int, Failure], silent: Collection[int]
) -> int | None:
    """Return which rank's exception the others ended by; None: a process that ended without one."""
    own = [
        rank
        for rank, failure in failures.items()
        if abort_of(failure.text.splitlines(), f"W[{rank}]") is None
    ]
    # Whoever failed first took the others with it: its file is the oldest.
    return min(
        own or ([] if silent else failures),
        key=lambda each: (folder / f"failure.{each}").stat().st_mtime_ns,
        default=None,
    )


def _error_of(rank: int, failure: Failure) -> FunctionFailed:
    return FunctionFailed(f"rank {rank} raised {failure.text}\n\n{failure.trace}", rank)


def _original(failure: Failure) -> BaseException | None:
    if not failure.error:
        return None
    try:
        error: BaseException = from_bytes(failure.error)
    except Exception:
        # Its class is known over there only; the text says what it was.
        return None
    return error
