import copy
import gc
import weakref

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR, ReduceLROnPlateau, StepLR

from bireme import kvstore
from bireme.errors import ConfigError, DataError, StateError, UnsupportedError
from bireme.kvstore import DeviceStore, KVStoreBase, LocalStore
from bireme.train.trainer import Trainer
from bireme.update.spec import OptimizerSpec


class SumStore(KVStoreBase):
    """The least that a plug-in offers: no keys remembered, sums in place."""

    type = "sumstore"
    rank = 0
    num_workers = 1

    def broadcast(self, key, value, out, priority=0):
        keys = key if isinstance(key, list) else [key]
        values = value if isinstance(key, list) else [value]
        outs = out if isinstance(key, list) else [out]
        assert len(keys) == len(values) == len(outs)
        for each, targets in zip(values, outs, strict=True):
            for target in targets if isinstance(targets, list) else [targets]:
                target.copy_(each)

    def pushpull(self, key, value, out=None, priority=0):
        values = value if isinstance(key, list) else [value]
        outs = value if out is None else out
        outs = outs if isinstance(key, list) else [outs]
        for parts, targets in zip(values, outs, strict=True):
            total = sum(part.clone() for part in parts)
            for target in targets:
                target.copy_(total)


def scalar_nets(count, start=0.0):
    """Networks that compute ``x * w`` with one weight."""
    nets = [nn.Linear(1, 1, bias=False) for _ in range(count)]
    for net in nets:
        nn.init.constant_(net.weight, start)
    return nets


def backward(nets, grads):
    """Give each net the gradient named, through a real backward pass."""
    for net, grad in zip(nets, grads, strict=True):
        if grad is not None:
            net(torch.full((1, 1), float(grad))).sum().backward()


def weights(nets):
    return [net.weight.item() for net in nets]


def grads(nets):
    return [None if net.weight.grad is None else net.weight.grad.item() for net in nets]


def sgd(net, lr=1.0, **options):
    return torch.optim.SGD(net.parameters(), lr=lr, **options)


class TestWhereItRuns:
    def test_one_replica_needs_no_store(self):
        (net,) = nets = scalar_nets(1)
        trainer = Trainer(net, sgd(net, momentum=0.5))
        assert trainer.kvstore is None
        backward(nets, [1])
        trainer.step()
        assert weights(nets) == [-1.0]

    @pytest.mark.parametrize("kv", ["local", "device", "nccl", "local_allreduce_cpu"])
    @pytest.mark.parametrize("on_store", [True, False, None])
    def test_two_replicas_average_in_a_store_of_the_type_asked_for(self, kv, on_store):
        nets = scalar_nets(2)
        trainer = Trainer(nets, sgd(nets[0], momentum=0.5), kv, update_on_kvstore=on_store)
        assert trainer.kvstore.type == kv
        backward(nets, [1, 3])
        trainer.step()
        assert weights(nets) == [-2.0, -2.0]
        # Momentum 0.5: the second velocity is 0.5 * 2 + 2; lr_mult halves its effect.
        trainer.param_groups[0]["lr_mult"] = 0.5
        trainer.set_learning_rate(1.0)
        trainer.zero_grad()
        backward(nets, [2, 2])
        trainer.step()
        assert weights(nets) == [-3.5, -3.5]
        assert trainer.learning_rate == 1.0

    def test_compression_and_store_objects_and_asking_for_it_make_one_replica_use_a_store(self):
        (net,) = scalar_nets(1)
        compressed = Trainer(net, sgd(net), compression={"type": "2bit", "threshold": 0.5})
        assert compressed.kvstore.type == "device"
        backward([net], [0.6])
        compressed.step()
        assert weights([net]) == [-0.5]
        store = LocalStore()
        assert Trainer(net, sgd(net), store).kvstore is store
        assert Trainer(net, sgd(net), "local", update_on_kvstore=True).kvstore.type == "local"

    def test_no_store_at_all(self):
        (net,) = scalar_nets(1)
        assert Trainer(net, sgd(net), None).kvstore is None
        nets = scalar_nets(2)
        with pytest.raises(ConfigError, match="2 replicas need a store"):
            Trainer(nets, sgd(nets[0]), None)
        with pytest.raises(ConfigError, match="compression needs a store"):
            Trainer(net, sgd(net), None, compression={"type": "2bit"})

    def test_a_plug_in_updates_on_the_worker(self):
        nets = scalar_nets(2)
        trainer = Trainer(nets, sgd(nets[0], momentum=0.5), SumStore())
        backward(nets, [1, 3])
        trainer.step()
        assert weights(nets) == [-2.0, -2.0]
        with pytest.raises(ConfigError, match="cannot run an optimizer"):
            Trainer(nets, sgd(nets[0]), SumStore(), update_on_kvstore=True)
        with pytest.raises(UnsupportedError, match="does not compress"):
            Trainer(nets, sgd(nets[0]), SumStore(), compression={"type": "2bit"})

    def test_an_unknown_type_lists_the_known_ones(self):
        nets = scalar_nets(2)
        with pytest.raises(ConfigError, match=r"unknown store type 'foo'.*device"):
            Trainer(nets, sgd(nets[0]), "foo")

    def test_lbfgs_in_a_store_is_refused(self):
        nets = scalar_nets(2)
        store = DeviceStore()
        with pytest.raises(ConfigError, match="closure"):
            Trainer(nets, torch.optim.LBFGS(nets[0].parameters()), store, update_on_kvstore=True)
        # Nothing was left behind.
        store.init(3, torch.ones(1))

    def test_custom_optimizers_run_here_but_not_in_a_store(self):
        class Signed(torch.optim.SGD):
            pass

        nets = scalar_nets(2)
        optimizer = Signed(nets[0].parameters(), lr=1.0)
        backward(nets, [1, 3])
        Trainer(nets, optimizer).step()
        assert weights(nets) == [-2.0, -2.0]
        with pytest.raises(UnsupportedError, match=r"not a class of torch\.optim"):
            Trainer(nets, optimizer, update_on_kvstore=True)


