import copy

import pytest
import torch
from torch import nn

from bireme.errors import ConfigError, StateError
from bireme.train import amp
from bireme.train.lineup import Lineup
from bireme.train.trainer import Trainer

INF = float("inf")


def make(on_store=None, count=2, **options):
    nets = [nn.Linear(1, 1, bias=False) for _ in range(count)]
    nn.init.zeros_(nets[0].weight)
    optimizer = torch.optim.SGD(nets[0].parameters(), lr=1.0, momentum=0.5)
    return nets, Trainer(nets, optimizer, update_on_kvstore=on_store, **options)


def make_scaler(scale=4.0):
    return torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=1000)


def backward(scaler, nets, grads):
    for net, grad in zip(nets, grads, strict=True):
        scaler.scale(net(torch.full((1, 1), grad)).sum()).backward()


def weights(nets):
    return [net.weight.item() for net in nets]


@pytest.mark.parametrize("on_store", [True, False])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_scaler_steps_as_without_one(on_store, count):
    nets, trainer = make(on_store, count)
    scaler = make_scaler()
    grads = [1.0, 3.0, 5.0][:count]
    mean = sum(grads) / count
    for _ in range(2):
        trainer.zero_grad()
        backward(scaler, nets, grads)
        scaler.step(trainer)
        scaler.update()
    # Momentum 0.5: g, then g + g / 2.
    assert weights(nets) == [-2.5 * mean] * count
    assert scaler.get_scale() == 4.0


@pytest.mark.parametrize("on_store", [True, False])
@pytest.mark.parametrize("bad", [0, 1, 2])
@pytest.mark.parametrize("value", [INF, -INF, float("nan")])
@pytest.mark.parametrize("compression", [None, {"type": "2bit", "threshold": 0.5}])
def test_an_overflow_on_any_replica_skips_the_step_on_all(on_store, bad, value, compression):
    nets, trainer = make(on_store, 3, compression=compression)
    scaler = make_scaler()
    backward(scaler, nets, [0.75] * 3)
    scaler.step(trainer)
    scaler.update()
    before, state = weights(nets), copy.deepcopy(trainer.state_dict())
    for _ in range(2):
        trainer.zero_grad()
        grads = [1.0] * 3
        grads[bad] = value
        backward(scaler, nets, grads)
        scaler.step(trainer)
        scaler.update()
    assert weights(nets) == before
    assert str(trainer.state_dict()) == str(state)
    assert scaler.get_scale() == 1.0
    # What a compressor held back is intact: the same steps without the overflows agree.
    twins, twin = make(on_store, 3, compression=compression)
    other = make_scaler()
    backward(other, twins, [0.75] * 3)
    other.step(twin)
    other.update()
    for each, using, scale in ((nets, trainer, scaler), (twins, twin, other)):
        using.zero_grad()
        backward(scale, each, [0.25, 0.5, 0.75])
        scale.step(using)
        scale.update()
    assert weights(nets) == weights(twins) != before


@pytest.mark.parametrize("compression", [None, {"type": "2bit", "threshold": 0.5}])
def test_an_overflow_that_was_merged_by_hand(compression):
    nets, trainer = make(False, 2, compression=compression)
    scaler = make_scaler()
    backward(scaler, nets, [1.0, INF])
    trainer.allreduce_grads()
    scaler.unscale_(trainer)
    scaler.step(trainer)
    scaler.update()
    assert weights(nets) == [0.0, 0.0]
    assert scaler.get_scale() == 2.0
    trainer.zero_grad()
    backward(scaler, nets, [1.0, 1.0])
    scaler.step(trainer)
    # Half of each gradient is just the threshold.
    assert weights(nets) == [-1.0, -1.0]


def test_clipping_between_merge_and_step():
    nets, trainer = make(False)
    scaler = make_scaler()
    for step in range(1, 3):
        trainer.zero_grad()
        trainer.state.clear()
        backward(scaler, nets, [2.0, 6.0])
        trainer.allreduce_grads()
        scaler.unscale_(trainer)
        assert nn.utils.clip_grad_norm_(nets[0].parameters(), 1.0).item() == 4.0
        scaler.step(trainer)
        scaler.update()
        assert weights(nets) == pytest.approx([-step, -step])


@pytest.mark.parametrize("on_store", [True, False])
def test_unscaling_before_merging_is_refused(on_store):
    nets, trainer = make(on_store)
    scaler = make_scaler()
    backward(scaler, nets, [2.0, 6.0])
    scaler.unscale_(trainer)
    with pytest.raises(StateError, match="first replica only"):
        scaler.step(trainer)
    assert weights(nets) == [0.0, 0.0]
    if not on_store:
        trainer.allreduce_grads()
        with pytest.raises(StateError, match="first replica only"):
            scaler.step(trainer)
    # The refusal leaves nothing behind that would disturb a later step.
    trainer.zero_grad()
    scaler.update()
    backward(scaler, nets, [2.0, 6.0])
    scaler.step(trainer)
    assert weights(nets) == [-4.0, -4.0]


def test_compressing_scaled_gradients_is_refused():
    nets, trainer = make(False, compression={"type": "2bit", "threshold": 0.5})
    scaler = make_scaler()
    backward(scaler, nets, [2.0, 6.0])
    trainer.allreduce_grads()
    with pytest.raises(StateError, match="compressed while they were scaled"):
        scaler.step(trainer)
    assert weights(nets) == [0.0, 0.0]


