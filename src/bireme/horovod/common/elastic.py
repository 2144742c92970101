"""State that survives failures, for any framework, and the loop around it."""

import copy
import functools
import queue
from collections.abc import Callable, Iterable
from typing import Any

from bireme.horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from bireme.horovod.runner.elastic.worker import HostUpdateResult, WorkerNotificationManager

__all__ = ("ObjectState", "State", "notification_manager", "run_fn")

notification_manager = WorkerNotificationManager()
"""Tells states of this process about changes of hosts."""


class State:
    """What a training run must remember.

    Args:
        bcast_object: Returns rank 0's object everywhere.
        get_rank: Returns this process's rank.
    """

    def __init__(
        self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int], **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._host_messages: queue.SimpleQueue[tuple[float, int]] = queue.SimpleQueue()
        self._last_updated_timestamp: float = 0
        self._reset_callbacks: list[Callable[[], Any]] = []

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], Any]]) -> None:
        """Have functions called after the job has changed, such as one that sets learning rates."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Begin anew after the job has changed; called by the loop."""
        self._host_messages = queue.SimpleQueue()
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Take note that hosts have come or gone; any thread may tell."""
        self._host_messages.put((timestamp, update_res))

    def commit(self) -> None:
        """Keep everything as it is now, and look whether the hosts have changed.

        Raises:
            HostsUpdatedInterrupt: They have; the loop deals with it.
        """
        self.save()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Look whether the hosts have changed; every process does so at the same place.

        Raises:
            HostsUpdatedInterrupt: They have, on every process alike.
        """
        before = latest = self._last_updated_timestamp
        change = HostUpdateResult.no_update
        while not self._host_messages.empty():
            timestamp, update = self._host_messages.get()
            if timestamp > latest:
                latest = timestamp
                change |= HostUpdateResult(update)
        before, self._last_updated_timestamp, change = self._bcast_object((before, latest, change))
        if self._last_updated_timestamp > before:
            raise HostsUpdatedInterrupt(change == HostUpdateResult.removed)

    def save(self) -> None:
        """Keep everything as it is now."""
        raise NotImplementedError

    def restore(self) -> None:
        """Make everything as it was when it was last kept."""
        raise NotImplementedError

    def sync(self) -> None:
        """Make everything as it is on rank 0."""
        raise NotImplementedError

    def reset(self) -> None:
        """Do what has to be done between a change of the job and the next `sync`."""


class ObjectState(State):
    """Plain values, each an attribute.

    Args:
        bcast_object: Returns rank 0's object everywhere.
        get_rank: Returns this process's rank.
        kwargs: The values by name.
    """

    def __init__(
        self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int], **kwargs: Any
    ) -> None:
        self._saved_state = kwargs
        self._set_attrs()
        super().__init__(bcast_object=bcast_object, get_rank=get_rank)
        self._saved_state = copy.deepcopy(kwargs)

    def save(self) -> None:
        """Keep the values as they are now."""
        self._saved_state = {name: copy.deepcopy(getattr(self, name)) for name in self._saved_state}

    def restore(self) -> None:
        """Make the values as they were when they were last kept."""
        self._set_attrs()

    def sync(self) -> None:
        """Make the values as they were kept on rank 0."""
        if self._saved_state:
            self._saved_state = self._bcast_object(self._saved_state)
            self._set_attrs()

    def _set_attrs(self) -> None:
        for name, value in self._saved_state.items():
            setattr(self, name, copy.deepcopy(value))


def run_fn(func: Callable[..., Any], reset: Callable[[], None]) -> Callable[..., Any]:
    """Return ``func`` so that it starts again when an operation fails or hosts change.

    Args:
        func: Takes the state first.
        reset: Leaves the job and enters it again.
    """

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> Any:
        notification_manager.init()
        notification_manager.register_listener(state)
        skip_sync = False
        try:
            while True:
                try:
                    if not skip_sync:
                        state.sync()
                    return func(state, *args, **kwargs)
                except HorovodInternalError:
                    state.restore()
                    skip_sync = False
                except HostsUpdatedInterrupt as change:
                    skip_sync = change.skip_sync
                reset()
                state.on_reset()
        finally:
            notification_manager.remove_listener(state)

    return wrapper
