from bireme.horovod.runner.elastic.worker import HostUpdateResult, WorkerNotificationManager


class Listener:
    def __init__(self):
        self.heard = []

    def on_hosts_updated(self, timestamp, update_res):
        self.heard.append((timestamp, update_res))


def test_listeners_hear_until_they_are_removed():
    manager, first, second = WorkerNotificationManager(), Listener(), Listener()
    manager.init()
    manager.register_listener(first)
    manager.register_listener(second)
    manager.handle_hosts_updated(1, HostUpdateResult.added)
    manager.remove_listener(first)
    manager.handle_hosts_updated(2, HostUpdateResult.removed)
    assert first.heard == [(1, HostUpdateResult.added)]
    assert [timestamp for timestamp, _ in second.heard] == [1, 2]


def test_changes_add_up():
    assert HostUpdateResult.added | HostUpdateResult.removed == HostUpdateResult.mixed
    assert not HostUpdateResult.no_update