class TestSharingAStore:
    @pytest.mark.parametrize("kv", [LocalStore, DeviceStore, SumStore])
    def test_two_trainers(self, kv):
        store = kv()
        first, second = scalar_nets(2), scalar_nets(2)
        trainers = [Trainer(nets, sgd(nets[0]), store) for nets in (first, second)]
        backward(first, [1, 3])
        backward(second, [10, 30])
        for trainer in trainers:
            trainer.step()
        assert weights(first) == [-2.0, -2.0]
        assert weights(second) == [-20.0, -20.0]

    def test_integer_keys_are_in_the_way(self):
        store = LocalStore()
        store.init(3, torch.ones(1))
        nets = scalar_nets(2)
        with pytest.raises(ConfigError, match=r"integer keys.*store of its own"):
            Trainer(nets, sgd(nets[0]), store)
        assert store.pull(3).item() == 1.0

    def test_string_keys_are_not(self):
        store = LocalStore()
        store.init("mine", torch.ones(1))
        nets = scalar_nets(2)
        trainer = Trainer(nets, sgd(nets[0]), store)
        backward(nets, [1, 3])
        trainer.step()
        assert weights(nets) == [-2.0, -2.0]
        assert store.pull("mine").item() == 1.0

    @pytest.mark.parametrize("kind", ["SGD", "AdamW"])
    def test_a_store_that_updates_cannot_merge_for_another(self, kind):
        store = DeviceStore()
        first, second = scalar_nets(2), scalar_nets(2)
        optimizer = getattr(torch.optim, kind)(first[0].parameters(), lr=1.0)
        Trainer(first, optimizer, store, update_on_kvstore=True)
        with pytest.raises(ConfigError, match="runs an optimizer or an updater"):
            Trainer(second, sgd(second[0]), store)
        with pytest.raises(ConfigError, match="serves another trainer"):
            Trainer(second, sgd(second[0]), store, update_on_kvstore=True)

    def test_a_store_with_an_updater_cannot_merge(self):
        store = LocalStore()
        store.set_updater(lambda key, merged, stored: stored.add_(2 * merged))
        nets = scalar_nets(2)
        with pytest.raises(ConfigError, match="an updater"):
            Trainer(nets, sgd(nets[0]), store)

    @pytest.mark.parametrize("on_store", [True, False])
    def test_after_the_store_was_closed(self, on_store):
        nets = scalar_nets(2)
        trainer = Trainer(nets, sgd(nets[0]), update_on_kvstore=on_store)
        backward(nets, [1, 3])
        trainer.step()
        trainer.kvstore.close()
        backward(nets, [1, 3])
        before = grads(nets)
        with pytest.raises(StateError, match="closed"):
            trainer.step()
        assert weights(nets) == [-2.0, -2.0]
        assert grads(nets) == before
        with pytest.raises(StateError, match="closed"):
            Trainer(nets, sgd(nets[0]), trainer.kvstore)


class TestShares:
    @pytest.mark.parametrize("on_store", [True, False])
    def test_counts_weigh_means(self, on_store):
        nets = scalar_nets(3)
        trainer = Trainer(nets, sgd(nets[0]), update_on_kvstore=on_store)
        backward(nets, [1, 5, 3])
        trainer.step(num_samples=[2, 1, 1])
        assert weights(nets) == [-2.5] * 3

    @pytest.mark.parametrize("on_store", [True, False])
    @pytest.mark.parametrize("stale", [None, float("nan"), 7.0])
    @pytest.mark.parametrize("empty", [0, 1])
    def test_a_replica_without_samples_is_ignored(self, on_store, stale, empty):
        nets = scalar_nets(2)
        trainer = Trainer(nets, sgd(nets[0]), update_on_kvstore=on_store)
        values, counts = [4.0, 4.0], [3, 3]
        values[empty], counts[empty] = stale, 0
        backward(nets, values)
        trainer.step(num_samples=counts)
        assert weights(nets) == [-4.0, -4.0]

    def test_a_stale_gradient_that_counts_for_nothing_is_not_applied(self):
        nets = scalar_nets(2)
        trainer = Trainer(nets, sgd(nets[0]))
        backward(nets, [4.0, None])
        trainer.step(num_samples=[0, 3])
        assert weights(nets) == [0.0, 0.0]

    def test_counts_may_come_first_and_a_number_does_for_one_replica(self):
        nets = scalar_nets(2)
        trainer = Trainer(nets, sgd(nets[0]))
        backward(nets, [1, 5])
        trainer.step([3, 1])
        assert weights(nets) == [-2.0, -2.0]
        (net,) = scalar_nets(1)
        trainer = Trainer(net, sgd(net))
        backward([net], [1])
        trainer.step(32)
        trainer.step(num_samples=[32])
        assert weights([net]) == [-2.0]

    @pytest.mark.parametrize("on_store", [True, False])
    @pytest.mark.parametrize(
        "counts", [[1], 3, [1, -1], [0, 0], [float("nan"), 1], [1, 2, 3], "12", [None, 1]]
    )
    def test_bad_counts_change_nothing(self, on_store, counts):
        nets = scalar_nets(2)
        trainer = Trainer(nets, sgd(nets[0]), update_on_kvstore=on_store)
        backward(nets, [1, 5])
        with pytest.raises(ConfigError, match="num_samples"):
            trainer.step(num_samples=counts)
        assert (weights(nets), grads(nets)) == ([0.0, 0.0], [1.0, 5.0])
        trainer.step()
        assert weights(nets) == [-3.0, -3.0]

    def test_one_replica_checks_its_count_too(self):
        (net,) = scalar_nets(1)
        trainer = Trainer(net, sgd(net))
        for count in (0, -1, float("nan"), [1, 2]):
            with pytest.raises(ConfigError, match="num_samples"):
                trainer.step(num_samples=count)


