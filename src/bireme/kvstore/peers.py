"""The engine that this process's ``allreduce`` stores share. Called by the factory."""

import socket
import threading
from collections.abc import Mapping

from bireme.collective.assembly import Assembly
from bireme.collective.base import Collectives
from bireme.errors import ConfigError
from bireme.kvstore.allreduce import AllreduceStore
from bireme.settings.ranks import RankSettings

__all__ = ("ALLREDUCE_TYPES", "Peers")

ALLREDUCE_TYPES = ("allreduce", "horovod")


class Peers:
    """Starts the engine with the first store and closes it with the last one.

    Example:
        >>> store = Peers().create("allreduce", {}, {})
        >>> store.type, store.num_workers
        ('allreduce', 1)
        >>> store.close()
    """

    def __init__(self) -> None:
        self._assembly = Assembly("kvstore")
        self._lock = threading.Lock()
        self._collectives: Collectives | None = None
        self._num_open = 0
        self._num_made = 0

    def create(
        self, name: str, env: Mapping[str, str], options: Mapping[str, object]
    ) -> AllreduceStore:
        """Return a new store; every worker calls this, in the same order.

        Args:
            name: ``allreduce`` or ``horovod``.
            env: What the launcher said.
            options: There are none.

        Raises:
            ConfigError: There are options, or the launcher's numbers contradict each other.
            CollectiveError: The other workers did not come.
        """
        if options:
            raise ConfigError(f"a {name!r} store takes no options, got {', '.join(options)}")
        with self._lock:
            if self._collectives is None:
                place = RankSettings.from_env(env)
                self._collectives = self._assembly.start(place, env, socket.gethostname())
                self._num_made = 0
            self._num_open += 1
            self._num_made += 1
            return _Shared(name, self._collectives, self._num_made, self)

    def leave(self) -> None:
        """Note that a store has closed."""
        with self._lock:
            self._num_open -= 1
            if not self._num_open and self._collectives is not None:
                collectives, self._collectives = self._collectives, None
                collectives.close()


class _Shared(AllreduceStore):
    """A store that gives its engine back."""

    def __init__(self, name: str, collectives: Collectives, number: int, peers: Peers) -> None:
        super().__init__(name, collectives, number)
        self._peers = peers

    def close(self) -> None:
        """Leave the store and free what it holds; a second call does nothing."""
        was_open = not self._holding.is_closed
        super().close()
        if was_open:
            self._peers.leave()
