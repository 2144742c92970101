"""One process of ``bireme.run(fn)``: call the function and leave what it returned in a folder.

Started by ``bireme run`` as ``python -m bireme.horovod.running_worker FOLDER``.
"""

import os
import sys
import traceback
from pathlib import Path
from typing import Any

from bireme.horovod import alias, environment
from bireme.horovod.objects import from_bytes, to_bytes
from bireme.horovod.running import Failure, Task
from bireme.settings.ranks import RankSettings

__all__ = ("call", "main", "work")


def work(folder: Path, rank: int) -> int:
    """Do the task in ``folder`` as ``rank`` and return the exit status: 1 when it raised."""
    try:
        result = to_bytes(call(from_bytes((folder / "task").read_bytes())))
    except Exception as error:
        _leave(folder / f"failure.{rank}", to_bytes(_failure(error)))
        traceback.print_exc()
        return 1
    _leave(folder / f"result.{rank}", result)
    return 0


def call(task: Task) -> Any:
    """Return what the task's function returns."""
    sys.path[:] = [*task.path, *(each for each in sys.path if each not in task.path)]
    if task.is_aliased:
        alias.install()
    function, args, kwargs = from_bytes(task.call)
    return function(*args, **kwargs)


def main(argv: list[str]) -> int:
    """Run as a process of the job."""
    rank = RankSettings.from_env(environment.read()).rank
    return work(Path(argv[1]), rank)


def _failure(error: Exception) -> Failure:
    try:
        sent = to_bytes(error)
    except Exception:
        sent = b""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return Failure(text, "".join(traceback.format_exception(error)), sent)


def _leave(path: Path, data: bytes) -> None:
    """Write a file that is there whole or not at all."""
    part = path.with_name(f"{path.name}.part")
    part.write_bytes(data)
    os.replace(part, path)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