class TestMergingByHand:
    def test_gradients_differ_before_and_agree_after(self):
        nets = scalar_nets(2)
        trainer = Trainer(nets, sgd(nets[0]))
        backward(nets, [0, 1])
        assert grads(nets) == [0.0, 1.0]
        trainer.allreduce_grads()
        assert grads(nets) == [0.5, 0.5]
        trainer.update()
        assert weights(nets) == [-0.5, -0.5]

    def test_a_clipped_gradient_is_not_merged_again(self):
        nets = scalar_nets(2)
        trainer = Trainer(nets, sgd(nets[0]))
        for step in range(1, 3):
            trainer.zero_grad()
            backward(nets, [2, 6])
            trainer.allreduce_grads()
            norm = nn.utils.clip_grad_norm_(nets[0].parameters(), 1.0)
            assert norm.item() == 4.0
            trainer.step()
            assert weights(nets) == pytest.approx([-step, -step])

    def test_a_backward_pass_in_between_merges_again(self):
        nets = scalar_nets(2)
        trainer = Trainer(nets, sgd(nets[0]))
        backward(nets, [2, 6])
        trainer.allreduce_grads()
        backward(nets, [None, 2])
        trainer.step()
        # Merged 4 everywhere, then 2 more on one of two replicas.
        assert weights(nets) == [-5.0, -5.0]

    def test_gradients_written_by_hand_are_merged(self):
        nets = scalar_nets(2)
        trainer = Trainer(nets, sgd(nets[0]))
        for step in range(1, 4):
            for net, grad in zip(nets, [2.0, 6.0], strict=True):
                net.weight.grad = torch.full((1, 1), grad)
            trainer.allreduce_grads()
            assert grads(nets) == [4.0, 4.0]
            for net, grad in zip(nets, [1.0, 3.0], strict=True):
                net.weight.grad = torch.full((1, 1), grad)
            trainer.step()
            assert weights(nets) == [-2.0 * step] * 2

    @pytest.mark.parametrize("end", ["step", "zero_grad"])
    def test_gradients_written_in_place_are_merged_after_a_step_or_clearing(self, end):
        nets = scalar_nets(2)
        trainer = Trainer(nets, sgd(nets[0]))
        backward(nets, [2, 6])
        trainer.allreduce_grads()
        if end == "step":
            trainer.step()
        else:
            trainer.zero_grad(set_to_none=False)
        before = weights(nets)[0]
        for net, grad in zip(nets, [1.0, 3.0], strict=True):
            net.weight.grad.fill_(grad)
        trainer.step()
        assert weights(nets) == [before - 2.0] * 2

    def test_each_parameter_is_merged_when_it_must_be(self):
        nets = [nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False))]
        for layer in nets[0]:
            nn.init.ones_(layer.weight)
        nets.append(copy.deepcopy(nets[0]))
        trainer = Trainer(nets, sgd(nets[0]))
        for net, x in zip(nets, [1.0, 3.0], strict=True):
            net[0](torch.full((1, 1), x)).sum().backward()
        trainer.allreduce_grads()
        nets[0][0].weight.grad.mul_(0.5)
        for net, x in zip(nets, [2.0, 4.0], strict=True):
            net[1](torch.full((1, 1), x)).sum().backward()
        trainer.step()
        for net in nets:
            assert [layer.weight.item() for layer in net] == [0.0, -2.0]

    def test_it_is_refused_when_the_store_updates(self):
        nets = scalar_nets(2)
        trainer = Trainer(nets, sgd(nets[0]), update_on_kvstore=True)
        with pytest.raises(StateError, match=r"allreduce_grads.*update_on_kvstore=False"):
            trainer.allreduce_grads()
        with pytest.raises(StateError, match=r"update\(\).*update_on_kvstore=False"):
            trainer.update()

    def test_it_does_nothing_for_one_replica(self):
        (net,) = scalar_nets(1)
        trainer = Trainer(net, sgd(net))
        backward([net], [3])
        trainer.allreduce_grads()
        assert grads([net]) == [3.0]
        trainer.update()
        assert weights([net]) == [-3.0]

    def test_hooks_go_with_the_trainer(self):
        nets = scalar_nets(2)
        trainer = Trainer(nets, sgd(nets[0]))
        backward(nets, [1, 1])
        trainer.allreduce_grads()
        assert nets[0].weight._post_accumulate_grad_hooks
        gone = weakref.ref(trainer)
        del trainer
        gc.collect()
        assert gone() is None
        assert not nets[0].weight._post_accumulate_grad_hooks


