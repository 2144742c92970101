"""Submits all-reduces to the engine, and remembers those that a step repeats.

Called by `bireme.horovod.torch.allreduce`, which has the names that users know.
"""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from bireme.collective import Collectives, Handle
from bireme.errors import CollectiveError, ConfigError
from bireme.horovod.common.exceptions import NotInitialized
from bireme.horovod.common.process_sets import ProcessSet, id_of
from bireme.horovod.session import CURRENT, Repeat
from bireme.horovod.torch.handles import (
    as_op,
    choose_op,
    dense,
    group_names,
    is_plain,
    put_back,
    refusal,
    submit,
)
from bireme.horovod.torch.untraced import untraced

__all__ = ("start_all", "start_in_place", "start_one")


@untraced
def start_in_place(
    tensor: Tensor,
    average: bool | None,
    name: str | None,
    op: int | None,
    prescale_factor: float,
    postscale_factor: float,
    process_set: ProcessSet,
) -> int:
    """Submit an allreduce of one tensor in place, and have the session know one like it again."""
    scales = (prescale_factor, postscale_factor)
    chosen = choose_op(op, average) if op is None or average is not None else op
    number = start_one(tensor, name, chosen, scales, process_set, in_place=True)
    pending = CURRENT.pending.get(number)
    # Another thread may have shut everything down since.
    if name is not None and pending is not None:
        set_id = id_of(process_set)
        call = (name, set_id, (average, op, *scales))
        CURRENT.remember(call, Repeat((set_id, pending[0].name), (as_op(chosen), scales)))
    return number


def start_one(
    tensor: Tensor,
    name: str | None,
    op: int,
    scales: tuple[float, float],
    process_set: ProcessSet,
    *,
    in_place: bool = False,
) -> int:
    """Submit an allreduce of one tensor: a step has hundreds of these, so with few objects."""
    if not is_plain(tensor):
        return start_all([tensor], name, op, scales, process_set, in_place=in_place)
    try:
        engine, set_id = CURRENT.engine, id_of(process_set)
        reduce_op, sent = as_op(op), [tensor]
        whole = CURRENT.name_of("allreduce", name, set_id)
        try:
            handle = engine.allreduce(
                sent,
                names=[whole],
                op=reduce_op,
                prescale=scales[0],
                postscale=scales[1],
                outs=sent if in_place else None,
                process_set=set_id,
            )
        except ConfigError:
            CURRENT.uncount("allreduce", name, set_id)
            raise
    except (NotInitialized, CollectiveError) as error:
        raise refusal(error) from error
    return CURRENT.number_of((set_id, whole), (handle, _first, sent))


def _first(results: list[Tensor]) -> Tensor:
    return results[0]


def start_all(
    tensors: Sequence[Tensor],
    name: str | None,
    op: int,
    scales: tuple[float, float],
    process_set: ProcessSet,
    *,
    in_place: bool = False,
    is_group: bool = False,
) -> int:
    """Submit an allreduce of one tensor or a group."""
    tensors = list(tensors)
    sent = dense(tensors)
    reduce_op = as_op(op)

    def start(engine: Collectives, whole: str, set_id: int) -> Handle:
        return engine.allreduce(
            sent,
            names=group_names(whole, len(sent)) if is_group else [whole],
            op=reduce_op,
            prescale=scales[0],
            postscale=scales[1],
            outs=sent if in_place else None,
            process_set=set_id,
        )

    finish = _Finish(tensors if in_place else None, is_group)
    kind = "grouped_allreduce" if is_group else "allreduce"
    return submit(kind, name, process_set, start, finish, sent)


class _Finish:
    """Makes what `synchronize` returns. Not a closure: those are many objects for each call."""

    __slots__ = ("_is_group", "_tensors")

    def __init__(self, tensors: Sequence[Tensor] | None, is_group: bool) -> None:
        self._tensors = tensors
        self._is_group = is_group

    def __call__(self, results: list[Tensor]) -> Any:
        done = results if self._tensors is None else put_back(self._tensors, results)
        return tuple(done) if self._is_group else done[0]
