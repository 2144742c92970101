import pytest
import torch
from tests.nn.models import STEPS, Net, batch, layer, loss_of
from torch import nn

import bireme
from bireme.errors import StateError, UnsupportedError
from bireme.train.lineup import Lineup
from bireme.train.plain_update import PlainUpdate
from bireme.train.tables import with_tables


def sgd(params):
    return torch.optim.SGD(params, lr=0.3)


@pytest.fixture
def store():
    with bireme.kvstore.create("dist_sync") as made:
        yield made


def plain_like(first):
    return Net(nn.Embedding.from_pretrained(first.clone(), freeze=False))


def test_a_model_without_tables_keeps_its_mode():
    net = nn.Linear(1, 1)
    mode = PlainUpdate(sgd(net.parameters()))
    assert with_tables(mode, Lineup(net), sgd(net.parameters())) is mode


def test_scaled_gradients_are_unscaled_and_overflows_skip_rows_too(store):
    made = layer(store)
    plain = plain_like(made.to_embedding().weight.detach())
    net = Net(made)
    trainer = bireme.Trainer(net, sgd(net.parameters()), kvstore=store)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    optimizer = sgd(plain.parameters())
    for step in range(STEPS):
        factor = float("inf") if step == 2 else 1.0
        trainer.zero_grad()
        scaler.scale(factor * loss_of(net, *batch(step, 0))).backward()
        scaler.step(trainer)
        scaler.update()
        if step != 2:
            optimizer.zero_grad()
            loss_of(plain, *batch(step, 0)).backward()
            optimizer.step()
    rows = made.to_embedding().weight
    torch.testing.assert_close(rows, plain.embedding.weight, rtol=1e-6, atol=1e-9)
    trainer.zero_grad()
    scaler.scale(loss_of(net, *batch(0, 0))).backward()
    scaler.unscale_(trainer)
    with pytest.raises(StateError, match="unscale_"):
        scaler.step(trainer)


def test_a_scale_that_nobody_would_tell_is_refused(store):
    net = Net(layer(store))
    trainer = bireme.Trainer(net, sgd(net.parameters()), kvstore=None)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(loss_of(net, *batch(0, 0))).backward()
    with pytest.raises(UnsupportedError, match="kvstore='dist_sync'"):
        scaler.step(trainer)


@pytest.mark.parametrize("way", ["step", "closure", "merge and update"])
def test_every_way_to_step(store, way):
    made = layer(store)
    plain = plain_like(made.to_embedding().weight.detach())
    net = Net(made)
    trainer = bireme.Trainer(net, sgd(net.parameters()), kvstore=store, update_on_kvstore=False)
    optimizer = sgd(plain.parameters())
    for step in range(STEPS):
        ids, label = batch(step, 0)

        def compute(model, stepper, ids=ids, label=label):
            stepper.zero_grad()
            loss = loss_of(model, ids, label)
            loss.backward()
            return loss

        if way == "closure":
            trainer.step(lambda compute=compute: compute(net, trainer))
        else:
            compute(net, trainer)
            if way == "step":
                trainer.step()
            else:
                trainer.allreduce_grads(num_samples=[len(ids)])
                trainer.update()
        compute(plain, optimizer)
        optimizer.step()
    torch.testing.assert_close(
        made.to_embedding().weight, plain.embedding.weight, rtol=1e-6, atol=1e-9
    )
    torch.testing.assert_close(net.line.weight, plain.line.weight, rtol=1e-6, atol=1e-9)


def test_gradients_leave_early_and_rows_with_the_step(store):
    made = layer(store)
    plain = plain_like(made.to_embedding().weight.detach())
    net = Net(made)
    optimizer = sgd(plain.parameters())
    trainer = bireme.Trainer(net, sgd(net.parameters()), kvstore=store, overlap=True)
    for step in range(STEPS):
        for model, stepper in ((net, trainer), (plain, optimizer)):
            stepper.zero_grad()
            loss_of(model, *batch(step, 0)).backward()
            stepper.step()
    trainer.synchronize()
    torch.testing.assert_close(
        made.to_embedding().weight, plain.embedding.weight, rtol=1e-6, atol=1e-9
    )
    torch.testing.assert_close(net.line.weight, plain.line.weight, rtol=1e-6, atol=1e-9)
    trainer.close()
