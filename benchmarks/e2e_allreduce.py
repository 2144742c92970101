"""Our side of bench_end_to_end.py without servers: one process of an ``allreduce`` job."""

import torch

import e2e_models as models
from bireme import Trainer, kvstore


class Worker:
    """Holds the model between two timings."""

    def __init__(self, store: kvstore.KVStore) -> None:
        self.store = store

    def prepare(self, name: str, batch_size: int) -> dict[str, object]:
        """Make a model and its batches."""
        self.store.close()
        self.model = models.make(name)
        self.batches = models.batches(self.store.rank, batch_size)
        inner = torch.optim.SGD(self.model.parameters(), lr=models.LR, momentum=0.9)
        self.store = kvstore.create("allreduce")
        self.trainer = Trainer(self.model, inner, kvstore=self.store, overlap=True)
        return {"parameters": sum(each.numel() for each in self.model.parameters())}

    def steps(self, variant: str, count: int) -> dict[str, object]:
        """Time some steps of one variant."""
        assert variant == "allreduce", variant
        self.store.barrier()
        return models.timed(
            lambda number: models.step(
                self.model, self.trainer, self.batches[number % len(self.batches)]
            ),
            count,
            self.trainer.synchronize,
        )


def main() -> None:
    """Join the job and answer cases until the socket closes."""
    torch.set_num_threads(1)
    store = kvstore.create("allreduce")
    worker = Worker(store)
    models.serve(store.rank, {"prepare": worker.prepare, "steps": worker.steps})
    worker.store.close()


if __name__ == "__main__":
    main()
