"""Keeps what each process prints in files of its own, on the launcher's machine."""

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TextIO

from bireme.errors import ConfigError
from bireme.launch.plan import Plan
from bireme.types.nodes import NodeId, Role

__all__ = ("Logs", "log_paths", "logs_of")


def log_paths(node: NodeId, *, by_rank: bool, width: int = 1) -> tuple[str, str]:
    """Return where a node's standard output and standard error go, below the output folder.

    Args:
        node: Whose.
        by_rank: As horovodrun has it: a folder for each rank, and two files in it.
        width: Digits of a rank, with ``by_rank``.

    Example:
        >>> from bireme.types import worker
        >>> log_paths(worker(3), by_rank=False), log_paths(worker(3), by_rank=True, width=2)[0]
        (('worker-3.log', 'worker-3.log'), 'rank.03/stdout')
    """
    if by_rank and node.role is Role.WORKER:
        folder = f"rank.{node.rank:0{width}}"
    elif by_rank:
        folder = str(node.role) if node.role is Role.SCHEDULER else f"{node.role}.{node.rank}"
    else:
        name = "scheduler.log" if node.role is Role.SCHEDULER else f"{node.role}-{node.rank}.log"
        return name, name
    return f"{folder}/stdout", f"{folder}/stderr"


class Logs:
    """Writes lines of processes to files; a full disk ends a file, not the job.

    Args:
        folder: Where; made when it is not there.
        paths: For each node, the files of both streams below ``folder``.
        complain: Told once for each node whose output cannot be kept any longer.

    Raises:
        ConfigError: ``folder`` cannot be written to.
    """

    def __init__(
        self,
        folder: Path,
        paths: Mapping[NodeId, tuple[str, str]],
        complain: Callable[[str], object],
    ) -> None:
        self._complain = complain
        self._files: dict[tuple[NodeId, bool], TextIO] = {}
        with contextlib.ExitStack() as on_error:
            opened: dict[str, TextIO] = {}
            try:
                for node, names in paths.items():
                    for is_error, name in zip((False, True), names, strict=True):
                        if name not in opened:
                            opened[name] = on_error.enter_context(_opened(folder / name))
                        self._files[node, is_error] = opened[name]
            except OSError as error:
                raise ConfigError(f"cannot write to the output directory: {error}") from error
            self._close = on_error.pop_all()

    def keep(self, node: NodeId, lines: list[str], *, is_error: bool) -> None:
        """Write lines of a node."""
        file = self._files.get((node, is_error))
        if file is None:
            return
        try:
            file.write("\n".join(lines) + "\n")
            file.flush()
        except OSError as error:
            for stream in (False, True):
                self._files.pop((node, stream), None)
            self._complain(f"the output of {node} is not kept any longer: {error}")

    def __enter__(self) -> "Logs":
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _value: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        # What could not be written has been complained of.
        with contextlib.suppress(OSError):
            self._close.close()


def _opened(path: Path) -> TextIO:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("w", encoding="utf-8", errors="replace")


def logs_of(plan: Plan, complain: Callable[[str], object]) -> Logs | None:
    """Return the files of a job's output, or ``None`` where nobody wants them.

    Raises:
        ConfigError: They cannot be written.
    """
    spec = plan.spec
    if spec.output_dir is None:
        return None
    width = len(str(spec.num_workers - 1))
    paths = {
        node: log_paths(node, by_rank=spec.output_by_rank, width=width) for node in spec.nodes()
    }
    return Logs(Path(spec.output_dir), paths, complain)
