"""Training that survives: state that can be committed, restored and shared.

For jobs of fixed membership ``run`` restores the last commit after a failed operation and goes on.
"""

from collections.abc import Callable
from typing import Any

from bireme.horovod.common.elastic import run_fn
from bireme.horovod.torch.elastic.sampler import ElasticSampler as ElasticSampler
from bireme.horovod.torch.elastic.state import TorchState as TorchState
from bireme.horovod.torch.mpi_ops import init, shutdown

__all__ = ("ElasticSampler", "TorchState", "run")


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``func`` so that it starts again from the last commit when an operation fails.

    Args:
        func: Takes the state first. Operations before it and after it are not repeated.

    Example::

        @hvd.elastic.run
        def train(state):
            for state.epoch in range(state.epoch, 10):
                ...
                state.commit()
    """
    return run_fn(func, _reset)


def _reset() -> None:
    shutdown()
    init()
