import pytest

from bireme.horovod.common.elastic import ObjectState, State, notification_manager, run_fn
from bireme.horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from bireme.horovod.runner.elastic.worker import HostUpdateResult


def kept(**values):
    return ObjectState(bcast_object=lambda value: value, get_rank=lambda: 0, **values)


def test_values_are_attributes_that_are_kept_as_they_were():
    state = kept(epoch=1, seen=[1])
    state.epoch = 2
    state.seen.append(2)
    state.restore()
    assert (state.epoch, state.seen) == (1, [1])
    state.seen.append(2)
    state.commit()
    state.seen.append(3)
    state.restore()
    assert state.seen == [1, 2]


def test_synchronised_values_are_rank_0s():
    state = ObjectState(bcast_object=lambda _: {"epoch": 7}, get_rank=lambda: 1, epoch=1)
    state.sync()
    assert state.epoch == 7
    kept().sync()


@pytest.mark.parametrize(
    ("changes", "skip_sync"),
    [
        ([HostUpdateResult.removed], True),
        ([HostUpdateResult.added], False),
        ([HostUpdateResult.removed, HostUpdateResult.added], False),
    ],
)
def test_news_of_hosts_interrupt_at_the_next_commit_once(changes, skip_sync):
    state = kept(epoch=1)
    for number, change in enumerate(changes):
        state.on_hosts_updated(number + 1, change)
    with pytest.raises(HostsUpdatedInterrupt) as caught:
        state.commit()
    assert caught.value.skip_sync is skip_sync
    state.commit()
    state.on_hosts_updated(1, HostUpdateResult.added)
    state.commit()


def test_the_loop_tells_the_state_of_news_while_it_runs():
    state, resets, syncs = kept(epoch=0), [], []
    state.sync = lambda: syncs.append(state.epoch)

    def train(state):
        state.epoch += 1
        if state.epoch == 1:
            notification_manager.handle_hosts_updated(5, HostUpdateResult.removed)
        state.check_host_updates()
        if state.epoch == 2:
            state.save()
            raise HorovodInternalError("lost")
        return state.epoch

    assert run_fn(train, lambda: resets.append(state.epoch))(state) == 3
    # Only hosts were removed: no need to share the state; after an error there is.
    assert syncs == [0, 2]
    assert resets == [1, 2]
    notification_manager.handle_hosts_updated(9, HostUpdateResult.added)
    state.check_host_updates()


def test_other_errors_go_through():
    def train(_state):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_fn(train, lambda: None)(kept())


def test_a_state_of_ones_own_must_say_how():
    state = State(bcast_object=lambda value: value, get_rank=lambda: 0)
    for method in (state.save, state.restore, state.sync):
        with pytest.raises(NotImplementedError):
            method()
    assert state.reset() is None
