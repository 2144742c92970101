import copy
import threading

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, TensorDataset

import bireme
from bireme import Module
from bireme.errors import ConfigError, DataError, StateError, UnsupportedError


class Small(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def cpus(num):
    return [bireme.cpu(index) for index in range(num)]


def random_net(generator, num_layers, with_conv):
    torch.manual_seed(generator)
    width = 5
    layers = [nn.Conv1d(1, 3, 3, padding=1), nn.Flatten()] if with_conv else [nn.Flatten()]
    inputs = 12 if with_conv else 4
    for _ in range(num_layers):
        layers += [nn.Linear(inputs, width), nn.Tanh()]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, 3)).double()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 10_000),
    num_layers=st.integers(0, 3),
    with_conv=st.booleans(),
    loads=st.none()
    | st.lists(st.integers(0, 5), min_size=1, max_size=4).filter(any)
    | st.just("auto"),
    batch_sizes=st.lists(st.integers(1, 9), min_size=10, max_size=10),
    kvstore=st.sampled_from(["local", "device"]),
    optimizer=st.sampled_from(
        [
            ("sgd", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
            # An eps that rounding errors of gradients near 0 cannot reach.
            ("adam", {"lr": 0.01, "eps": 1e-3}),
        ]
    ),
)
def test_ten_steps_equal_one_device_on_the_whole_batch(
    seed, num_layers, with_conv, loads, batch_sizes, kvstore, optimizer
):
    net = random_net(seed, num_layers, with_conv)
    alone = copy.deepcopy(net)
    num = len(loads) if isinstance(loads, list) else 1 + seed % 4
    data = [
        (torch.randn(size, 1, 4, dtype=torch.float64), torch.randint(3, (size,)))
        for size in batch_sizes
    ]
    name, params = optimizer
    module = Module(net, functional.cross_entropy, cpus(num), loads)
    module.fit(
        data,
        num_epoch=1,
        kvstore=kvstore,
        optimizer=name,
        optimizer_params=params,
        eval_metric=None,
    )
    plain = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[name](alone.parameters(), **params)
    for x, y in data:
        plain.zero_grad()
        functional.cross_entropy(alone(x), y).backward()
        plain.step()
    for ours, expected in zip(net.parameters(), alone.parameters(), strict=True):
        assert torch.allclose(ours, expected, rtol=1e-6, atol=1e-6)
    assert module.net is net


def test_contexts_meet_inside_forward():
    barrier = threading.Barrier(2, timeout=30)

    class Meeting(nn.Linear):
        def forward(self, x):
            barrier.wait()
            return super().forward(x)

    module = Module(Meeting(2, 1), functional.mse_loss, cpus(2))
    data = [(torch.ones(4, 2), torch.ones(4, 1))]
    module.fit(data, data, "mse", num_epoch=2)


def test_one_context_is_plain_torch_bit_for_bit():
    torch.manual_seed(0)
    net = Small()
    alone = copy.deepcopy(net)
    data = [(torch.randn(5, 3), torch.randint(2, (5,))) for _ in range(4)]
    Module(net, functional.cross_entropy).fit(
        data, num_epoch=2, optimizer="adam", optimizer_params={"lr": 0.01}
    )
    plain = torch.optim.Adam(alone.parameters(), lr=0.01)
    for x, y in data * 2:
        plain.zero_grad()
        functional.cross_entropy(alone(x), y).backward()
        plain.step()
    for ours, expected in zip(net.parameters(), alone.parameters(), strict=True):
        assert torch.equal(ours, expected)


def test_all_replicas_are_equal_after_a_step():
    module = Module(Small(), functional.cross_entropy, cpus(3), [1, 2, 3])
    module.fit([(torch.randn(2, 3), torch.tensor([0, 1]))], num_epoch=1)
    nets = module._computing.nets
    for other in nets[1:]:
        for ours, theirs in zip(nets[0].parameters(), other.parameters(), strict=True):
            assert torch.equal(ours, theirs)


def test_batches_may_be_dicts_arrays_and_nested():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(2, 1)

        def forward(self, x, scale):
            return self.linear(x) * scale

    x, scale, label = np.ones((5, 2), np.float32), torch.ones(5, 1), np.zeros((5, 1), np.float32)
    batches = [
        {"data": {"x": x, "scale": scale}, "label": label},
        ((x, scale), label),
        ([x, scale], label),
    ]
    module = Module(Two(), functional.mse_loss, cpus(2))
    module.fit(batches, batches, "mse", num_epoch=1)
    assert module.predict([batch for batch in batches[1:]]).shape == (10, 1)
    assert module.predict(batches[:1]).shape == (5, 1)


