"""How a process learns that the job's hosts have changed."""

import threading
from enum import IntFlag
from typing import Protocol

__all__ = ("HostUpdateResult", "WorkerNotificationManager")


class HostUpdateResult(IntFlag):
    """What has happened to the hosts."""

    no_update = 0
    removed = 1
    added = 2
    mixed = 3


class _Listener(Protocol):
    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Take note."""


class WorkerNotificationManager:
    """Passes news of hosts on to the states of this process.

    Membership of a job is fixed so far: nobody sends news but tests and scripts of users.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: list[_Listener] = []

    def init(self) -> None:
        """Do nothing: there is nobody to listen to."""

    def register_listener(self, listener: _Listener) -> None:
        """Tell ``listener`` from now on."""
        with self._lock:
            self._listeners.append(listener)

    def remove_listener(self, listener: _Listener) -> None:
        """Tell ``listener`` no longer."""
        with self._lock:
            self._listeners = [each for each in self._listeners if each is not listener]

    def handle_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Tell all listeners that the hosts have changed."""
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            listener.on_hosts_updated(timestamp, update_res)
