"""The peer of bench_end_to_end.py: DistributedDataParallel on Gloo, with its own hooks."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import e2e_models as models

VARIANTS = ("DDP", "DDP, fp16 hook", "DDP, PowerSGD hook")


class Worker:
    """Holds one model for each variant between two timings: a hook is for a model's life."""

    def __init__(self) -> None:
        self.sides: dict[str, tuple[nn.Module, torch.optim.Optimizer]] = {}

    def prepare(self, name: str, batch_size: int) -> dict[str, object]:
        """Make the models and their batches."""
        self.sides.clear()
        self.batches = models.batches(dist.get_rank(), batch_size)
        for variant in VARIANTS:
            # With several buckets this hook's collectives are begun by callbacks, in another order
            # on each rank, which ends the job on Gloo.
            cap_mb = 1000 if variant == "DDP, PowerSGD hook" else 25
            model = DistributedDataParallel(models.make(name), bucket_cap_mb=cap_mb)
            if variant == "DDP, fp16 hook":
                model.register_comm_hook(None, default_hooks.fp16_compress_hook)
            elif variant == "DDP, PowerSGD hook":
                state = powerSGD_hook.PowerSGDState(
                    process_group=None, matrix_approximation_rank=1, start_powerSGD_iter=2
                )
                model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
            optimizer = torch.optim.SGD(model.parameters(), lr=models.LR, momentum=0.9)
            self.sides[variant] = (model, optimizer)
        return {"parameters": sum(each.numel() for each in model.parameters())}

    def steps(self, variant: str, count: int) -> dict[str, object]:
        """Time some steps of one variant."""
        model, optimizer = self.sides[variant]
        dist.barrier()
        return models.timed(
            lambda number: models.step(model, optimizer, self.batches[number % len(self.batches)]),
            count,
        )


def main() -> None:
    """Join the group and answer cases until the socket closes."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    worker = Worker()
    models.serve(dist.get_rank(), {"prepare": worker.prepare, "steps": worker.steps})
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