def test_score_and_predict_take_the_modules_contexts_and_loss():
    module = Module(nn.Identity(), functional.cross_entropy, cpus(2), [2, 1])
    x, y = torch.randn(11, 3), torch.randint(3, (11,))
    loader = DataLoader(TensorDataset(x, y), 4)
    assert torch.equal(module.predict(loader), x)
    assert torch.equal(module(x), x)
    assert module.score(loader) == {"accuracy": (x.argmax(1) == y).sum().item() / 11}
    expected = functional.cross_entropy(x, y).item()
    assert module.score(loader, "loss")["loss"] == pytest.approx(expected)


def norm_net():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))


def test_running_statistics_are_averaged_by_samples():
    module = Module(norm_net(), functional.mse_loss, cpus(3), [2, 1, 0])
    module.init_optimizer()
    module.forward_backward((torch.randn(9, 2), torch.randn(9, 1)))
    norms = [net[1] for net in module._computing.nets]
    means = [norm.running_mean.clone() for norm in norms]
    assert not torch.equal(means[0], means[1])
    module.sync_buffers()
    for norm in norms:
        # The third context saw no samples, so it counts for nothing.
        assert torch.allclose(norm.running_mean, (2 * means[0] + means[1]) / 3)
        assert norm.num_batches_tracked == 1
    module.sync_buffers()
    assert torch.allclose(norms[2].running_mean, (2 * means[0] + means[1]) / 3)


def test_fit_brings_buffers_together_before_it_evaluates():
    seen = []

    def look(end):
        seen.append([net[1].running_var.tolist() for net in end.module._computing.nets])

    module = Module(norm_net(), functional.mse_loss, cpus(2), [3, 1])
    module.fit(
        [(torch.randn(8, 2), torch.randn(8, 1))],
        num_epoch=2,
        eval_metric="mse",
        epoch_end_callback=look,
    )
    assert all(first == second for first, second in seen)


@pytest.mark.parametrize("num", [1, 2])
def test_errors_name_the_context_and_change_nothing(num):
    class Picky(nn.Linear):
        def forward(self, x):
            if (x < 0).any():
                raise ArithmeticError("negative input")
            return super().forward(x)

    module = Module(Picky(1, 1), functional.mse_loss, cpus(num))
    x = torch.ones(4, 1)
    x[-1] = -1
    before = module.net.weight.detach().clone()
    with pytest.raises(ArithmeticError, match="negative input") as caught:
        module.fit([(x, x)], num_epoch=1)
    assert f"raised in context cpu({num - 1})" in caught.value.__notes__
    assert torch.equal(module.net.weight, before)
    with pytest.raises(StateError, match="no gradients to apply"):
        module.update()
    module.fit([(x.abs(), x.abs())], num_epoch=1, eval_metric="mse")
    assert not torch.equal(module.net.weight, before)