class TestGradients:
    @pytest.mark.parametrize("on_store", [True, False])
    def test_accumulation(self, on_store):
        nets = scalar_nets(2)
        trainer = Trainer(nets, sgd(nets[0]), update_on_kvstore=on_store)
        backward(nets, [1, 2])
        backward(nets, [1, 2])
        trainer.step()
        assert weights(nets) == [-3.0, -3.0]

    def test_merged_gradients_end_in_every_replica(self):
        nets = scalar_nets(3)
        Trainer(nets, sgd(nets[0])).step()
        assert grads(nets) == [None] * 3
        backward(nets, [1, None, 5])
        Trainer(nets, sgd(nets[0])).step()
        assert grads(nets) == [2.0] * 3

    def test_an_update_in_the_store_leaves_gradients_alone(self):
        nets = scalar_nets(2)
        trainer = Trainer(nets, sgd(nets[0]), update_on_kvstore=True)
        backward(nets, [1, 3])
        trainer.step()
        assert grads(nets) == [1.0, 3.0]

    @pytest.mark.parametrize("on_store", [True, False])
    def test_parameters_without_gradients_keep_their_value_and_state(self, on_store):
        nets = [nn.ModuleDict({"used": nn.Linear(1, 1), "spare": nn.Linear(1, 1)})]
        nets.append(copy.deepcopy(nets[0]))
        spare = nets[0]["spare"].weight.item()
        optimizer = torch.optim.AdamW(nets[0].parameters(), lr=0.1, weight_decay=0.5)
        trainer = Trainer(nets, optimizer, update_on_kvstore=on_store)
        for net in nets:
            net["used"](torch.ones(1, 1)).sum().backward()
        trainer.step()
        assert nets[1]["spare"].weight.item() == spare
        assert sorted(trainer.state_dict()["state"]) == [0, 1]

    @pytest.mark.parametrize("on_store", [True, False])
    def test_freezing_and_unfreezing(self, on_store):
        nets = [nn.Linear(1, 1) for _ in range(2)]
        nn.init.zeros_(nets[0].weight)
        nn.init.zeros_(nets[0].bias)
        for net in nets:
            net.weight.requires_grad_(False)
        trainer = Trainer(nets, sgd(nets[0]), update_on_kvstore=on_store)
        for frozen in (True, False):
            for net in nets:
                net.weight.requires_grad_(not frozen)
                trainer.zero_grad()
            backward(nets, [2, 4])
            trainer.step()
        assert weights(nets) == [-3.0, -3.0]
        assert [net.bias.item() for net in nets] == [-2.0, -2.0]

    def test_freezing_some_replicas_only_is_an_error(self):
        nets = [nn.Linear(1, 1) for _ in range(2)]
        trainer = Trainer(nets, sgd(nets[0]))
        nets[1].weight.requires_grad_(False)
        backward(nets, [2, 4])
        with pytest.raises(StateError, match=r"'weight' is frozen on replicas \[1\] only"):
            trainer.step()

    @pytest.mark.parametrize("on_store", [True, False])
    def test_tied_parameters_are_one_key(self, on_store):
        net = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False))
        nn.init.ones_(net[0].weight)
        net[1].weight = net[0].weight
        nets = [net, copy.deepcopy(net)]
        trainer = Trainer(nets, sgd(net, lr=0.1), update_on_kvstore=on_store)
        backward_x = [1.0, 3.0]
        for each, x in zip(nets, backward_x, strict=True):
            each(torch.full((1, 1), x)).sum().backward()
        trainer.step()
        # d(w * w * x)/dw = 2 * w * x, on average 4.
        for each in nets:
            assert each[0].weight.item() == pytest.approx(0.6)
            assert each[1].weight is each[0].weight

    @pytest.mark.parametrize("on_store", [True, False])
    @pytest.mark.parametrize("directly", [True, False])
    def test_add_param_group(self, on_store, directly):
        nets = [nn.Linear(1, 1) for _ in range(2)]
        for name in ("weight", "bias"):
            nn.init.zeros_(getattr(nets[0], name))
        optimizer = torch.optim.SGD([nets[0].weight], lr=1.0)
        trainer = Trainer(nets, optimizer, update_on_kvstore=on_store)
        backward(nets, [2, 4])
        trainer.step()
        assert [net.bias.item() for net in nets] == [0.0, 0.0]
        adder = optimizer if directly else trainer
        adder.add_param_group({"params": nets[0].bias, "lr": 0.5})
        trainer.zero_grad()
        backward(nets, [2, 4])
        trainer.step()
        assert weights(nets) == [-6.0, -6.0]
        assert [net.bias.item() for net in nets] == [-0.5, -0.5]
        with pytest.raises(ConfigError, match="cannot add"):
            trainer.add_param_group({"params": [nets[0].bias]})
        with pytest.raises(ConfigError, match=r"no parameter of the \(first\) model"):
            trainer.add_param_group({"params": [nets[1].bias]})
        weight = nets[0].weight
        for group in ([], {}, {"params": 3}, {"params": ["a"]}, {"params": {weight}}):
            with pytest.raises(ConfigError, match=r"params|no parameter of the \(first\)|dict"):
                trainer.add_param_group(group)
        assert len(trainer.param_groups) == 2

    def test_zero_grad_clears_every_replica(self):
        nets = scalar_nets(3)
        trainer = Trainer(nets, sgd(nets[0]))
        backward(nets, [1, 2, 3])
        trainer.zero_grad(set_to_none=False)
        assert grads(nets) == [0.0] * 3
        trainer.zero_grad()
        assert grads(nets) == [None] * 3


