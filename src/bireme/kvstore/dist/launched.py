"""From the environment to a distributed store: a role of a launched job, or a job of its own."""

import contextlib
import logging
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from types import FrameType

from bireme.errors import JobAborted
from bireme.kvstore.dist.options import DistOptions, dist_options
from bireme.kvstore.dist.session import Session
from bireme.kvstore.dist.store import DistStore
from bireme.node.boot import connect_worker, run_node
from bireme.node.embedded import EmbeddedCluster, embedded_config
from bireme.settings import JobSettings, NodeSettings, is_launched, notices
from bireme.settings.dmlc import translate
from bireme.settings.variables import read_fields
from bireme.types.nodes import Role

__all__ = ("Launched",)

_log = logging.getLogger("bireme")


class Launched:
    """What a process is in the job that a launcher started it for.

    A worker's stores share one membership of the job, so this is kept for the whole process.
    """

    def __init__(self) -> None:
        self._session: Session | None = None
        self._lock = threading.Lock()

    def create(
        self, kind: str, environ: Mapping[str, str], given: Mapping[str, object] | None = None
    ) -> DistStore:
        """Return a store; in a server or scheduler, serve until the job ends and leave.

        Args:
            kind: Its type.
            environ: Where the launcher has said what this process is.
            given: Options of the store, not checked yet.

        Raises:
            SystemExit: This process is a server or the scheduler, and the job has ended.
            ConfigError: The environment of the launcher is incomplete or contradicts itself, or an
                option is wrong.
            JobError: The job did not come together within its limit.
        """
        job = JobSettings.from_env(environ)
        options = dist_options(kind, given or {}, staleness=job.staleness)
        if not is_launched(environ):
            return _embedded(kind, job, options)
        self.serve(environ)
        with self._lock:
            if self._session is None:
                node = NodeSettings.from_env(environ)
                _log.setLevel(node.log_level.upper())
                self._session = Session(
                    connect_worker(node, job),
                    start_timeout_s=job.start_timeout_s,
                    exit_timeout_s=job.exit_timeout_s,
                )
            return self._session.store(kind, options)

    def tell_if_idle(self, kind: str, environ: Mapping[str, str]) -> None:
        """Warn in a server or scheduler of a store that needs none: the script goes on there."""
        if not is_launched(environ):
            return
        role = _role(environ)
        if role is not Role.WORKER:
            _log.warning(
                "this process is to be a %s, but runs the script as a worker does: a %r store "
                "needs no servers; use a dist store, or start the job without servers (-s 0)",
                role,
                kind,
            )

    def serve(self, environ: Mapping[str, str]) -> None:
        """Return in a worker or without a launcher; else serve until the job ends, and leave.

        The first Ctrl-C is the workers' matter, who may want to save what the servers hold; the
        second ends this process too.

        Raises:
            SystemExit: The job has ended.
        """
        # A worker of a job without servers is told of no scheduler, and has none to look for.
        if _role(environ) is Role.WORKER:
            return
        node = NodeSettings.from_env(environ)
        _log.setLevel(node.log_level.upper())
        if node.role is Role.SCHEDULER and node.listen_fd is None:
            # Once for the job, and not again where the launcher has said it.
            for notice in notices(environ):
                _log.warning("%s", notice)
        with _patient():
            ended = run_node(node, JobSettings.from_env(environ))
        if ended.exit_code:
            # In the words of a worker's last line, by which a launcher tells causes from effects.
            name = f"{JobAborted.__module__}.{JobAborted.__qualname__}"
            sys.stderr.write(f"{name}: {ended.text}\n")
        raise SystemExit(ended.exit_code)


def _role(environ: Mapping[str, str]) -> object:
    return read_fields(NodeSettings, translate(environ)).get("role", Role.WORKER)


@contextlib.contextmanager
def _patient() -> Iterator[None]:
    """Let the first SIGINT pass; outside of the main thread there are none."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)

    def wait_for_the_workers(_signum: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, wait_for_the_workers)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _embedded(kind: str, job: JobSettings, options: DistOptions) -> DistStore:
    cluster = EmbeddedCluster(embedded_config(job), job.importable_optimizers)
    session = Session(
        cluster.client(0),
        start_timeout_s=job.start_timeout_s,
        exit_timeout_s=job.exit_timeout_s,
        after=lambda: cluster.join(job.exit_timeout_s),
    )
    return session.store(kind, options)