def test_auto_measures_and_shifts_work():
    waiting = threading.Event()

    class Slow(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(1, 1)

        def forward(self, x):
            # The time of a real wait; nothing is synchronised by it.
            if threading.current_thread().name.startswith("bireme-cpu(1)"):
                waiting.wait(0.002 * len(x))
            return self.linear(x)

    module = Module(Slow(), functional.mse_loss, cpus(2), "auto")
    assert module.shares == (0.5, 0.5)
    module.fit([(torch.ones(16, 1), torch.ones(16, 1))] * 12, num_epoch=1, eval_metric=None)
    assert module.shares[0] > 0.7
    assert sum(module.shares) == pytest.approx(1)


def test_training_by_hand():
    module = Module(nn.Linear(2, 1), functional.mse_loss, cpus(2))
    with pytest.raises(StateError, match="call fit or init_optimizer first"):
        module.forward_backward((torch.ones(2, 2), torch.ones(2, 1)))
    module.init_optimizer(optimizer_params={"lr": 0.1})
    losses = []
    for _ in range(30):
        losses.append(module.forward_backward((torch.ones(3, 2), torch.ones(3, 1))).loss.item())
        module.update()
    assert losses[-1] < 1e-3 * max(1, losses[0])
    with pytest.raises(StateError, match="no gradients"):
        module.update()
    with pytest.raises(ConfigError, match="no samples"):
        module.forward_backward((torch.ones(0, 2), torch.ones(0, 1)))


def test_compression_reaches_the_store():
    module = Module(
        nn.Linear(2, 1), functional.mse_loss, cpus(2), compression={"type": "2bit", "threshold": 1}
    )
    module.fit([(torch.ones(2, 2), torch.zeros(2, 1))], num_epoch=1, eval_metric=None)
    with pytest.raises(ConfigError, match="nothing"):
        Module(nn.Linear(2, 1), functional.mse_loss, compression={"type": "nothing"}).fit(
            [(torch.ones(2, 2), torch.zeros(2, 1))], num_epoch=1, eval_metric=None
        )


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"net": "net"}, ConfigError, "net must be a torch.nn.Module, got 'net'"),
        ({"loss": "ce"}, ConfigError, "loss must be callable"),
        ({"context": []}, ConfigError, "empty"),
        ({"context": ["cpu", "cpu(0)"]}, ConfigError, "named twice"),
        ({"context": "gpu(99)"}, ConfigError, r"gpu\(99\) does not exist"),
        ({"work_load_list": [1, 2]}, ConfigError, r"one number per context \(1\)"),
        ({"context": 2}, ConfigError, "or a list of them, got 2"),
        ({"work_load_list": 2}, ConfigError, r"one number per context \(1\), got 2"),
        ({"work_load_list": "even"}, ConfigError, "numbers or 'auto', got 'even'"),
        ({"work_load_list": [-1]}, ConfigError, "finite number >= 0, got -1"),
        ({"amp_dtype": torch.float16}, UnsupportedError, "bfloat16"),
    ],
)
def test_wrong_arguments_are_refused_at_once(arguments, error, message):
    with pytest.raises(error, match=message):
        Module(**({"net": nn.Linear(1, 1)} | arguments))


def test_a_module_shows_itself_and_is_not_copied():
    module = Module(Small(), context=cpus(2), work_load_list=[3, 1])
    assert repr(module) == "Module(Small, context=[cpu(0), cpu(1)], shares=(0.75, 0.25))"
    with pytest.raises(UnsupportedError, match="use save_checkpoint"):
        copy.deepcopy(module)


def test_an_unfinished_step_is_not_applied():
    module = Module(Small(), functional.cross_entropy, cpus(2))
    module.init_optimizer()
    module.forward_backward((torch.ones(4, 3), torch.zeros(4, dtype=torch.long)))
    with pytest.raises(ConfigError, match=r"batch\[0\]: 4, batch\[1\]: 3"):
        module.forward_backward((torch.ones(4, 3), torch.zeros(3, dtype=torch.long)))
    with pytest.raises(StateError, match="no gradients to apply"):
        module.update()


def test_training_without_a_loss_is_refused():
    module = Module(nn.Linear(1, 1))
    data = [(torch.ones(1, 1), torch.ones(1, 1))]
    with pytest.raises(ConfigError, match="has no loss; pass one"):
        module.fit(data, num_epoch=1)
    with pytest.raises(ConfigError, match="has no loss"):
        module.score(data, "loss")
    with pytest.raises(StateError, match="there is no trainer"):
        module.sync_buffers()


class Shuffled:
    """Data in another order each epoch, drawn from torch's own random numbers."""

    def __init__(self):
        generator = torch.Generator().manual_seed(5)
        self.x = torch.randn(24, 3, generator=generator)
        self.y = torch.randint(2, (24,), generator=generator)

    def __iter__(self):
        for part in torch.randperm(24).split(7):
            yield self.x[part], self.y[part]


def dropout_net():
    return nn.Sequential(
        nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 2)
    )


@pytest.mark.parametrize(
    ("optimizer", "params"),
    [("adamw", {"lr": 0.02}), ("sgd", {"lr": 0.1, "momentum": 0.9, "nesterov": True})],
)
def test_resuming_gives_the_uninterrupted_run_bit_for_bit(tmp_path, optimizer, params):
    settings_of_both = {
        "optimizer": optimizer,
        "optimizer_params": params,
        "lr_scheduler": lambda trainer: lr_scheduler.MultiStepLR(trainer, [2, 4], gamma=0.3),
    }

    def fit(module, **more):
        module.fit(Shuffled(), **settings_of_both, **more)

    torch.manual_seed(0)
    whole = Module(dropout_net(), functional.cross_entropy)
    fit(whole, num_epoch=6)

    torch.manual_seed(0)
    first = Module(dropout_net(), functional.cross_entropy)
    fit(first, num_epoch=3, epoch_end_callback=bireme.callbacks.do_checkpoint(tmp_path / "net"))
    torch.manual_seed(99)
    second = Module.load(tmp_path / "net", 3, net=dropout_net(), loss=functional.cross_entropy)
    fit(second, num_epoch=6)
    for (name, ours), expected in zip(
        second.net.state_dict().items(), whole.net.state_dict().values(), strict=True
    ):
        assert torch.equal(ours, expected), name


