"""A trainer on any number of replicas does what plain torch does on the whole batch."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from bireme.train.trainer import Trainer

OPTIMIZERS = {
    "sgd": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9, weight_decay=1e-3),
    "nesterov": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.5, nesterov=True),
    "adam": lambda params: torch.optim.Adam(params, lr=0.01, eps=1e-3),
    "amsgrad": lambda params: torch.optim.AdamW(params, lr=0.01, eps=1e-3, amsgrad=True),
    "adagrad": lambda params: torch.optim.Adagrad(params, lr=0.05, eps=1e-3),
    "rmsprop": lambda params: torch.optim.RMSprop(params, lr=0.01, eps=1e-3, centered=True),
    "adadelta": lambda params: torch.optim.Adadelta(params, lr=1.0, eps=1e-3),
}


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Net(nn.Module):
    """A small perceptron; may tie two layers, and may have a layer that is never used."""

    def __init__(self, width, *, tied, unused):
        super().__init__()
        self.first = nn.Linear(3, width)
        self.second = nn.Linear(width, width)
        self.third = nn.Linear(width, width)
        self.head = nn.Linear(width, 2)
        if tied:
            self.third.weight = self.second.weight
        if unused:
            self.spare = nn.Linear(width, 1)

    def forward(self, x):
        return self.head(self.third(self.second(self.first(x).tanh()).tanh()).tanh())


def make_net(seed, width, tied, unused, frozen):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = Net(width, tied=tied, unused=unused).double()
    net.first.bias.requires_grad_(not frozen)
    return net


def assert_close(replicas, plain):
    for replica in replicas:
        for (name, ours), theirs in zip(
            replica.named_parameters(), plain.parameters(), strict=True
        ):
            torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-9, msg=name)


cases = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 1000),
        "width": st.integers(1, 5),
        "tied": st.booleans(),
        "unused": st.booleans(),
        "frozen": st.booleans(),
    }
)


@settings(max_examples=60, deadline=None)
@given(
    case=cases,
    optimizer=st.sampled_from(sorted(OPTIMIZERS)),
    on_store=st.sampled_from([False, True, None]),
    kvstore=st.sampled_from(["local", "device"]),
    batches=st.lists(st.lists(st.integers(0, 5), min_size=4, max_size=4), min_size=10, max_size=10),
    num_replicas=st.integers(1, 4),
)
@pytest.mark.slow
def test_ten_steps_on_replicas_equal_ten_steps_on_the_whole_batch(
    case, optimizer, on_store, kvstore, batches, num_replicas
):
    plain = make_net(**case)
    replicas = [copy.deepcopy(plain) for _ in range(num_replicas)]
    reference = OPTIMIZERS[optimizer](plain.parameters())
    trainer = Trainer(
        replicas,
        OPTIMIZERS[optimizer](replicas[0].parameters()),
        kvstore,
        update_on_kvstore=on_store,
    )
    draws = torch.Generator().manual_seed(case["seed"])
    for batch in batches:
        sizes = batch[:num_replicas]
        if not any(sizes):
            sizes[0] = 1
        x = torch.randn(sum(sizes), 3, generator=draws, dtype=torch.float64)
        y = torch.randn(sum(sizes), 2, generator=draws, dtype=torch.float64)
        reference.zero_grad()
        nn.functional.mse_loss(plain(x), y).backward()
        reference.step()
        trainer.zero_grad()
        parts = zip(replicas, x.split(sizes), y.split(sizes), strict=True)
        for replica, part_x, part_y in parts:
            if len(part_x):
                nn.functional.mse_loss(replica(part_x), part_y).backward()
        trainer.step(num_samples=sizes)
    assert_close(replicas, plain)


@settings(max_examples=20, deadline=None)
@given(case=cases, optimizer=st.sampled_from(sorted(OPTIMIZERS)))
def test_one_replica_is_plain_torch_bit_for_bit(case, optimizer):
    plain = make_net(**case)
    model = copy.deepcopy(plain)
    reference = OPTIMIZERS[optimizer](plain.parameters())
    trainer = Trainer(model, OPTIMIZERS[optimizer](model.parameters()))
    assert trainer.kvstore is None
    for net, stepper in ((plain, reference), (model, trainer)):
        draws = torch.Generator().manual_seed(1)
        for _ in range(5):
            x = torch.randn(4, 3, generator=draws, dtype=torch.float64)
            stepper.zero_grad()
            net(x).square().mean().backward()
            stepper.step()
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1000), line_search=st.sampled_from([None, "strong_wolfe"]))
def test_lbfgs_with_a_closure_over_two_replicas_equals_plain_lbfgs(seed, line_search):
    plain = make_net(seed, 3, tied=False, unused=False, frozen=False)
    replicas = [copy.deepcopy(plain) for _ in range(2)]
    draws = torch.Generator().manual_seed(seed)
    x = torch.randn(5, 3, generator=draws, dtype=torch.float64)
    y = torch.randn(5, 2, generator=draws, dtype=torch.float64)

    def make(params):
        return torch.optim.LBFGS(params, lr=0.5, max_iter=4, line_search_fn=line_search)

    reference = make(plain.parameters())
    trainer = Trainer(replicas, make(replicas[0].parameters()))

    def plain_closure():
        reference.zero_grad()
        loss = nn.functional.mse_loss(plain(x), y)
        loss.backward()
        return loss.detach()

    def closure():
        trainer.zero_grad()
        total = 0.0
        for replica, rows in zip(replicas, [slice(0, 4), slice(4, 5)], strict=True):
            loss = nn.functional.mse_loss(replica(x[rows]), y[rows])
            loss.backward()
            total += loss.item() * (rows.stop - rows.start) / 5
        return torch.tensor(total, dtype=torch.float64)

    for _ in range(3):
        expected = reference.step(plain_closure)
        assert float(trainer.step(closure, num_samples=[4, 1])) == pytest.approx(float(expected))
    for replica in replicas:
        for ours, theirs in zip(replica.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-8)
