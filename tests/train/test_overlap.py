"""With overlap a script gets the same bits as without, or an error that says why it cannot."""

import contextlib
import copy
import io
import pickle

import pytest
import torch
from tests.integration.jobs import run_threads
from tests.train.overlapping import assert_same, batch, loss_of, net, params_of, train
from torch.nn import functional

import bireme
from bireme.errors import ConfigError, StateError

pytestmark = pytest.mark.usefixtures("_one_thread")


@pytest.fixture
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


BOTH = pytest.mark.parametrize("on_store", [True, False])


@BOTH
def test_plain_steps(on_store):
    def work(model, trainer, rank):
        for step in range(6):
            trainer.zero_grad()
            loss_of(model, rank, step).backward()
            trainer.step()
        return params_of(model)

    assert_same(work, update_on_kvstore=on_store)


@BOTH
def test_parameters_that_only_some_workers_or_steps_use(on_store):
    def work(model, trainer, rank):
        for step in range(8):
            trainer.zero_grad()
            loss_of(model, rank, step, branch=(step + rank) % 3 == 0).backward()
            trainer.step()
        return params_of(model)

    assert_same(work, update_on_kvstore=on_store)


@BOTH
def test_gradients_that_are_accumulated(on_store):
    def work(model, trainer, rank):
        for step in range(4):
            trainer.zero_grad(set_to_none=bool(step % 2))
            with trainer.accumulate():
                loss_of(model, rank, 3 * step, branch=True).backward()
                loss_of(model, rank, 3 * step + 1).backward()
            loss_of(model, rank, 3 * step + 2).backward()
            trainer.step()
        return params_of(model)

    assert_same(work, update_on_kvstore=on_store)


@BOTH
def test_gradients_that_are_clipped_inside_a_hold(on_store):
    def work(model, trainer, rank):
        for step in range(4):
            trainer.zero_grad()
            with trainer.accumulate():
                loss_of(model, rank, step).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            trainer.step()
        return params_of(model)

    assert_same(work, update_on_kvstore=on_store)


def test_merged_gradients_are_clipped_after_they_have_left():
    def work(model, trainer, rank):
        for step in range(4):
            trainer.zero_grad()
            loss_of(model, rank, step).backward()
            trainer.allreduce_grads()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            trainer.step()
        return params_of(model)

    assert_same(work, update_on_kvstore=False)


@BOTH
def test_unequal_shares_that_are_told_before(on_store):
    def work(model, trainer, rank):
        for step in range(4):
            size = 1 + (rank + step) % 3
            trainer.zero_grad()
            trainer.begin(size)
            loss_of(model, rank, step, size).backward()
            trainer.step(*[size][: step % 2])
        return params_of(model)

    assert_same(work, update_on_kvstore=on_store)


@BOTH
def test_a_worker_without_samples_counts_for_nothing(on_store):
    def work(model, trainer, rank):
        for step in range(3):
            trainer.zero_grad()
            trainer.begin(3 * rank)
            loss_of(model, rank, step, 3 * rank or 1).backward()
            trainer.step()
        return params_of(model)

    assert_same(work, update_on_kvstore=on_store)


@BOTH
def test_equal_counts_need_not_be_told_before(on_store):
    def work(model, trainer, rank):
        for step in range(3):
            trainer.zero_grad()
            loss_of(model, rank, step).backward()
            trainer.step(num_samples=7)
        return params_of(model)

    assert_same(work, update_on_kvstore=on_store)


@BOTH
def test_learning_rate_schedules(on_store):
    def work(model, trainer, rank):
        schedule = torch.optim.lr_scheduler.ExponentialLR(trainer, 0.7)
        for step in range(5):
            trainer.zero_grad()
            loss_of(model, rank, step).backward()
            trainer.step()
            schedule.step()
        return params_of(model)

    assert_same(work, update_on_kvstore=on_store)