class TestSparse:
    @pytest.mark.parametrize("kv", ["local", "device"])
    @pytest.mark.parametrize("on_store", [True, False])
    def test_rows_of_an_embedding(self, kv, on_store):
        nets = [nn.Embedding(4, 2, sparse=True) for _ in range(2)]
        nn.init.zeros_(nets[0].weight)
        trainer = Trainer(nets, sgd(nets[0], lr=2.0), kv, update_on_kvstore=on_store)
        for net, ids in zip(nets, [[0, 2], [1, 2]], strict=True):
            net(torch.tensor(ids)).sum().backward()
        trainer.step()
        expected = torch.tensor([[-1.0], [-1.0], [-2.0], [0.0]]).expand(4, 2)
        for net in nets:
            assert torch.equal(net.weight, expected)
        if not on_store:
            assert all(net.weight.grad.is_sparse for net in nets)
            assert nets[0].weight.grad is not nets[1].weight.grad

    @pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # torch's own Adagrad
    @pytest.mark.parametrize("name", ["SparseAdam", "Adagrad", "SGD"])
    @pytest.mark.parametrize("on_store", [True, False])
    def test_it_equals_plain_torch(self, name, on_store):
        def make(net):
            return getattr(torch.optim, name)(net.parameters(), lr=0.1)

        torch.manual_seed(0)
        plain = nn.Embedding(6, 2, sparse=True).double()
        nets = [copy.deepcopy(plain) for _ in range(3)]
        reference, trainer = make(plain), Trainer(nets, make(nets[0]), update_on_kvstore=on_store)
        for step in range(4):
            ids = torch.randint(6, (7,), generator=torch.Generator().manual_seed(step))
            reference.zero_grad()
            plain(ids).square().mean().backward()
            reference.step()
            trainer.zero_grad()
            sizes = [4, 3, 0]
            for net, part in zip(nets, ids.split(sizes), strict=True):
                if len(part):
                    net(part).square().mean().backward()
            trainer.step(num_samples=sizes)
        for net in nets:
            torch.testing.assert_close(net.weight, plain.weight, rtol=1e-6, atol=1e-9)

    def test_a_plug_in_takes_dense_gradients_only(self):
        nets = [nn.Embedding(4, 2, sparse=True) for _ in range(2)]
        trainer = Trainer(nets, sgd(nets[0]), SumStore())
        for net in nets:
            net(torch.tensor([1])).sum().backward()
        with pytest.raises(UnsupportedError, match="'weight' has sparse gradients"):
            trainer.step()

    def test_a_gradient_that_is_dense_on_one_replica(self):
        nets = [nn.Embedding(3, 1, sparse=True) for _ in range(2)]
        nn.init.zeros_(nets[0].weight)
        trainer = Trainer(nets, sgd(nets[0]))
        nets[0](torch.tensor([1])).sum().backward()
        nets[1].weight.grad = torch.full((3, 1), 2.0)
        trainer.step()
        assert nets[1].weight.flatten().tolist() == [-1.0, -1.5, -1.0]


class TestSchedulers:
    @pytest.mark.parametrize("on_store", [True, False])
    @pytest.mark.parametrize("inner", [True, False])
    def test_rates_fall_every_two_steps_without_warnings(self, on_store, inner):
        nets = scalar_nets(2)
        trainer = Trainer(nets, sgd(nets[0]), update_on_kvstore=on_store)
        scheduler = StepLR(trainer.optimizer if inner else trainer, step_size=2, gamma=0.1)
        seen = []
        for _ in range(4):
            before = weights(nets)[1]
            trainer.zero_grad()
            backward(nets, [1, 1])
            trainer.step()
            scheduler.step()
            seen.append(before - weights(nets)[1])
        assert seen == pytest.approx([1.0, 1.0, 0.1, 0.1], rel=1e-4)
        assert trainer.learning_rate == pytest.approx(0.01)

    def test_schedulers_that_read_defaults_and_change_momentum(self):
        nets = scalar_nets(2)
        trainer = Trainer(nets, sgd(nets[0], momentum=0.9), update_on_kvstore=True)
        scheduler = OneCycleLR(trainer, max_lr=0.1, total_steps=5)
        plateau = ReduceLROnPlateau(trainer, patience=0)
        for _ in range(3):
            backward(nets, [1, 1])
            trainer.step()
            scheduler.step()
        rate = trainer.learning_rate
        plateau.step(1.0)
        plateau.step(2.0)
        assert trainer.learning_rate == pytest.approx(rate / 10)

    @pytest.mark.parametrize("on_store", [True, False])
    def test_a_rate_in_a_tensor(self, on_store):
        nets = scalar_nets(2)
        rate = torch.tensor(1.0)
        optimizer = torch.optim.SGD(nets[0].parameters(), lr=rate, foreach=False)
        trainer = Trainer(nets, optimizer, update_on_kvstore=on_store)
        backward(nets, [1, 1])
        trainer.step()
        trainer.set_learning_rate(0.5)
        trainer.step()
        assert weights(nets) == [-1.5, -1.5]
        assert rate.item() == 0.5

    @pytest.mark.parametrize("lr", [-1, float("nan"), float("inf"), "0.1", None, True])
    def test_bad_rates(self, lr):
        nets = scalar_nets(2)
        trainer = Trainer(nets, sgd(nets[0]))
        with pytest.raises(ConfigError, match="lr must be a finite number >= 0"):
            trainer.set_learning_rate(lr)
        assert trainer.learning_rate == 1.0


