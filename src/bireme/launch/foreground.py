"""What backends have in common whose jobs run in the foreground: found by the launcher's note."""

import contextlib
import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

from bireme.errors import ConfigError
from bireme.launch.base import State
from bireme.launch.jobs import JobNote, notes_folder, running_jobs

__all__ = ("cancel_here", "logs_here", "logs_in", "status_here")


def status_here(job: str, env: Mapping[str, str]) -> State:
    """Return how a job is that a launcher on this machine runs."""
    return State.ENDED if _find(job, env) is None else State.RUNNING


def cancel_here(job: str, env: Mapping[str, str]) -> None:
    """Ask the launcher of a job on this machine to end it, as by SIGTERM."""
    note = _find(job, env)
    if note is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(note.launcher_pid, signal.SIGTERM)


def logs_here(job: str, env: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines that a running job's ``--output-dir`` has, each behind its file's name.

    Raises:
        ConfigError: There is no such job, or it keeps no output.
    """
    note = _find(job, env)
    if note is None:
        raise ConfigError(f"no job {job!r} runs here; an ended one's output is in its --output-dir")
    if not note.output_dir:
        raise ConfigError(f"{job} keeps no output; start it with --output-dir DIR")
    yield from logs_in(Path(note.output_dir))


def logs_in(folder: Path) -> Iterator[str]:
    """Yield the lines of every file below a folder, each behind the file's name."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with path.open(encoding="utf-8", errors="replace") as file:
                yield from (f"{path.relative_to(folder)}: {line.rstrip()}" for line in file)


def _find(job: str, env: Mapping[str, str]) -> JobNote | None:
    return next((note for note in running_jobs(notes_folder(env)) if note.job == job), None)