@BOTH
def test_evaluation_and_checkpoints_between_steps_see_new_weights(on_store):
    def work(model, trainer, rank):
        seen = []
        for step in range(4):
            trainer.zero_grad()
            loss_of(model, rank, step).backward()
            trainer.step()
            model.eval()
            with torch.no_grad():
                seen.append(loss_of(model, 0, 50))
            model.train()
            if step == 1:
                model.load_state_dict(net(9).state_dict())
            trainer.zero_grad()
            loss_of(model, rank, 10 + step, branch=True).backward()
            trainer.step()
            seen += params_of(model)
        return seen

    assert_same(work, update_on_kvstore=on_store)


@BOTH
def test_weights_that_the_script_changes_after_it_has_waited(on_store):
    def work(model, trainer, rank):
        for step in range(4):
            trainer.zero_grad()
            loss_of(model, rank, step).backward()
            trainer.step()
            trainer.synchronize()
            with torch.no_grad():
                model.back.weight.clamp_(-0.1, 0.1)
        return params_of(model)

    assert_same(work, update_on_kvstore=on_store)


@BOTH
def test_the_state_of_the_optimizer(on_store):
    def work(model, trainer, rank):
        for step in range(3):
            trainer.zero_grad()
            loss_of(model, rank, step).backward()
            trainer.step()
        kept = copy.deepcopy(trainer.state_dict())
        for step in range(2):
            trainer.load_state_dict(kept)
            trainer.zero_grad()
            loss_of(model, rank, step).backward()
            trainer.step()
        states = [each["momentum_buffer"] for each in trainer.state_dict()["state"].values()]
        return params_of(model) + states

    assert_same(work, update_on_kvstore=on_store)


@BOTH
def test_closures(on_store):
    def work(model, trainer, rank):
        for step in range(3):

            def closure(step=step):
                trainer.zero_grad()
                loss = loss_of(model, rank, step)
                loss.backward()
                return loss

            trainer.step(closure)
        return params_of(model)

    assert_same(work, update_on_kvstore=on_store)


@BOTH
def test_a_scaler_steps_when_gradients_were_held_back(on_store):
    def work(model, trainer, rank):
        scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
        for step in range(4):
            trainer.zero_grad()
            with trainer.accumulate():
                loss = loss_of(model, rank, step)
                scaler.scale(loss * (float("inf") if (step, rank) == (2, 1) else 1)).backward()
            scaler.step(trainer)
            scaler.update()
        assert scaler.get_scale() == 32.0
        return params_of(model)

    assert_same(work, update_on_kvstore=on_store)


@BOTH
def test_compressed_gradients(on_store):
    def work(model, trainer, rank):
        for step in range(5):
            trainer.zero_grad()
            loss_of(model, rank, step).backward()
            trainer.step()
        return params_of(model)

    compression = {"type": "2bit", "threshold": 0.02}
    assert_same(work, update_on_kvstore=on_store, compression=compression)


def test_hooks_behind_the_step_see_new_weights():
    def work(model, trainer, rank):
        seen = []
        trainer.register_step_post_hook(lambda *_: seen.append(model.back.weight.detach().clone()))
        for step in range(3):
            trainer.zero_grad()
            loss_of(model, rank, step).backward()
            trainer.step()
        return seen

    assert_same(work)


@BOTH
def test_three_workers_of_which_each_accumulates_otherwise(on_store):
    def work(model, trainer, rank):
        for step in range(3):
            trainer.zero_grad()
            for part in range(rank):
                with trainer.accumulate():
                    loss_of(model, rank, 10 * step + part).backward()
            with trainer.accumulate() if step == 1 else contextlib.nullcontext():
                loss_of(model, rank, 10 * step + 9, branch=rank == 2).backward()
            trainer.step()
        return params_of(model)

    assert_same(work, update_on_kvstore=on_store, num_workers=3)


