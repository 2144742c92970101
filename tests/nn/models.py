"""A small model with an embedding, its data, and the same model in plain torch."""

import torch
from torch import nn

from bireme.nn import ShardedEmbedding

NUM_ROWS, DIM, STEPS = 30, 4, 6


class Net(nn.Module):
    """The mean of some rows, then a line."""

    def __init__(self, embedding):
        super().__init__()
        self.embedding = embedding
        self.line = nn.Linear(DIM, 1, dtype=torch.float64)
        with torch.no_grad():
            self.line.weight.copy_(torch.arange(1.0, DIM + 1) / DIM)
            self.line.bias.zero_()

    def forward(self, ids):
        return self.line(self.embedding(ids).mean(1))


def layer(store, **options):
    options = {"name": "rows", "dtype": torch.float64, "kvstore": store, **options}
    return ShardedEmbedding(NUM_ROWS, DIM, **options)


def batch(step, rank, low=4):
    """Batches of unequal size, with duplicates within and between workers."""
    generator = torch.Generator().manual_seed(100 * step + rank)
    size = low + 2 * rank
    ids = torch.randint(0, NUM_ROWS, (size, 3), generator=generator)
    return ids, torch.randn(size, 1, generator=generator, dtype=torch.float64)


def loss_of(net, ids, label):
    return ((net(ids) - label) ** 2).mean()


def reference(first, make_optimizer, num_workers, sparse=False):
    """Train the model in plain torch on the batches of all workers together."""
    embedding = nn.Embedding(NUM_ROWS, DIM, dtype=torch.float64, sparse=sparse)
    embedding.weight.data.copy_(first)
    net = Net(embedding)
    optimizer = make_optimizer(net.parameters())
    for step in range(STEPS):
        parts = [batch(step, rank) for rank in range(num_workers)]
        ids, label = (torch.cat(each) for each in zip(*parts, strict=True))
        optimizer.zero_grad()
        loss_of(net, ids, label).backward()
        optimizer.step()
    return net