class TestStepHooksAndClosures:
    @pytest.mark.parametrize("on_store", [True, False])
    @pytest.mark.parametrize("count", [1, 2])
    def test_step_hooks_run_once(self, on_store, count):
        nets = scalar_nets(count)
        trainer = Trainer(nets, sgd(nets[0]), update_on_kvstore=on_store)
        calls = []
        trainer.register_step_pre_hook(lambda *_: calls.append("pre"))
        trainer.optimizer.register_step_post_hook(lambda *_: calls.append("post"))
        backward(nets, [1] * count)
        trainer.step()
        assert calls == ["pre", "post"]

    def test_a_pre_hook_sees_merged_gradients(self):
        nets = scalar_nets(2)
        trainer = Trainer(nets, sgd(nets[0]))

        def clip(*_):
            nn.utils.clip_grad_norm_(nets[0].parameters(), 1.0)

        trainer.register_step_pre_hook(clip)
        backward(nets, [2, 6])
        trainer.step()
        assert weights(nets) == pytest.approx([-1.0, -1.0])

    @pytest.mark.parametrize("on_store", [True, False])
    @pytest.mark.parametrize("count", [1, 2])
    def test_a_closure_by_position(self, on_store, count):
        nets = scalar_nets(count)
        trainer = Trainer(nets, sgd(nets[0]), update_on_kvstore=on_store)

        def closure():
            trainer.zero_grad()
            backward(nets, [2, 4][:count])
            return 7.0

        with torch.no_grad():
            assert trainer.step(closure) == 7.0
        assert weights(nets) == ([-3.0, -3.0] if count == 2 else [-2.0])

    def test_lbfgs_needs_a_closure(self):
        nets = scalar_nets(2)
        trainer = Trainer(nets, torch.optim.LBFGS(nets[0].parameters()))
        with pytest.raises(ConfigError, match=r"give step\(\) a closure"):
            trainer.step()

    def test_what_is_neither_closure_nor_count(self):
        nets = scalar_nets(2)
        trainer = Trainer(nets, sgd(nets[0]))
        with pytest.raises(ConfigError, match="closure must be callable"):
            trainer.step([1, 1], num_samples=[1, 1])
        with pytest.raises(ConfigError, match="num_samples"):
            trainer.step("now")


