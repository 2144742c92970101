"""Our side of bench_end_to_end.py: one process of a ``dist_sync`` job, in any role."""

import torch

import e2e_models as models
from bireme import Trainer, kvstore

COMPRESSION = {
    "dist_sync": None,
    "dist_sync, 2bit": {"type": "2bit", "threshold": 0.01},
    "dist_sync, fp16": {"type": "fp16"},
}


class Worker:
    """Holds the model between two timings."""

    def __init__(self, store: kvstore.KVStore) -> None:
        self.store = store
        self.trainer: Trainer | None = None

    def prepare(self, name: str, batch_size: int) -> dict[str, object]:
        """Make a model and its batches."""
        if self.trainer is not None:
            self.close()
        self.model = models.make(name)
        self.batches = models.batches(self.store.rank, batch_size)
        inner = torch.optim.SGD(self.model.parameters(), lr=models.LR, momentum=0.9)
        self.store = kvstore.create("dist_sync")
        # As DDP does: gradients leave while the backward pass runs.
        self.trainer = Trainer(self.model, inner, kvstore=self.store, overlap=True)
        return {"parameters": sum(each.numel() for each in self.model.parameters())}

    def steps(self, variant: str, count: int) -> dict[str, object]:
        """Time some steps of one variant."""
        self.store.set_gradient_compression(COMPRESSION[variant])
        self.store.barrier()
        return models.timed(
            lambda number: models.step(
                self.model, self.trainer, self.batches[number % len(self.batches)]
            ),
            count,
            self.trainer.synchronize,
        )

    def close(self) -> None:
        """Give up the model and its store."""
        assert self.trainer is not None
        self.trainer.close()
        self.store.close()


def main() -> None:
    """Join the job and answer cases until the socket closes."""
    torch.set_num_threads(1)
    store = kvstore.create("dist_sync")
    worker = Worker(store)
    models.serve(store.rank, {"prepare": worker.prepare, "steps": worker.steps})
    worker.close()
    store.close()


if __name__ == "__main__":
    main()