class TestRefusals:
    """What cannot give the right result ends in an error that says what to do."""

    @staticmethod
    def refused(prepare, match, **options):
        """``prepare`` is refused on every worker in the second step, which ends the job."""

        def work(model, trainer, rank):
            trainer.zero_grad()
            loss_of(model, rank, 0).backward()
            trainer.step()
            trainer.synchronize()
            with pytest.raises((StateError, ConfigError), match=match):
                prepare(model, trainer, rank)
            return [torch.ones(1)]

        assert train(work, overlap=True, **options)

    @BOTH
    def test_clipping_what_has_left(self, on_store):
        def prepare(model, trainer, rank):
            loss_of(model, rank, 1).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
            trainer.step()

        self.refused(prepare, "was changed after it had left", update_on_kvstore=on_store)

    @BOTH
    def test_clearing_what_has_left(self, on_store):
        def prepare(model, trainer, rank):
            loss_of(model, rank, 1).backward()
            trainer.zero_grad()

        self.refused(prepare, "cleared without a step", update_on_kvstore=on_store)

    @BOTH
    def test_a_second_backward(self, on_store):
        def prepare(model, trainer, rank):
            loss_of(model, rank, 1).backward()
            loss_of(model, rank, 2).backward()

        self.refused(prepare, "accumulate", update_on_kvstore=on_store)

    def test_a_new_learning_rate_between_backward_and_step(self):
        def prepare(model, trainer, rank):
            loss_of(model, rank, 1).backward()
            trainer.set_learning_rate(0.01)
            trainer.step()

        self.refused(prepare, "learning rate")

    def test_new_weights_between_backward_and_step(self):
        def prepare(model, trainer, rank):
            loss_of(model, rank, 1).backward()
            with torch.no_grad():
                model.back.weight.add_(1)
            trainer.step()

        self.refused(prepare, "'back.weight' was changed between")

    def test_new_weights_while_others_are_on_the_way(self):
        def prepare(model, trainer, rank):
            trainer.zero_grad()
            loss_of(model, rank, 1).backward()
            trainer.step()
            with torch.no_grad():
                model.back.weight.add_(1)
            loss_of(model, rank, 2)

        self.refused(prepare, "changed after step")

    @BOTH
    def test_counts_that_come_too_late(self, on_store):
        def prepare(model, trainer, rank):
            loss_of(model, rank, 1).backward()
            trainer.step(num_samples=1 + rank)

        self.refused(prepare, "begin", update_on_kvstore=on_store)

    def test_other_counts_than_before(self):
        def prepare(model, trainer, rank):
            trainer.begin(4)
            with pytest.raises(StateError, match="begun already"):
                trainer.begin(4)
            trainer.step(num_samples=5)

        self.refused(prepare, "begin")

    @BOTH
    def test_a_scaler_that_comes_too_late(self, on_store):
        def prepare(model, trainer, rank):
            scaler = torch.amp.GradScaler("cpu")
            scaler.scale(loss_of(model, rank, 1)).backward()
            scaler.step(trainer)

        self.refused(prepare, "GradScaler", update_on_kvstore=on_store)

    def test_a_weight_that_is_used_before_it_has_come(self):
        def prepare(model, trainer, rank):
            trainer.zero_grad()
            loss_of(model, rank, 1).backward()
            trainer.step()
            # Not by the forward of its module, and not inside the forward of the model.
            model.back.weight.square().sum().backward()

        self.refused(prepare, "used before its new value")

    def test_infinite_gradients_of_a_compressor(self):
        def prepare(model, trainer, rank):
            (loss_of(model, rank, 1) * float("inf")).backward()

        compression = {"type": "2bit", "threshold": 0.02}
        self.refused(prepare, "not finite", update_on_kvstore=False, compression=compression)