class TestStates:
    @pytest.mark.parametrize("on_store", [True, False])
    @pytest.mark.parametrize("name", ["SGD", "Adam"])
    def test_they_go_to_and_from_plain_torch(self, on_store, name, tmp_path):
        def make(params):
            options = {"momentum": 0.9} if name == "SGD" else {}
            return getattr(torch.optim, name)(params, lr=0.1, **options)

        torch.manual_seed(0)
        plain = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1)).double()
        nets = [copy.deepcopy(plain) for _ in range(2)]
        reference, trainer = (
            make(plain.parameters()),
            Trainer(nets, make(nets[0].parameters()), update_on_kvstore=on_store),
        )

        def step_both(seed):
            x = torch.randn(4, 2, generator=torch.Generator().manual_seed(seed)).double()
            reference.zero_grad()
            plain(x).square().mean().backward()
            reference.step()
            trainer.zero_grad()
            for net, part in zip(nets, x.split(2), strict=True):
                net(part).square().mean().backward()
            trainer.step()
            for ours, theirs in zip(nets[1].parameters(), plain.parameters(), strict=True):
                torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)

        step_both(0)
        step_both(1)
        assert_same(trainer.state_dict(), reference.state_dict())
        assert trainer.state[nets[0][0].weight]
        # Each continues from the file of the other.
        path = tmp_path / "states"
        trainer.save_states(path)
        reference.load_state_dict(torch.load(path, weights_only=True))
        step_both(2)
        torch.save(reference.state_dict(), path)
        fresh = Trainer(nets, make(nets[0].parameters()), update_on_kvstore=on_store)
        fresh.load_states(path)
        trainer = fresh
        step_both(3)
        assert_same(trainer.state_dict(), reference.state_dict())

    @pytest.mark.parametrize("on_store", [True, False])
    def test_the_rate_is_loaded(self, on_store, tmp_path):
        nets = scalar_nets(2)
        trainer = Trainer(nets, sgd(nets[0], lr=0.1), update_on_kvstore=on_store)
        backward(nets, [1, 1])
        trainer.step()
        trainer.save_states(tmp_path / "s")
        trainer.set_learning_rate(5.0)
        trainer.load_states(tmp_path / "s")
        assert trainer.learning_rate == 0.1
        trainer.param_groups[0]["lr_mult"] = 2.0
        trainer.set_learning_rate(0.1)
        trainer.step()
        assert weights(nets) == pytest.approx([-0.3, -0.3])

    @pytest.mark.parametrize("on_store", [True, False])
    def test_bad_states_change_nothing(self, on_store, tmp_path):
        nets = scalar_nets(2)
        trainer = Trainer(nets, sgd(nets[0], momentum=0.5), update_on_kvstore=on_store)
        backward(nets, [1, 1])
        trainer.step()
        before = copy.deepcopy(trainer.state_dict())
        wrong = copy.deepcopy(before)
        wrong["state"][0]["momentum_buffer"] = torch.ones(3, 3)
        wrong["param_groups"][0]["lr"] = 9.0
        groups = copy.deepcopy(before)
        groups["param_groups"] *= 2
        for states in ({}, [], wrong, groups):
            with pytest.raises(ConfigError):
                trainer.load_state_dict(states)
        assert_same(trainer.state_dict(), before)
        (tmp_path / "junk").write_bytes(b"junk")
        torch.save([1], tmp_path / "list")
        with pytest.raises(DataError, match="junk"):
            trainer.load_states(tmp_path / "junk")
        with pytest.raises(DataError, match="list"):
            trainer.load_states(tmp_path / "list")
        with pytest.raises(ConfigError, match="missing"):
            trainer.load_states(tmp_path / "missing")
        with pytest.raises(ConfigError, match="cannot write"):
            trainer.save_states(tmp_path / "no" / "folder")
        assert_same(trainer.state_dict(), before)

    def test_a_store_that_refuses_states_leaves_the_old_ones(self, monkeypatch):
        nets = scalar_nets(2)
        trainer = Trainer(nets, sgd(nets[0], momentum=0.5), update_on_kvstore=True)
        backward(nets, [1, 1])
        trainer.step()
        before = copy.deepcopy(trainer.state_dict())
        other = copy.deepcopy(before)
        other["param_groups"][0]["lr"] = 7.0
        other["state"][0]["momentum_buffer"].fill_(7.0)
        load, calls = trainer.kvstore.set_optimizer_states, []

        def refuse_once(states):
            calls.append(states)
            if len(calls) == 1:
                raise ConfigError("refused")
            load(states)

        monkeypatch.setattr(trainer.kvstore, "set_optimizer_states", refuse_once)
        with pytest.raises(ConfigError, match="refused"):
            trainer.load_state_dict(other)
        assert_same(trainer.state_dict(), before)
        trainer.load_state_dict(other)
        assert_same(trainer.state_dict(), other)

    def test_other_keys_of_the_store_keep_their_state(self):
        store = LocalStore()
        nets = scalar_nets(2)
        trainer = Trainer(nets, sgd(nets[0], momentum=0.5), store, update_on_kvstore=True)
        store.init("mine", torch.zeros(1))
        store.push("mine", torch.ones(1))
        backward(nets, [1, 1])
        trainer.step()
        trainer.load_state_dict(trainer.state_dict())
        store.push("mine", torch.ones(1))
        assert store.pull("mine").item() == -2.5

    @pytest.mark.parametrize("on_store", [True, False])
    @pytest.mark.parametrize("compression", [None, {"type": "2bit", "threshold": 0.5}])
    def test_weights_loaded_into_the_first_replica_are_taken_over(self, on_store, compression):
        nets = scalar_nets(2)
        trainer = Trainer(
            nets,
            sgd(nets[0], momentum=0.5),
            update_on_kvstore=on_store,
            compression=compression,
        )
        backward(nets, [1, 1])
        trainer.step()
        nets[0].load_state_dict({"weight": torch.full((1, 1), 10.0)})
        trainer.zero_grad()
        backward(nets, [1, 1])
        trainer.step()
        assert weights(nets) == [8.5, 8.5]

    def test_copies_are_refused(self):
        nets = scalar_nets(2)
        with pytest.raises(UnsupportedError, match="state_dict"):
            copy.deepcopy(Trainer(nets, sgd(nets[0])))


