"""A process's membership of a job, which all its distributed stores share."""

import atexit
import os
import sys
from collections.abc import Callable

from bireme.errors import BiremeError, StateError
from bireme.kvstore.dist.exits import ExitWatch
from bireme.kvstore.dist.options import DIST_TYPES, DistOptions, dist_options
from bireme.kvstore.dist.store import NUMBERS_OF_STORE, DistStore
from bireme.kvstore.reduce import DeviceReducer, HostReducer
from bireme.node.worker import WorkerClient

__all__ = ("Session",)


class Session:
    """Joins a job as a worker, makes stores, and leaves when the last of them is closed.

    Args:
        client: Not yet ready.
        start_timeout_s: How long to wait for the rest of the job.
        exit_timeout_s: Limit of the farewell.
        after: Called once after the worker has left.

    Guarantees:
        A process that ends without closing its stores leaves all the same: in good order when the
        script came to its end or to ``sys.exit(0)``, as a failure when an exception or another exit
        status ended it. A process forked from it
        is no part of the job, and its end changes nothing.
    """

    def __init__(
        self,
        client: WorkerClient,
        *,
        start_timeout_s: float,
        exit_timeout_s: float,
        after: Callable[[], None] = lambda: None,
    ) -> None:
        self._client = client
        self._exit_timeout_s = exit_timeout_s
        self._after = after
        self._num_made = 0
        self._num_open = 0
        self.ended = False
        self._process = os.getpid()
        self._start = client.ready(start_timeout_s)
        self._watch = ExitWatch()
        atexit.register(self._at_exit)

    def store(self, kind: str, options: DistOptions | None = None) -> DistStore:
        """Make a store; its number is its place in the order of creation.

        Args:
            kind: A type of :data:`~bireme.kvstore.dist.options.DIST_TYPES`.
            options: As its caller wished; the type's own by default, and no staleness.

        Raises:
            StateError: The process has left the job already, or was forked from its worker.
        """
        if os.getpid() != self._process:
            raise StateError(
                f"this process was forked from the worker, process {self._process}, and is no part "
                "of the job; create stores there only"
            )
        if self.ended:
            raise StateError(
                "this process has left the job, since its last store was closed; keep one open "
                "for as long as the script needs any"
            )
        _, on_devices = DIST_TYPES[kind]
        if options is None:
            options = dist_options(kind, {}, staleness=0)
        host = HostReducer()
        store = DistStore(
            kind,
            self._num_made * NUMBERS_OF_STORE,
            self._client,
            self._start,
            consistency=options.consistency(kind),
            bank=DeviceReducer(host) if on_devices else host,
            on_close=self._store_closed,
            options=options,
        )
        self._num_made += 1
        self._num_open += 1
        return store

    def _store_closed(self) -> None:
        self._num_open -= 1
        if self._num_open == 0:
            self._leave("")

    def _leave(self, reason: str) -> None:
        if self.ended or os.getpid() != self._process:
            return
        self.ended = True
        atexit.unregister(self._at_exit)
        self._watch.stop()
        try:
            self._client.leave(self._exit_timeout_s, reason)
        finally:
            self._after()

    def _at_exit(self) -> None:
        if os.getpid() != self._process:
            return
        failure = self._watch.failure()
        try:
            if not failure:
                self._client.flush()
            self._leave(failure)
        except BiremeError as error:
            # Too late to raise: the interpreter is on its way out, and its status is settled.
            sys.stderr.write(f"bireme: while leaving the job: {error}\n")
