"""Our side of bench_end_to_end.py: one process of a ``dist_sync`` job, in any role."""

import torch

import e2e_models as models
from bireme import Trainer, kvstore

COMPRESSION = {
    "dist_sync": None,
    "dist_sync, 2bit": {"type": "2bit", "threshold": 0.01},
    "dist_sync, fp16": {"type": "fp16"},
    "dist_sync, fp16 gradients": {"type": "fp16"},
}
ON_WORKERS = ("dist_sync, fp16",)
"""Variants whose servers only add, so that answers are gradients and travel compressed too; the
others have the optimizer on the servers, whose answers are weights."""


class Worker:
    """Holds the models between two timings: one for each place of the optimizer."""

    def __init__(self) -> None:
        self.sides: dict[bool, tuple[torch.nn.Module, Trainer, kvstore.KVStore]] = {}

    def prepare(self, name: str, batch_size: int) -> dict[str, object]:
        """Make the models and their batches."""
        self.close()
        for on_servers in (True, False):
            model = models.make(name)
            inner = torch.optim.SGD(model.parameters(), lr=models.LR, momentum=0.9)
            store = kvstore.create("dist_sync")
            # As DDP does: gradients leave while the backward pass runs.
            trainer = Trainer(
                model, inner, kvstore=store, overlap=True, update_on_kvstore=on_servers
            )
            self.sides[on_servers] = model, trainer, store
        self.batches = models.batches(store.rank, batch_size)
        return {"parameters": sum(each.numel() for each in model.parameters())}

    def steps(self, variant: str, count: int) -> dict[str, object]:
        """Time some steps of one variant."""
        model, trainer, store = self.sides[variant not in ON_WORKERS]
        store.set_gradient_compression(COMPRESSION[variant])
        store.barrier()
        return models.timed(
            lambda number: models.step(model, trainer, self.batches[number % len(self.batches)]),
            count,
            trainer.synchronize,
        )

    def close(self) -> None:
        """Give up the models and their stores."""
        for _, trainer, store in self.sides.values():
            trainer.close()
            store.close()
        self.sides.clear()


def main() -> None:
    """Join the job and answer cases until the socket closes."""
    torch.set_num_threads(1)
    store = kvstore.create("dist_sync")
    worker = Worker()
    models.serve(store.rank, {"prepare": worker.prepare, "steps": worker.steps})
    worker.close()
    store.close()


if __name__ == "__main__":
    main()
