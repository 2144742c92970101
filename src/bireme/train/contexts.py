"""One copy of a net per context, all computing at the same time.

:class:`bireme.Module` decides who gets which samples; this shell copies the net, keeps a thread
(and on CUDA a stream) per context, and runs a function on every slice.
"""

import contextlib
import copy
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

import torch
from torch import nn

from bireme.errors import ConfigError
from bireme.train import nested, split
from bireme.types import Context

__all__ = ("Computed", "Loss", "Replica", "Replicas", "call_net", "contexts_of")

T = TypeVar("T")

Loss: TypeAlias = Callable[..., torch.Tensor]
"""``loss(pred, label)`` returns the mean over the samples that it was given."""


@dataclass(frozen=True, slots=True, eq=False)
class Replica:
    """The copy of the net, and of the loss, that one context computes with."""

    context: Context
    device: torch.device
    net: nn.Module
    loss: Loss | None
    stream: torch.cuda.Stream | None
    """Where a GPU context among several computes; else ``None``."""


@dataclass(frozen=True, slots=True, eq=False)
class Computed(Generic[T]):
    """What one context made of its slice."""

    value: T
    seconds: float
    """Time the context took; on a GPU, until its kernels were queued or, when measured, done."""


class Replicas:
    """Copies of one net that compute side by side.

    The first context keeps the caller's own ``net`` where it is there already. With one context
    everything runs in the caller's thread. With several, each has a thread of its own for as
    long as this object lives, and CPU contexts share the cores that ``torch.get_num_threads()``
    grants the caller, whose own setting stays as it is.

    Args:
        net: The net; every parameter initialised, on one device.
        loss: The loss; a ``torch.nn.Module`` is copied to each context like the net.
        contexts: Where to compute, each named once.

    Raises:
        ConfigError: A context does not exist or is named twice, the net has uninitialised
            parameters or is spread over devices, or the loss has parameters to train.

    Guarantees:
        An error in one context reaches the caller with its own type and a note that names the
        context, after every context has finished, so no thread is left inside a net.
    """

    def __init__(self, net: nn.Module, loss: Loss | None, contexts: Sequence[Context]) -> None:
        _check_net(net)
        _check_loss(loss)
        if len(set(contexts)) < len(contexts):
            raise ConfigError(f"a context is named twice in {list(contexts)}; name each once")
        devices = [split.device_of(context) for context in contexts]
        self._replicas = tuple(
            _replicate(net, loss, context, device, keep=index == 0, alone=len(contexts) == 1)
            for index, (context, device) in enumerate(zip(contexts, devices, strict=True))
        )
        self._threads = _start_threads(contexts) if len(contexts) > 1 else []

    def __len__(self) -> int:
        return len(self._replicas)

    def __iter__(self) -> Iterator[Replica]:
        return iter(self._replicas)

    @property
    def first(self) -> Replica:
        """The first context's replica."""
        return self._replicas[0]

    def run(
        self,
        function: Callable[[Replica, nested.Nested], T],
        slices: Sequence[nested.Nested | None],
        *,
        measured: bool = False,
    ) -> list[Computed[T] | None]:
        """Call ``function(replica, slice)`` in every context at once and return the results.

        Args:
            function: Runs in the context's thread, with its stream current and the caller's
                gradient and autocast modes; it must not keep the slice.
            slices: One per context, anywhere; moved to the context before the call. ``None``
                skips the context, and its result is ``None``.
            measured: Wait for GPU kernels, so that ``seconds`` is the time they took.

        Raises:
            Exception: What ``function`` raised, with a note that names the context.
        """
        tasks = [
            None if slice_ is None else _Task(replica, function, slice_, measured)
            for replica, slice_ in zip(self._replicas, slices, strict=True)
        ]
        if not self._threads:
            return [None if task is None else task() for task in tasks]
        futures: list[Future[Computed[T]] | None] = [
            None if task is None else thread.submit(task)
            for thread, task in zip(self._threads, tasks, strict=True)
        ]
        wait([future for future in futures if future is not None])
        for replica, future in zip(self._replicas, futures, strict=True):
            if replica.stream is not None and future is not None:
                torch.cuda.current_stream(replica.device).wait_stream(replica.stream)
        return [None if future is None else future.result() for future in futures]


