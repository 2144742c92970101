"""Predict clicks from ids: an embedding of any number of rows, on the servers only.

    python examples/embedding_ctr.py                                       one process
    bireme run -n 2 -s 2 python examples/embedding_ctr.py                  a cluster, in rounds
    bireme run -n 2 -s 2 python examples/embedding_ctr.py --kv-store dist_async

The data are made up, with a structure worth learning: every impression has an id in each of several
fields, few ids are frequent and most are rare (Zipf), and whether it is clicked is drawn from a
factorisation machine that is planted. So the best possible AUC is known, and what is learned from a
finite number of impressions is shown beside it.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn

import bireme
import options

PLANTED_DIM = 4
TEST_BATCHES = 8
FIELD_BITS = 40


class Clicks:
    """Impressions, batch by batch, each a function of its number.

    Args:
        args: The script's options.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        self.num_fields, self.num_ids = args.fields, args.ids
        random = np.random.default_rng(7)
        shape = (args.fields, args.ids)
        self.weights = random.normal(0.0, 0.5, shape).astype(np.float32)
        self.factors = random.normal(0.0, 0.4, (*shape, PLANTED_DIM)).astype(np.float32)
        frequency = 1.0 / np.arange(1, args.ids + 1) ** args.zipf
        self.cumulated = np.cumsum(frequency / frequency.sum())

    def batch(self, number: int, size: int) -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
        """Return ids of shape ``(size, fields)``, clicks, and the planted logits."""
        random = np.random.default_rng([11, number])
        ranks = self.cumulated.searchsorted(random.random((size, self.num_fields)))
        ranks = np.minimum(ranks, self.num_ids - 1)
        fields = np.arange(self.num_fields)
        logits = -1.0 + self.weights[fields, ranks].sum(1)
        logits += pairs(torch.from_numpy(self.factors[fields, ranks])).numpy()
        clicks = random.random(size) < 1.0 / (1.0 + np.exp(-logits))
        # Any int64 is an id: the field and the id within it, without a vocabulary.
        ids = torch.from_numpy(fields.astype(np.int64) << FIELD_BITS | ranks)
        return ids, torch.from_numpy(clicks.astype(np.float32)), logits


def pairs(factors: torch.Tensor) -> torch.Tensor:
    """Return the sum of the inner products of all pairs of fields."""
    return ((factors.sum(1) ** 2).sum(1) - (factors**2).sum((1, 2))) / 2


class FactorisationMachine(nn.Module):
    """A weight and a vector for each id; clicks depend on weights and on pairs of vectors."""

    def __init__(self, args: argparse.Namespace, store: bireme.kvstore.KVStoreBase) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(1))
        self.rows = bireme.nn.ShardedEmbedding(
            None,
            1 + args.dim,
            name="ids",
            kvstore=store,
            scale=0.02,
            max_rows=args.max_rows,
            eviction="lru",
        )

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        rows = self.rows(ids)
        return self.bias + rows[:, :, 0].sum(1) + pairs(rows[:, :, 1:])


def auc(scores: np.ndarray, clicks: np.ndarray) -> float:
    """Return the share of pairs of a click and no click that are in the right order."""
    order = np.argsort(scores, kind="stable")
    ranks = np.empty(len(scores))
    ranks[order] = np.arange(1, len(scores) + 1)
    positive = clicks > 0.5
    num = int(positive.sum())
    return (ranks[positive].sum() - num * (num + 1) / 2) / (num * (len(scores) - num))


def evaluate(model: nn.Module, tests: list) -> tuple[float, float]:
    """Return the AUC of the model and that of the planted one."""
    with torch.no_grad():
        scores = np.concatenate([model(ids).numpy() for ids, _, _ in tests])
    clicks = np.concatenate([clicks.numpy() for _, clicks, _ in tests])
    return auc(scores, clicks), auc(np.concatenate([logits for *_, logits in tests]), clicks)


def train(args: argparse.Namespace, store: bireme.kvstore.KVStoreBase) -> None:
    data = Clicks(args)
    model = FactorisationMachine(args, store)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=args.lr)
    trainer = bireme.Trainer(model, optimizer, kvstore=store)
    tests = [data.batch(10**9 + number, 4096) for number in range(TEST_BATCHES)]
    size = max(1, args.batch_size // store.num_workers)
    # Every worker takes as many batches, each its own ones.
    steps = max(1, args.impressions // (size * store.num_workers))
    after = data.batch(store.rank, size)
    for epoch in range(args.num_epochs):
        begun_s, total = time.perf_counter(), 0.0
        for step in range(epoch * steps, (epoch + 1) * steps):
            ids, clicks, _ = after
            trainer.zero_grad()
            loss = nn.functional.binary_cross_entropy_with_logits(model(ids), clicks)
            after = data.batch((step + 1) * store.num_workers + store.rank, size)
            # The rows of the next batch come as they are after this step, while it is done.
            model.rows.prefetch(after[0])
            loss.backward()
            trainer.step(num_samples=size)
            total += loss.item()
        store.barrier()
        if store.rank == 0:
            ours, best = evaluate(model, tests)
            speed = steps * size * store.num_workers / (time.perf_counter() - begun_s)
            counts = model.rows.stats()
            print(
                f"epoch {epoch + 1}: loss {total / steps:.4f}, AUC {ours:.4f} "
                f"(planted {best:.4f}), {counts['rows']} rows in {counts['bytes'] / 1e6:.1f} MB, "
                f"{speed:.0f}/s",
                flush=True,
            )
        store.barrier()
    if args.save:
        model.rows.save(args.save)


def main() -> None:
    parser = options.parser(__doc__)
    whole, positive = options.positive_int, options.positive_float
    parser.add_argument("--kv-store", default="dist_sync", help="dist_sync, dist_async, ...")
    parser.add_argument("--impressions", type=whole, default=300_000, help="new ones, an epoch")
    parser.add_argument("--num-epochs", type=whole, default=3)
    parser.add_argument("--batch-size", type=whole, default=2048, help="of all workers together")
    parser.add_argument("--lr", type=positive, default=0.1, help="Adagrad's learning rate")
    parser.add_argument("--dim", type=whole, default=4, help="elements of an id's vector")
    parser.add_argument("--fields", type=whole, default=8, help="ids of an impression")
    parser.add_argument("--ids", type=whole, default=100_000, help="different ones in a field")
    parser.add_argument("--zipf", type=positive, default=1.5, help="how unlike ids are")
    parser.add_argument("--max-rows", type=whole, help="rows that the servers keep at most")
    parser.add_argument("--save", metavar="FOLDER", help="where to save the table")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with bireme.kvstore.create(args.kv_store) as store:
        train(args, store)


if __name__ == "__main__":
    options.run(main)
