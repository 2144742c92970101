"""Which jobs run on this machine: a note for each, readable by its owner only.

The launcher writes one while its job runs; ``bireme doctor`` reads them to reach the jobs'
schedulers. A note is locked for as long as its launcher lives, so that one that a killed launcher
has left behind is recognised, and cleared away.
"""

import contextlib
import fcntl
import os
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from bireme.errors import ConfigError
from bireme.launch.environment import Meeting
from bireme.launch.plan import Plan
from bireme.settings import Security

__all__ = ("JobNote", "findable", "note_of", "noted", "notes_folder", "running_jobs")


class JobNote(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is needed to ask a running job how it is."""

    job: str
    launcher_pid: int
    scheduler_address: str
    secret: str
    secret_file: str
    security: str
    command: tuple[str, ...]
    num_workers: int
    num_servers: int
    output_dir: str = ""

    def __repr__(self) -> str:
        return f"JobNote({self.job}, {self.scheduler_address}, {' '.join(self.command)})"


def note_of(plan: Plan, meeting: Meeting) -> JobNote:
    """Return what is to be known of a job that this process starts."""
    spec = plan.spec
    fields = spec.node_fields
    host = (
        f"[{meeting.scheduler_host}]" if ":" in meeting.scheduler_host else meeting.scheduler_host
    )
    return JobNote(
        job=spec.name,
        launcher_pid=os.getpid(),
        scheduler_address=f"tcp://{host}:{meeting.scheduler_port}" if host else "",
        secret=str(fields.get("secret", "")),
        secret_file=str(fields.get("secret_file", "")),
        security=str(fields.get("security", Security.AUTH)),
        command=spec.command,
        num_workers=spec.num_workers,
        num_servers=spec.num_servers,
        output_dir="" if spec.output_dir is None else str(Path(spec.output_dir).absolute()),
    )


@contextlib.contextmanager
def findable(note: JobNote, env: Mapping[str, str], say: Callable[[str], object]) -> Iterator[None]:
    """Note a job for ``bireme doctor`` until the block ends; the job does not depend on it."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(noted(note, notes_folder(env)))
        except ConfigError as error:
            say(f"bireme doctor will not find this job: {error}")
        yield


def notes_folder(env: Mapping[str, str]) -> Path:
    """Return where the notes of this user are: below ``XDG_RUNTIME_DIR``, or below ``/tmp``.

    Source:
        XDG Base Directory Specification 0.8.
    """
    runtime = env.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_dir():
        return Path(runtime) / "bireme"
    return Path(tempfile.gettempdir()) / f"bireme-{os.getuid()}"


@contextlib.contextmanager
def noted(note: JobNote, folder: Path) -> Iterator[Path]:
    """Keep a note of a job in ``folder`` until the block ends, and yield its path.

    Raises:
        ConfigError: ``folder`` cannot be made, or is not this user's alone.
    """
    _own_folder(folder)
    path = folder / f"{note.job}.json"
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise ConfigError(f"cannot note the job in {folder}: {error}") from error
    with os.fdopen(fd, "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(msgspec.json.encode(note))
        file.flush()
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)


def running_jobs(folder: Path) -> list[JobNote]:
    """Return the notes of the jobs that run now, and clear away those of jobs that do not.

    Raises:
        ConfigError: ``folder`` is not this user's alone; what it says cannot be trusted.
    """
    if not folder.exists():
        return []
    _own_folder(folder)
    notes = [_read(path) for path in sorted(folder.glob("*.json"))]
    return [note for note in notes if note is not None]


def _read(path: Path) -> JobNote | None:
    try:
        with path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return msgspec.json.decode(file.read(), type=JobNote)
            # The launcher is gone, or has yet to lock a note that is still empty.
            if file.read(1):
                path.unlink(missing_ok=True)
    except (OSError, msgspec.MsgspecError):
        return None
    return None


def _own_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError as error:
        raise ConfigError(f"cannot note jobs in {folder}: {error}") from error
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise ConfigError(f"{folder} is not this user's alone; remove it, or: chmod 700 {folder}")