class _Task(Generic[T]):
    """One call in one context; takes over the modes of the thread that makes it."""

    def __init__(
        self,
        replica: Replica,
        function: Callable[[Replica, nested.Nested], T],
        slice_: nested.Nested,
        measured: bool,
    ) -> None:
        self._replica, self._function, self._slice = replica, function, slice_
        self._measured = measured
        self._grad = torch.is_grad_enabled()
        kind = replica.device.type
        enabled = torch.is_autocast_enabled(kind)
        self._autocast_dtype = torch.get_autocast_dtype(kind) if enabled else None
        on_stream = replica.stream is not None
        self._caller = torch.cuda.current_stream(replica.device) if on_stream else None

    def __call__(self) -> Computed[T]:
        replica = self._replica
        try:
            with self._modes():
                start_s = time.perf_counter()
                value = self._function(replica, split.move(self._slice, replica.device))
                if self._measured and replica.stream is not None:
                    replica.stream.synchronize()
                return Computed(value, time.perf_counter() - start_s)
        except Exception as error:
            error.add_note(f"raised in context {replica.context}")
            raise

    @contextlib.contextmanager
    def _modes(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            stream = self._replica.stream
            if self._replica.device.type == "cuda":
                stack.enter_context(torch.cuda.device(self._replica.device))
            if stream is not None and self._caller is not None:
                # The caller's stream may still be writing what the context will read.
                stream.wait_stream(self._caller)
                stack.enter_context(torch.cuda.stream(stream))
            stack.enter_context(torch.set_grad_enabled(self._grad))
            if self._autocast_dtype is not None:
                kind = self._replica.device.type
                stack.enter_context(torch.autocast(kind, dtype=self._autocast_dtype))
            yield


def call_net(net: nn.Module, data: nested.Nested) -> nested.Nested:
    """Return ``net`` of one batch of inputs.

    A tuple or list becomes positional arguments, a dict keyword arguments, anything else the
    one argument.

    Example:
        >>> call_net(nn.Bilinear(1, 1, 1), (torch.ones(3, 1), torch.ones(3, 1))).shape
        torch.Size([3, 1])
    """
    if isinstance(data, dict):
        return net(**data)
    if isinstance(data, tuple | list):
        return net(*data)
    return net(data)


def contexts_of(
    net: nn.Module, context: split.ContextLike | Sequence[split.ContextLike] | None
) -> list[Context]:
    """Return the contexts to compute in; ``None`` is where ``net`` is.

    Raises:
        ConfigError: The list is empty, or an entry is no context.

    Example:
        >>> contexts_of(nn.Linear(1, 1), None)
        [cpu(0)]
    """
    if context is None:
        parameter = next(net.parameters(), None)
        return [split.as_context(parameter.device if parameter is not None else "cpu")]
    if isinstance(context, str | Context | torch.device):
        return [split.as_context(context)]
    if not isinstance(context, Iterable):
        raise ConfigError(
            f"context must be a context such as bireme.gpu(0), or a list of them, got {context!r}"
        )
    contexts = [split.as_context(entry) for entry in context]
    if not contexts:
        raise ConfigError("context is an empty list; name one context at least")
    return contexts


def _check_net(net: nn.Module) -> None:
    lazy = [name for name, p in net.named_parameters() if nn.parameter.is_lazy(p)]
    if lazy:
        raise ConfigError(
            f"parameter {lazy[0]!r} has no shape yet; run one batch through the net first, so "
            "that every context starts from the same values"
        )
    devices = {str(parameter.device) for parameter in net.parameters()}
    if len(devices) > 1:
        raise ConfigError(f"the net is spread over {sorted(devices)}; move it to one device")


def _check_loss(loss: Loss | None) -> None:
    if loss is not None and not callable(loss):
        raise ConfigError(
            f"loss must be callable as loss(pred, label), got {loss!r}; for example "
            "torch.nn.functional.cross_entropy"
        )
    if isinstance(loss, type):
        raise ConfigError(f"loss is the class {loss.__name__}; pass an object: {loss.__name__}()")
    if isinstance(loss, nn.Module) and any(p.requires_grad for p in loss.parameters()):
        raise ConfigError("the loss has parameters to train; make it a part of the net")


def _replicate(
    net: nn.Module,
    loss: Loss | None,
    context: Context,
    device: torch.device,
    *,
    keep: bool,
    alone: bool,
) -> Replica:
    mine = net if keep and _is_on(net, device) else copy.deepcopy(net).to(device)
    if isinstance(loss, nn.Module) and not (keep and _is_on(loss, device)):
        loss = copy.deepcopy(loss).to(device)
    # One context alone computes in the caller's thread, and so on the caller's stream.
    stream: torch.cuda.Stream | None = None
    if device.type == "cuda" and not alone:
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    return Replica(context, device, mine, loss, stream)


def _is_on(module: nn.Module, device: torch.device) -> bool:
    tensors = itertools.chain(module.parameters(), module.buffers())
    return all(tensor.device == device for tensor in tensors)


def _start_threads(contexts: Sequence[Context]) -> list[ThreadPoolExecutor]:
    """Start one thread per context, and share the caller's cores among the CPU contexts.

    ``torch.set_num_threads`` sets the calling thread's OpenMP team, and besides the default of
    threads that start later; the caller's own value is therefore set again at the end.
    """
    granted = torch.get_num_threads()
    num_cpus = sum(context.kind == "cpu" for context in contexts)
    threads = []
    for context in contexts:
        threads.append(ThreadPoolExecutor(1, thread_name_prefix=f"bireme-{context}"))
        if context.kind == "cpu":
            threads[-1].submit(_use_cores, max(1, granted // num_cpus)).result()
    torch.set_num_threads(granted)
    return threads


def _use_cores(num_cores: int) -> None:
    # The first call in a thread adopts the process's default, which would undo what was set.
    torch.get_num_threads()
    torch.set_num_threads(num_cores)