def test_resuming_on_several_contexts_goes_on_too(tmp_path):
    def module_with(net):
        return Module(net, functional.cross_entropy, cpus(2), [2, 1])

    data = [(torch.randn(7, 3), torch.randint(2, (7,))) for _ in range(3)]
    torch.manual_seed(0)
    net = Small()
    whole = module_with(copy.deepcopy(net))
    whole.fit(data, num_epoch=4, optimizer="adam")
    first = module_with(net)
    first.fit(data, num_epoch=2, optimizer="adam")
    first.save_checkpoint(tmp_path / "net", 2)
    second = Module.load(
        tmp_path / "net",
        2,
        Small(),
        loss=functional.cross_entropy,
        context=cpus(2),
        work_load_list=[2, 1],
    )
    second.fit(data, num_epoch=4)
    for ours, expected in zip(second.net.parameters(), whole.net.parameters(), strict=True):
        assert torch.equal(ours, expected)


def test_a_loaded_net_predicts_the_same(tmp_path):
    module = Module(Small())
    module.save_checkpoint(tmp_path / "net", 0)
    x = torch.randn(4, 3)
    loaded = Module.load(tmp_path / "net", 0, Small(), context=cpus(2))
    assert torch.equal(loaded.predict(x), module.predict(x))
    assert loaded.context == cpus(2)
    plain = Module(nn.Flatten())
    plain.save_checkpoint(tmp_path / "flat", 0)
    assert isinstance(Module.load(tmp_path / "flat", 0).net, nn.Flatten)


def test_loading_without_optimizer_states_starts_afresh(tmp_path):
    data = [(torch.randn(4, 3), torch.randint(2, (4,)))]
    module = Module(Small(), functional.cross_entropy)
    module.fit(data, num_epoch=2, optimizer="adam")
    module.save_checkpoint(tmp_path / "net", 2)
    fresh = Module.load(
        tmp_path / "net", 2, Small(), loss=functional.cross_entropy, load_optimizer_states=False
    )
    epochs = []
    fresh.fit(
        data, num_epoch=2, optimizer="sgd", epoch_end_callback=lambda end: epochs.append(end.epoch)
    )
    assert epochs == [0, 1]


def test_what_cannot_be_loaded_says_why(tmp_path):
    module = Module(Small())
    module.save_checkpoint(tmp_path / "net", 1)
    with pytest.raises(DataError, match=r"cannot read checkpoint .*net-0002.json"):
        Module.load(tmp_path / "net", 2, Small())
    with pytest.raises(DataError, match="does not fit Linear: it lacks 'bias'"):
        Module.load(tmp_path / "net", 1, nn.Linear(3, 4))
    with pytest.raises(ConfigError, match="got 3"):
        Module.load(tmp_path / "net", 1, 3)

    class Local(nn.Linear):
        pass

    Module(Local(1, 1)).save_checkpoint(tmp_path / "local", 0)
    with pytest.raises(ConfigError, match=r"cannot be imported .* pass it as net="):
        Module.load(tmp_path / "local", 0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_and_a_cpu_train_as_one_device():
    torch.manual_seed(0)
    net = Small().double()
    alone = copy.deepcopy(net)
    data = [(torch.randn(8, 3, dtype=torch.float64), torch.randint(2, (8,))) for _ in range(10)]
    module = Module(net, functional.cross_entropy, ["gpu(0)", "cpu(0)"], [5, 3])
    module.fit(data, num_epoch=1, optimizer_params={"lr": 0.1})
    plain = torch.optim.SGD(alone.parameters(), lr=0.1)
    for x, y in data:
        plain.zero_grad()
        functional.cross_entropy(alone(x), y).backward()
        plain.step()
    for ours, expected in zip(module.net.parameters(), alone.parameters(), strict=True):
        assert torch.allclose(ours.cpu(), expected, rtol=1e-6, atol=1e-9)
