"""Jobs of the overlap tests: one training, with and without overlap, on every worker's thread."""

import torch
from tests.integration.jobs import run_threads
from tests.seeding import seeded
from torch import nn
from torch.nn import functional

import bireme

NUM_WORKERS = 2


class Net(nn.Module):
    """A tied embedding, a branch that not every batch uses, and a weight used functionally."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(12, 8)
        self.attend = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.branch = nn.Linear(8, 8)
        self.hidden = nn.Linear(8, 40)
        self.back = nn.Linear(40, 8, bias=False)
        self.never = nn.Linear(2, 2)
        self.decode = nn.Linear(8, 12, bias=False)
        self.decode.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor, branch: bool = False) -> torch.Tensor:
        """Return logits."""
        x = self.embed(tokens)
        x = self.norm(x + self.attend(x, x, x, need_weights=False)[0])
        if branch:
            x = x + self.branch(x)
        x = functional.relu(functional.linear(x, self.hidden.weight, self.hidden.bias))
        return self.decode(self.back(x))


def net(seed: int = 3) -> Net:
    """Return a network with the same weights every time."""
    with seeded(seed):
        return Net()


def batch(rank: int, step: int, size: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    """Return tokens and targets that are a worker's own."""
    source = torch.Generator().manual_seed(100 * rank + step)
    tokens = torch.randint(0, 12, (size, 5), generator=source)
    return tokens, torch.randint(0, 12, (size, 5), generator=source)


def loss_of(model: nn.Module, rank: int, step: int, size: int = 4, **more: bool) -> torch.Tensor:
    """Return the mean loss of a worker's batch."""
    tokens, targets = batch(rank, step, size)
    return functional.cross_entropy(model(tokens, **more).flatten(0, 1), targets.flatten())


def params_of(model: nn.Module) -> list[torch.Tensor]:
    """Return copies of all parameters."""
    return [value.clone() for value in model.state_dict().values()]


def train(work, *, overlap, num_workers=NUM_WORKERS, **options):
    """Run ``work(model, trainer, rank)`` on every worker; return what each returned.

    Args:
        work: Trains; what it returns is compared.
        overlap: Of the trainer.
        num_workers: Workers of the job.
        options: Of the trainer, such as ``update_on_kvstore``.
    """
    options = {"optimizer_params": {"lr": 0.1, "momentum": 0.9}} | options
    kind = options.pop("store", "dist_sync")

    def worker(session):
        with session.store(kind) as store:
            model = net(seed=3 + store.rank)
            trainer = bireme.Trainer(model, "sgd", store, overlap=overlap, **options)
            try:
                return work(model, trainer, store.rank)
            finally:
                trainer.close()

    torch.set_num_threads(1)
    return run_threads(num_workers, 2, worker, slice_bytes=256)


def assert_same(work, **options):
    """Every worker returns the same bits with overlap as without, and as every other worker."""
    off = train(work, overlap=False, **options)
    on = train(work, overlap=True, **options)
    for found in (*off, *on):
        assert len(found) == len(off[0]) > 0
        for value, expected in zip(found, off[0], strict=True):
            assert torch.equal(value, expected)


def calls_of(trainer):
    """Record the store's calls of a trainer from now on: names and priority of each."""
    store, calls = trainer.kvstore, []
    begin = store.pushpull_async

    def record(keys, values, outs, priority):
        calls.append(([key.partition("/")[2] for key in keys], priority))
        return begin(keys, values, outs, priority)

    store.pushpull_async = record
    return calls
