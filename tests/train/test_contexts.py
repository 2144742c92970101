import contextlib
import dataclasses
import threading

import pytest
import torch
from torch import nn

import bireme
from bireme.errors import ConfigError
from bireme.train.contexts import Replicas, call_net, contexts_of

CPUS = [bireme.cpu(index) for index in range(3)]


def replicas_of(net=None, loss=None, num=2):
    return Replicas(net if net is not None else nn.Linear(2, 1), loss, CPUS[:num])


def test_the_first_context_keeps_the_net_and_the_others_copy_it():
    net = nn.Linear(2, 1)
    nets = [replica.net for replica in replicas_of(net, num=3)]
    assert nets[0] is net
    assert len({id(each) for each in nets}) == 3
    assert len({each.weight.data_ptr() for each in nets}) == 3
    assert all(torch.equal(each.weight, net.weight) for each in nets)


def test_tied_parameters_stay_tied_in_the_copies():
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    net[1].weight = net[0].weight
    copied = list(replicas_of(net))[1].net
    assert copied[1].weight is copied[0].weight


def test_contexts_compute_at_the_same_time():
    # Each context waits inside the net until the other is there too.
    barrier = threading.Barrier(2, timeout=30)

    class Meeting(nn.Module):
        def forward(self, x):
            barrier.wait()
            return x

        def __deepcopy__(self, memo):
            return Meeting()

    replicas = replicas_of(Meeting())
    for _ in range(3):
        done = replicas.run(lambda replica, x: replica.net(x).sum(), [torch.ones(2), torch.ones(3)])
        assert [each.value.item() for each in done] == [2, 3]


def test_each_context_has_one_thread_for_good_and_one_alone_has_none():
    replicas = replicas_of()
    runs = [
        replicas.run(lambda replica, x: threading.get_ident(), [torch.ones(1)] * 2)
        for _ in range(3)
    ]
    names = {tuple(each.value for each in done) for done in runs}
    assert len(names) == 1
    (pair,) = names
    assert len({*pair, threading.get_ident()}) == 3
    alone = replicas_of(num=1).run(lambda replica, x: threading.get_ident(), [torch.ones(1)])
    assert alone[0].value == threading.get_ident()


def test_threads_end_with_the_replicas():
    replicas = replicas_of()
    (thread,) = {
        each.value
        for each in replicas.run(
            lambda replica, x: threading.current_thread(), [torch.ones(1), None]
        )
        if each is not None
    }
    assert thread.is_alive()
    del replicas
    thread.join(timeout=30)
    assert not thread.is_alive()


def test_cpu_contexts_share_the_callers_cores():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(4)
        replicas = replicas_of()
        done = replicas.run(lambda replica, x: torch.get_num_threads(), [torch.ones(1)] * 2)
        assert [each.value for each in done] == [2, 2]
        assert torch.get_num_threads() == 4
        # Threads that others start later are not affected either.
        seen = []
        thread = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
        thread.start()
        thread.join()
        assert seen == [4]
        torch.set_num_threads(1)
        lone = replicas_of().run(lambda replica, x: torch.get_num_threads(), [torch.ones(1)] * 2)
        assert [each.value for each in lone] == [1, 1]
    finally:
        torch.set_num_threads(before)


def test_skipped_contexts_are_skipped():
    done = replicas_of(num=3).run(lambda replica, x: x.item(), [None, torch.tensor(5), None])
    assert done[0] is None
    assert done[1].value == 5
    assert done[2] is None


@pytest.mark.parametrize("num", [1, 2])
def test_an_error_names_its_context_and_leaves_everything_usable(num):
    replicas = replicas_of(num=num)

    def fail(replica, x):
        if replica.context == CPUS[num - 1]:
            raise KeyError("lost")
        return 1

    with pytest.raises(KeyError, match="lost") as caught:
        replicas.run(fail, [torch.ones(1)] * num)
    assert caught.value.__notes__ == [f"raised in context cpu({num - 1})"]
    done = replicas.run(lambda replica, x: 2, [torch.ones(1)] * num)
    assert [each.value for each in done] == [2] * num