class TestArguments:
    def test_replicas_start_alike(self):
        nets = [nn.BatchNorm1d(2) for _ in range(2)]
        nn.init.constant_(nets[0].weight, 3.0)
        nets[0].running_mean.fill_(5.0)
        Trainer(nets, "sgd")
        assert torch.equal(nets[1].weight, nets[0].weight)
        assert torch.equal(nets[1].running_mean, nets[0].running_mean)

    def test_optimizers_by_name_and_by_spec(self):
        nets = [nn.Linear(1, 1) for _ in range(2)]
        named = Trainer(nets, "ADAM", optimizer_params={"learning_rate": 0.5, "wd": 0.1})
        assert isinstance(named.optimizer, torch.optim.Adam)
        assert named.param_groups[0]["weight_decay"] == 0.1
        spec = OptimizerSpec("sgd", {"lr": 1.0}, lr_mult={"bias": 0.5})
        trainer = Trainer(nets, spec)
        assert {tuple(g["params"]): g["lr"] for g in trainer.param_groups} == {
            (nets[0].weight,): 1.0,
            (nets[0].bias,): 0.5,
        }

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"model": []}, "list of replicas"),
            ({"model": "net"}, "list of replicas"),
            ({"model": [nn.Linear(1, 1), 3]}, "torch.nn.Module, got int"),
            ({"model": nn.ReLU()}, "no parameters"),
            ({"model": [nn.Linear(1, 1), nn.Linear(1, 1, bias=False)]}, "other parameter names"),
            ({"model": [nn.Linear(1, 1), nn.Linear(2, 1)]}, r"'weight' is .*\(1, 2\)"),
            ({"model": [nn.Linear(1, 1), nn.Linear(1, 1).double()]}, "float64"),
            ({"model": [nn.Linear(1, 1), nn.LazyLinear(1)]}, "no shape yet"),
            ({"model": nn.LazyLinear(1)}, "no shape yet"),
            ({"model": nn.Linear(1, 1).requires_grad_(False)}, "nothing to train"),
            ({"optimizer": "sdg"}, "no optimizer 'sdg'"),
            ({"optimizer": 3}, "got int"),
            ({"optimizer_params": {"rate": 1}}, "no argument 'rate'"),
            ({"optimizer_params": {"lr": 1, "learning_rate": 1}}, "'lr' twice"),
            ({"optimizer_params": {"lr": -1}}, "learning rate"),
            ({"kvstore": 3}, "kvstore must be"),
            ({"update_on_kvstore": "yes"}, "update_on_kvstore must be"),
            ({"compression": {"type": "3bit"}}, "3bit"),
            ({"compression": {"type": "2bit"}, "kvstore": "local"}, "does not compress"),
            ({"optimizer": OptimizerSpec("sgd", rescale_grad=0.5)}, "rescale_grad"),
            ({"optimizer": OptimizerSpec("sgd", lr_mult={"nope": 0.5})}, "'nope'"),
        ],
    )
    def test_bad_arguments(self, change, message):
        given = {"model": nn.Linear(1, 1), "optimizer": "sgd", **change}
        with pytest.raises(ConfigError, match=message):
            Trainer(given.pop("model"), given.pop("optimizer"), **given)

    def test_replicas_that_share_or_tie_differently(self):
        net = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
        with pytest.raises(ConfigError, match=r"shares parameter '0\.weight'"):
            Trainer([net, net], "sgd")
        tied = copy.deepcopy(net)
        tied[1].weight = tied[0].weight
        with pytest.raises(ConfigError, match="names or ties"):
            Trainer([net, tied], "sgd")

    def test_an_optimizer_of_another_model(self):
        nets = scalar_nets(2)
        with pytest.raises(ConfigError, match=r"no parameter of the \(first\) model"):
            Trainer(nets, sgd(nets[1]))
        with pytest.raises(ConfigError, match="go with an optimizer's name"):
            Trainer(nets, sgd(nets[0]), optimizer_params={"lr": 1})
        with pytest.raises(ConfigError, match="a Trainer already"):
            Trainer(nets, Trainer(nets, sgd(nets[0])))

    def test_what_is_refused_leaves_replicas_alone(self):
        nets = scalar_nets(2)
        nets[1].weight.data.fill_(9.0)
        with pytest.raises(ConfigError):
            Trainer(nets, sgd(nets[0]), "foo")
        assert weights(nets) == [0.0, 9.0]

    def test_it_looks_like_an_optimizer(self):
        nets = scalar_nets(2)
        trainer = Trainer(nets, sgd(nets[0]))
        assert isinstance(trainer, torch.optim.Optimizer)
        assert "2 replica(s) with a 'device' store: SGD" in repr(trainer)
        assert trainer.defaults["lr"] == 1.0

    def test_it_has_what_the_constructor_of_torchs_base_class_sets(self):
        nets = scalar_nets(2)
        trainer = Trainer(nets, sgd(nets[0]))
        # Used by the base class's own step and zero_grad only, which the trainer replaces.
        unused = {"_warned_capturable_if_run_uncaptured", "_zero_grad_profile_name"}
        missing = {name for name in vars(trainer.optimizer) if not hasattr(trainer, name)}
        assert missing <= unused

    def test_a_registered_plug_in_by_name(self):
        kvstore.register(SumStore)
        (net,) = scalar_nets(1)
        trainer = Trainer(net, sgd(net), "sumstore")
        assert trainer.kvstore.type == "sumstore"
        backward([net], [2])
        trainer.step()
        assert weights([net]) == [-2.0]


def test_buffers_are_averaged_by_counts():
    nets = [nn.BatchNorm1d(1) for _ in range(3)]
    trainer = Trainer(nets, "sgd")
    for number, net in enumerate(nets):
        net.running_mean.fill_(4.0 * number)
        net.num_batches_tracked.fill_(number)
    trainer.sync_buffers(num_samples=[3, 1, 0])
    for net in nets:
        assert net.running_mean.item() == 1.0
        assert net.num_batches_tracked.item() == 1
    with pytest.raises(ConfigError, match="num_samples"):
        trainer.sync_buffers([1])


def assert_same(ours, theirs):
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        for key in theirs:
            assert_same(ours[key], theirs[key])
    elif isinstance(theirs, torch.Tensor):
        assert ours.dtype == theirs.dtype
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)
    elif isinstance(theirs, list | tuple):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert_same(one, other)
    else:
        assert ours == theirs