def test_an_exception_in_the_backward_pass_spoils_the_step():
    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            raise ZeroDivisionError

    def work(model, trainer, rank):
        tokens = torch.zeros(1, 2, dtype=torch.int64)
        out = model.decode(Bad.apply(model.embed(tokens)))
        if rank == 0:
            out = model.decode(model.embed(tokens))
            out.sum().backward()
            return [torch.ones(1)]
        with pytest.raises(ZeroDivisionError):
            (model.back(torch.ones(1, 40)).sum() + out.sum()).backward()
        with pytest.raises(StateError, match="have left"):
            trainer.zero_grad()
        return [torch.ones(1)]

    assert train(work, overlap=True)


def test_nothing_of_a_trainer_stays_in_copies_of_its_model_or_after_its_end():
    def work(model, trainer, rank):
        loss_of(model, rank, 0).backward()
        trainer.step()
        trainer.synchronize()
        twin = copy.deepcopy(model)
        pickle.loads(pickle.dumps(model))  # noqa: S301
        torch.save(model.state_dict(), io.BytesIO())
        loss_of(twin, rank, 0).backward()
        trainer.zero_grad()
        loss_of(model, rank, 1).backward()
        trainer.step()
        trainer.close()
        loss_of(model, rank, 2).backward()
        loss_of(model, rank, 3).backward()
        hooks = [each._forward_pre_hooks for each in model.modules()]
        hooks += [each._load_state_dict_pre_hooks for each in model.modules()]
        assert not any(hooks)
        assert not any(each._post_accumulate_grad_hooks for each in model.parameters())
        return params_of(model)

    train(work, overlap=True)


def test_several_replicas():
    def work(session, overlap):
        with session.store("dist_sync") as store:
            replicas = [net(3), net(4)]
            trainer = bireme.Trainer(replicas, "adam", store, overlap=overlap)
            for step in range(4):
                trainer.zero_grad()
                trainer.begin([1 + store.rank, 2])
                for number, replica in enumerate(replicas):
                    size = [1 + store.rank, 2][number]
                    used = bool(step % 2) and not number
                    loss_of(replica, 2 * store.rank + number, step, size, branch=used).backward()
                trainer.step()
            trainer.close()
            found = [params_of(each) for each in replicas]
            assert all(map(torch.equal, *found))
            return found[0]

    runs = [run_threads(2, 2, lambda s, o=o: work(s, o), slice_bytes=256) for o in (False, True)]
    for found in (*runs[0], *runs[1]):
        assert all(map(torch.equal, found, runs[0][0]))


@pytest.mark.parametrize("kvstore", ["device", "local", None])
def test_there_must_be_servers(kvstore):
    with pytest.raises(ConfigError, match="overlap=True needs a store on servers"):
        bireme.Trainer(net(), "sgd", kvstore, overlap=True)
    with pytest.raises(ConfigError, match="True or False"):
        bireme.Trainer(net(), "sgd", kvstore, overlap="yes")


def test_without_overlap_the_calls_change_nothing():
    def work(model, trainer, rank):
        for step in range(2):
            trainer.zero_grad()
            trainer.begin(3 + rank)
            with trainer.accumulate():
                loss_of(model, rank, step).backward()
            trainer.step()
            trainer.synchronize()
        trainer.close()
        return params_of(model)

    assert_same(work)


def test_a_module_with_unequal_contexts():
    def work(session, overlap):
        with session.store("dist_sync") as store:
            model = net(3)
            module = bireme.Module(
                model,
                lambda out, targets: functional.cross_entropy(out.flatten(0, 1), targets.flatten()),
                ["cpu(0)", "cpu(1)"],
                [2, 1],
                overlap=overlap,
            )
            batches = [batch(store.rank, step, 6 + store.rank) for step in range(4)]
            module.fit(batches, num_epoch=2, kvstore=store, optimizer="adam", eval_metric=None)
            module.trainer.close()
            return params_of(module.net)

    runs = [run_threads(2, 2, lambda s, o=o: work(s, o), slice_bytes=256) for o in (False, True)]
    for found in (*runs[0], *runs[1]):
        assert all(map(torch.equal, found, runs[0][0]))