def test_an_error_waits_for_the_others_to_finish():
    finished = threading.Event()
    started = threading.Event()

    def work(replica, x):
        if replica.context == CPUS[0]:
            assert started.wait(30)
            raise ValueError("first")
        started.set()
        x.sum().item()
        finished.set()

    with pytest.raises(ValueError, match="first"):
        replicas_of().run(work, [torch.ones(1), torch.ones(1000)])
    assert finished.is_set()


def test_modes_of_the_caller_go_along():
    replicas = replicas_of()

    def modes(replica, x):
        return torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")

    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        done = replicas.run(modes, [torch.ones(1)] * 2)
    assert [each.value for each in done] == [(False, True)] * 2
    done = replicas.run(modes, [torch.ones(1)] * 2)
    assert [each.value for each in done] == [(True, False)] * 2


def test_time_is_measured():
    done = replicas_of().run(lambda replica, x: x.sum(), [torch.ones(9)] * 2, measured=True)
    assert all(each.seconds > 0 for each in done)


class FakeStream:
    """Writes down who waits for whom, as CUDA streams would."""

    def __init__(self, name, story):
        self.name, self.story = name, story

    def wait_stream(self, other):
        self.story.append(f"{self.name} waits for {other.name}")

    def synchronize(self):
        self.story.append(f"{self.name} is waited for")


def test_streams_wait_for_the_caller_and_the_caller_for_them(monkeypatch):
    story = []
    caller, side = FakeStream("caller", story), FakeStream("side", story)
    replicas = replicas_of()
    first, second = replicas
    replicas._replicas = (dataclasses.replace(first, stream=side), second)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: caller)

    @contextlib.contextmanager
    def current(stream):
        story.append(f"{stream.name} is current")
        yield

    monkeypatch.setattr(torch.cuda, "stream", current)

    def work(replica, x):
        if replica.stream is side:
            story.append("net")

    replicas.run(work, [torch.ones(1)] * 2)
    expected = ["side waits for caller", "side is current", "net", "caller waits for side"]
    assert story == expected
    story.clear()
    replicas.run(work, [torch.ones(1)] * 2, measured=True)
    assert story == [*expected[:3], "side is waited for", expected[3]]


def test_a_loss_module_is_copied_with_its_buffers():
    loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0]))
    first, second = replicas_of(loss=loss)
    assert first.loss is loss
    assert torch.equal(second.loss.weight, loss.weight)
    assert second.loss.weight.data_ptr() != loss.weight.data_ptr()


def test_the_net_is_called_with_what_the_data_says():
    class Sum(nn.Module):
        def forward(self, x, y=0):
            return x + y

    assert call_net(Sum(), 1) == 1
    assert call_net(Sum(), (1, 2)) == 3
    assert call_net(Sum(), {"x": 1, "y": 3}) == 4


def test_contexts_can_be_written_in_many_ways():
    net = nn.Linear(1, 1)
    assert contexts_of(net, None) == [bireme.cpu(0)]
    assert contexts_of(net, "cpu(1)") == [bireme.cpu(1)]
    assert contexts_of(net, bireme.gpu(1)) == [bireme.gpu(1)]
    assert contexts_of(net, ["cpu(0)", torch.device("cuda:1")]) == [bireme.cpu(0), bireme.gpu(1)]
    with pytest.raises(ConfigError, match="empty"):
        contexts_of(net, [])


def test_what_cannot_work_is_refused_at_once():
    with pytest.raises(ConfigError, match="named twice"):
        Replicas(nn.Linear(1, 1), None, [CPUS[0], CPUS[0]])
    with pytest.raises(ConfigError, match=r"gpu\(99\) does not exist"):
        Replicas(nn.Linear(1, 1), None, [bireme.gpu(99)])
    with pytest.raises(ConfigError, match="run one batch"):
        replicas_of(nn.LazyLinear(1))
    with pytest.raises(ConfigError, match="must be callable"):
        replicas_of(loss="mse")
    with pytest.raises(ConfigError, match=r"pass an object: MSELoss\(\)"):
        replicas_of(loss=nn.MSELoss)
    with pytest.raises(ConfigError, match="make it a part of the net"):
        replicas_of(loss=nn.Linear(1, 1))
