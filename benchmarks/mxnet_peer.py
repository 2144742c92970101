"""Runs MXNet 1.9.1 beside us: finds or makes its interpreter, and talks to a process in it.

MXNet needs numpy 1.23.5 and so cannot share our environment. Both sides import this module: the
benchmark calls :func:`ensure_mxnet` and sends cases through :class:`Peer`; the program inside
MXNet's interpreter calls :func:`serve`. Standard library only, for that reason.

The protocol is one JSON object a line over the child's standard streams::

    -> {"case": "pushpull", "num_floats": 1000}
    <- {"seconds": 0.0123}                          or whatever else the case returns
    <- {"error": "Traceback ..."}                   the case raised; the child lives on
"""

import json
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

__all__ = ("MXNET_VERSION", "Peer", "PeerError", "ensure_mxnet", "serve")

MXNET_VERSION = "1.9.1"

_REQUIREMENTS = (f"mxnet=={MXNET_VERSION}", "numpy==1.23.5")
_PYTHONS = ("python3.11", "python3.10", "python3.9", "python3.8")  # numpy 1.23.5 has wheels for
_DEFAULT_ENV = Path(__file__).resolve().parents[1] / ".venv-mxnet"


class PeerError(RuntimeError):
    """MXNet's side could not be set up, did not answer, or answered with an error."""


def ensure_mxnet(path: str | None = None, env_dir: Path = _DEFAULT_ENV) -> Path:
    """Return an interpreter that imports MXNet 1.9.1.

    Args:
        path: Interpreter to use, as given by ``--mxnet-python``. ``None`` makes an environment
            in ``env_dir`` on first use (some 50 MB of downloads) and finds it there afterwards.
        env_dir: Where that environment lives.

    Raises:
        PeerError: ``path`` does not have MXNet 1.9.1, or the environment cannot be made.
    """
    if path is not None:
        python = Path(path).expanduser()
        problem = _problem_with(python)
        if problem:
            raise PeerError(f"--mxnet-python {path}: {problem}")
        return python.absolute()  # not resolve(): a venv's python is a link that must stay one
    python = env_dir / "bin" / "python"
    if _problem_with(python):
        _make_env(env_dir)
        problem = _problem_with(python)
        if problem:
            raise PeerError(f"{python}: {problem}; delete {env_dir} and try again")
    return python


class Peer:
    """A long-lived process in MXNet's interpreter that runs the cases it is named.

    Use as a context manager. Calls are strictly one after the other.

    Args:
        python: What :func:`ensure_mxnet` returned.
        program: File to run there; it must end in a call of :func:`serve`.
        num_threads: ``OMP_NUM_THREADS`` of the process.
        environ: Further environment variables, such as ``MXNET_KVSTORE_BIGARRAY_BOUND``.

    Example::

        with Peer(ensure_mxnet(), Path("benchmarks/mxnet_compress.py"), num_threads=2) as peer:
            seconds = peer.run("compress", num_floats=10_000_000)
    """

    def __init__(
        self,
        python: Path,
        program: Path,
        *,
        num_threads: int = 1,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._log = tempfile.TemporaryFile()
        env = os.environ | {"OMP_NUM_THREADS": str(num_threads)} | dict(environ or {})
        env["PYTHONPATH"] = str(Path(__file__).resolve().parent)
        self._process = subprocess.Popen(
            [str(python), str(program)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=env,
        )
        self._pending = b""

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def run(self, case: str, *, timeout_s: float = 300.0, **params: Any) -> float:
        """Return the seconds that ``case`` took inside the child, by the child's own clock."""
        return float(self.ask(case, timeout_s=timeout_s, **params)["seconds"])

    def ask(self, case: str, *, timeout_s: float = 300.0, **params: Any) -> dict[str, Any]:
        """Return the whole answer to ``case``.

        Args:
            case: A name that the child's program passed to :func:`serve`.
            timeout_s: Limit of the wait for the answer; a child that breaks it is killed.
            **params: Plain JSON values, passed on to the case as keyword arguments.

        Raises:
            PeerError: The case raised, the child died, or the limit passed.
        """
        line = json.dumps({"case": case} | params).encode() + b"\n"
        try:
            self._stdin.write(line)
            self._stdin.flush()
        except (BrokenPipeError, ValueError) as error:
            raise PeerError(f"MXNet's process is gone: {self._tail()}") from error
        answer: dict[str, Any] = json.loads(self._read_line(timeout_s))
        if "error" in answer:
            raise PeerError(f"case {case!r} failed in MXNet's process:\n{answer['error']}")
        return answer

    def close(self) -> None:
        """End the child: close its input, and kill it when it has not gone in 10 seconds."""
        try:
            self._process.communicate(timeout=10)
        except (subprocess.TimeoutExpired, ValueError):
            self._process.kill()
            self._process.wait()
        self._log.close()

    @property
    def _stdin(self) -> Any:
        return self._process.stdin

    def _read_line(self, timeout_s: float) -> bytes:
        stdout = self._process.stdout
        assert stdout is not None
        deadline_s = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            while b"\n" not in self._pending:
                if not selector.select(deadline_s - time.monotonic()):
                    self._process.kill()
                    raise PeerError(f"no answer from MXNet in {timeout_s} s: {self._tail()}")
                chunk = os.read(stdout.fileno(), 1 << 16)
                if not chunk:
                    raise PeerError(f"MXNet's process ended: {self._tail()}")
                self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def _tail(self) -> str:
        self._log.seek(0)
        text = self._log.read()[-2000:].decode(errors="replace")
        return f"exit status {self._process.poll()}, last words:\n{text}"


def serve(cases: Mapping[str, Callable[..., float | dict[str, Any]]]) -> None:
    """Answer cases from standard input until it closes. Runs in MXNet's interpreter.

    Args:
        cases: Name to function. A function takes the request's further fields as keyword
            arguments and returns its seconds, or a dictionary for anything more.
    """
    # MXNet prints warnings to standard output; they must not land in the protocol.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        name = request.pop("case")
        try:
            if name not in cases:
                raise KeyError(f"unknown case {name!r}; this program has {sorted(cases)}")
            result = cases[name](**request)
            answer = result if isinstance(result, dict) else {"seconds": result}
        except Exception:
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)


def _problem_with(python: Path) -> str | None:
    """Return what keeps ``python`` from running MXNet 1.9.1, or ``None``."""
    if not python.exists():
        return "no such file"
    probe = [str(python), "-c", "import mxnet; print(mxnet.__version__)"]
    try:
        done = subprocess.run(probe, capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not run: {error}"
    if done.returncode != 0:
        return f"cannot import mxnet: {done.stderr.strip().splitlines()[-1:]}"
    found = done.stdout.split()[-1]
    return None if found == MXNET_VERSION else f"has MXNet {found}, and needs {MXNET_VERSION}"


def _make_env(env_dir: Path) -> None:
    candidates = [name for name in _PYTHONS if shutil.which(name)]
    if not candidates:
        raise PeerError(
            f"MXNet {MXNET_VERSION} needs one of {', '.join(_PYTHONS)} and none is on PATH; "
            "install one, or pass --mxnet-python"
        )
    print(f"making MXNet's environment in {env_dir} (once)", file=sys.stderr)
    python = str(env_dir / "bin" / "python")
    for command in (
        [candidates[0], "-m", "venv", "--clear", str(env_dir)],
        [python, "-m", "pip", "install", "--quiet", *_REQUIREMENTS],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise PeerError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