@pytest.mark.parametrize("on_store", [True, False])
def test_one_replica_in_a_store_may_be_clipped(on_store):
    (net,) = scalar = [nn.Linear(1, 1, bias=False)]
    nn.init.zeros_(net.weight)
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    trainer = Trainer(
        net, optimizer, update_on_kvstore=on_store, compression={"type": "2bit", "threshold": 0.5}
    )
    scaler = make_scaler()
    backward(scaler, scalar, [8.0])
    scaler.unscale_(trainer)
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    scaler.step(trainer)
    assert weights(scalar) == [-0.5]


def test_a_fused_optimizer_gets_scale_and_overflow():
    results = []
    for wrap in (False, True):
        torch.manual_seed(0)
        net = nn.Linear(3, 1)
        adam = torch.optim.Adam(net.parameters(), lr=0.1, fused=True)
        stepper = Trainer(net, adam) if wrap else adam
        scaler = make_scaler()
        for value in (1.0, INF, 2.0):
            stepper.zero_grad()
            scaler.scale(net(torch.full((2, 3), value)).sum()).backward()
            scaler.step(stepper)
            scaler.update()
        results.append((net.weight.detach().clone(), scaler.get_scale()))
        assert not hasattr(adam, "found_inf")
    assert torch.equal(results[0][0], results[1][0])
    assert results[0][1] == results[1][1] == 2.0


@pytest.mark.parametrize("on_store", [True, False])
def test_only_a_later_replica_has_gradients(on_store):
    nets, trainer = make(on_store)
    scaler = make_scaler()
    scaler.scale(nets[1](torch.ones(1, 1)).sum()).backward()
    scaler.step(trainer, num_samples=[0, 5])
    scaler.update()
    assert weights(nets) == [-1.0, -1.0]


@pytest.mark.parametrize("on_store", [True, False])
def test_sparse_gradients(on_store):
    nets = [nn.Embedding(4, 2, sparse=True) for _ in range(2)]
    nn.init.zeros_(nets[0].weight)
    optimizer = torch.optim.SGD(nets[0].parameters(), lr=1.0)
    trainer = Trainer(nets, optimizer, update_on_kvstore=on_store)
    scaler = make_scaler()
    for value in (1.0, INF):
        trainer.zero_grad()
        for net, ids in zip(nets, [[1, 1], [2, 3]], strict=True):
            scaler.scale((net(torch.tensor(ids)) * value).sum()).backward()
        scaler.step(trainer)
        scaler.update()
    for net in nets:
        assert net.weight[:, 0].tolist() == [0.0, -1.0, -0.5, -0.5]
    assert scaler.get_scale() == 2.0


def test_autocast_and_a_disabled_scaler():
    nets, trainer = make()
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    for net in nets:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = net(torch.ones(1, 1)).sum()
        scaler.scale(loss).backward()
    scaler.step(trainer, num_samples=[1, 3])
    assert weights(nets) == [-1.0, -1.0]


def test_a_closure_with_a_scaler():
    nets, trainer = make()
    scaler = make_scaler()
    backward(scaler, nets, [1.0, 1.0])
    with pytest.raises(ConfigError, match="no closure"):
        scaler.step(trainer, lambda: 0.0)


def test_float16_gradients_are_refused():
    nets = [nn.Linear(1, 1, bias=False).half() for _ in range(2)]
    trainer = Trainer(nets, torch.optim.SGD(nets[0].parameters(), lr=1.0))
    scaler = make_scaler()
    backward_half = torch.ones(1, 1, dtype=torch.float16)
    for net in nets:
        scaler.scale(net(backward_half).sum()).backward()
    with pytest.raises(ConfigError, match="float16"):
        scaler.step(trainer)


def test_is_finite_looks_at_every_type_and_at_rows():
    fine = [torch.tensor([1e300], dtype=torch.float64), torch.ones(2), torch.empty(0)]
    assert amp.is_finite(fine)
    assert amp.is_finite([])
    rows = torch.sparse_coo_tensor([[1]], [[INF]], (3, 1), check_invariants=True)
    assert not amp.is_finite([*fine, rows])
    assert not amp.is_finite([torch.tensor([1.0, float("nan")], dtype=torch.bfloat16)])


def test_unscaling_divides_the_gradients_of_all_replicas():
    lineup = Lineup([nn.Linear(1, 1) for _ in range(2)])
    lineup.params[0][0].grad = torch.full((1, 1), 8.0)
    lineup.params[1][1].grad = torch.full((1,), 4.0)
    amp.unscale(lineup, [0, 1], torch.tensor(4.0))
    assert lineup.params[0][0].grad.item() == 2.0
    assert lineup.params[1][1].grad.item() == 1.0


def test_an_overflow_elsewhere_in_the_job_is_shared():
    lineup = Lineup(nn.Linear(1, 1))
    lineup.params[0][0].grad = torch.ones(1, 1)
    sent = []
    amp.share_overflow(lineup, [0, 1], lambda here: sent.append(here) or 0.0)
    assert lineup.params[0][0].grad.item() == 1.0
    amp.share_overflow(lineup, [0, 1], lambda here: here + 1.0)
    assert lineup.params[0][0].grad.isnan().all()
    amp.share_overflow(lineup, [0, 1], lambda here: sent.append(here) or here)
    assert sent == [0.0, 1.0]
