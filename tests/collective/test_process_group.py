from datetime import timedelta
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from tests.collective.groups import checked, run_ranks

from bireme.errors import ConfigError, MismatchError, StateError, WaitTimeout


def options(**values):
    """Stand in for c10d's options of any kind."""
    return SimpleNamespace(asyncOp=False, **values)


def filled(group, *shape):
    return torch.full(shape, float(group.rank() + 1))


def test_names_and_sizes():
    def work(group):
        return group.name(), group.rank(), group.size()

    assert checked(run_ranks(2, work)) == [("bireme", 0, 2), ("bireme", 1, 2)]


def test_all_reduce_in_every_form_of_the_call():
    def work(group):
        found = []
        for call in (
            lambda t: group.allreduce([t]),
            lambda t: group.allreduce(t),
            lambda t: group.allreduce([t], dist.AllreduceOptions()),
            lambda t: group.allreduce(t, dist.ReduceOp.SUM),
            lambda t: group.allreduce(t, dist.ReduceOp.SUM, timedelta(seconds=5)),
            lambda t: group.allreduce_coalesced([t, t.clone()]),
        ):
            tensor = filled(group, 3)
            call(tensor).wait()
            found.append(tensor.tolist())
        return found

    assert checked(run_ranks(3, work)) == [[[6.0] * 3] * 6] * 3


def test_tensors_that_are_not_contiguous_come_back_right():
    def work(group):
        base = torch.zeros(4, 6)
        view = base.t()[1:5:2]
        view.fill_(group.rank() + 1.0)
        group.allreduce([view], options(reduceOp=dist.ReduceOp.SUM))
        conjugate = torch.full((2,), 1 + 1j * (group.rank() + 1)).conj()
        group.allreduce([conjugate], options(reduceOp=dist.ReduceOp.SUM))
        return base.sum().item(), view.tolist(), conjugate.tolist()

    for total, view, conjugate in checked(run_ranks(2, work)):
        assert view == [[3.0] * 4] * 2
        assert total == 24.0
        assert conjugate == [2 - 3j] * 2


def test_scalars_and_empty_tensors():
    def work(group):
        scalar, empty = torch.tensor(2.0), torch.empty(0, 5)
        group.allreduce([scalar]).wait()
        group.allreduce([empty]).wait()
        group.broadcast([empty], options(rootRank=0))
        gathered = torch.empty(0)
        group.all_gather_single(gathered, torch.empty(0), options())
        parts = torch.empty(0)
        group.reduce_scatter_single(parts, torch.empty(0), options(reduceOp=dist.ReduceOp.SUM))
        group.all_to_all_single(empty.clone(), empty, [], [], options())
        return scalar.item()

    assert checked(run_ranks(2, work)) == [4.0, 4.0]


def test_gathering():
    def work(group):
        into = torch.empty(2, 3)
        group.all_gather_single(into, filled(group, 3), options())
        lists = [torch.empty(1, 3), torch.empty(1, 3)]
        group.allgather([lists], [filled(group, 1, 3)], options())
        many = [[torch.empty(2), torch.empty(1)] for _ in range(2)]
        group.allgather_coalesced(many, [filled(group, 2), filled(group, 1)], options())
        root = [[torch.empty(2), torch.empty(2)]] if group.rank() == 1 else []
        group.gather(root, [filled(group, 2)], options(rootRank=1))
        return into.tolist(), torch.cat(lists).tolist(), many, root

    for rank, (into, lists, many, root) in enumerate(checked(run_ranks(2, work))):
        assert into == lists == [[1.0] * 3, [2.0] * 3]
        assert [[each.tolist() for each in row] for row in many] == [[[1, 1], [1]], [[2, 2], [2]]]
        assert rank == 0 or [each.tolist() for each in root[0]] == [[1, 1], [2, 2]]


def test_scattering():
    def work(group):
        given = [[torch.tensor([1.0]), torch.tensor([2.0])]] if group.rank() == 0 else []
        one = torch.empty(1)
        group.scatter([one], given, options(rootRank=0))
        part = torch.empty(2)
        whole = torch.arange(4.0) * (group.rank() + 1)
        group.reduce_scatter_single(part, whole, options(reduceOp=dist.ReduceOp.SUM))
        listed = torch.empty(2)
        group.reduce_scatter(
            [listed], [[whole[:2], whole[2:]]], options(reduceOp=dist.ReduceOp.MAX)
        )
        exchanged = torch.empty(2, 2)
        group.all_to_all_single(
            exchanged, torch.arange(4.0).view(2, 2) + 10 * group.rank(), [], [], options()
        )
        uneven = torch.empty(3 - group.rank())
        splits = ([1, 1], [2, 1]) if group.rank() else ([1, 2], [1, 1])
        group.all_to_all_single(
            uneven, torch.arange(sum(splits[1])) + 10.0 * group.rank(), *splits, options()
        )
        several = [torch.empty(1), torch.empty(1)]
        group.alltoall(several, list(torch.arange(2.0).split(1)), options())
        return [each.tolist() for each in (one, part, listed, exchanged, uneven, *several)]

    first, second = checked(run_ranks(2, work))
    assert first == [[1], [0, 3], [0, 2], [[0, 1], [10, 11]], [0, 10, 11], [0], [0]]
    assert second == [[2], [6, 9], [4, 6], [[2, 3], [12, 13]], [1, 12], [1], [1]]


def test_broadcast_reduce_and_barrier():
    def work(group):
        tensor = filled(group, 2)
        group.broadcast([tensor], options(rootRank=2))
        other = filled(group, 2)
        group.reduce([other], options(rootRank=1, reduceOp=dist.ReduceOp.PRODUCT))
        group.barrier(options())
        group.barrier().wait()
        return tensor[0].item(), other[0].item()

    assert checked(run_ranks(3, work)) == [(3.0, 1.0), (3.0, 6.0), (3.0, 3.0)]


def test_messages_between_two_ranks():
    def work(group):
        if group.rank() == 0:
            group.send([torch.tensor([5.0])], 2, 7).wait()
        if group.rank() == 2:
            tensor = torch.zeros(1)
            group.recv([tensor], 0, 7).wait()
            with pytest.raises(ConfigError, match="contiguous"):
                group.recv([torch.zeros(4)[::2]], 0, 7)
            with pytest.raises(ConfigError, match="no rank 3"):
                group.send([tensor], 3)
            return tensor.item()
        return None

    assert checked(run_ranks(3, work)) == [None, None, 5.0]


def test_many_operations_at_once_end_in_their_order():
    def work(group):
        tensors = [torch.full((number * 100,), 1.0 * number) for number in range(60)]
        works = [group.allreduce([tensor]) for tensor in tensors]
        works[-1].wait()
        assert all(work.is_completed() for work in works)
        return [tensor.sum().item() for tensor in tensors]

    want = [number * number * 300.0 for number in range(60)]
    assert checked(run_ranks(3, work)) == [want] * 3


def test_wrong_calls_are_refused_at_once_and_change_nothing():
    def work(group):
        one = torch.ones(3)
        wrong = [
            lambda: group.broadcast([one], options(rootRank=2)),
            lambda: group.allreduce([one.to("meta")]),
            lambda: group.allreduce([one.to_sparse()], options(reduceOp=dist.ReduceOp.MAX)),
            lambda: group.allreduce([one.to_sparse(), one]),
            lambda: group.broadcast([one.to_sparse()], options(rootRank=0)),
            lambda: group.allreduce([one], options(reduceOp=dist.ReduceOp.BAND)),
            lambda: group.allgather([[one]], [one], options()),
            lambda: group.allgather([[one, one.double()]], [one], options()),
            lambda: group.all_gather_single(torch.ones(5), one, options()),
            lambda: group.all_gather_single(torch.ones(6).double(), one, options()),
            lambda: group.reduce_scatter([one], [[one, torch.ones(4)][:: 1 - 2 * group.rank()]]),
            lambda: group.gather([[one, one, one]], [one], options(rootRank=group.rank())),
            lambda: group.scatter([one], [[one, torch.ones(2)]], options(rootRank=group.rank())),
            lambda: group.all_to_all_single(one, one, [], [], options()),
            lambda: group.all_to_all_single(one, one, [1, 1], [2, 1], options()),
            lambda: group.all_to_all_single(one, one.double(), [1, 2], [2, 1], options()),
        ]
        found = []
        for number, call in enumerate(wrong):
            try:
                work = call()
                work.wait()
            except ConfigError:
                continue
            except Exception as error:
                found.append((number, error))
            else:
                found.append((number, "passed"))
        group.allreduce([one]).wait()
        return found, one.tolist()

    for found, one in checked(run_ranks(2, work)):
        assert [number for number, _ in found] in ([], [10])
        assert one == [2.0] * 3


def test_different_calls_are_told_to_all_and_the_next_is_right():
    def work(group):
        tensor = torch.ones(4 + group.rank())
        with pytest.raises(MismatchError, match="rank 1: all_reduce sum of 5"):
            group.allreduce([tensor]).wait()
        group.allreduce([tensor[:4]]).wait()
        return tensor[:4].tolist()

    assert checked(run_ranks(2, work)) == [[2.0] * 4] * 2


def test_a_missing_rank_is_named_within_the_timeout_of_the_call_or_group():
    def work(group):
        if group.rank() == 1:
            return None
        with pytest.raises(WaitTimeout, match="rank 1 did not take part"):
            group.allreduce(
                [torch.ones(1)], options(reduceOp=dist.ReduceOp.SUM, timeout=timedelta(seconds=0.2))
            )
        with pytest.raises(StateError, match="rank 1 did not take part"):
            group.barrier(options())
        return "told"

    assert run_ranks(2, work) == ["told", None]


def test_a_timeout_of_the_group_can_be_changed():
    def work(group):
        if group.rank() == 0:
            group.set_timeout(timedelta(seconds=0.2))
            with pytest.raises(WaitTimeout):
                group.barrier().wait()
        return "told"

    assert checked(run_ranks(2, work)) == ["told"] * 2


def test_a_group_that_was_shut_down_says_so():
    def work(group):
        pending = group.allreduce([torch.ones(1)]) if group.rank() == 0 else None
        if group.rank() == 0:
            group.shutdown()
            with pytest.raises(StateError):
                pending.wait()
            with pytest.raises(StateError, match="destroyed"):
                group.barrier()
        return "told"

    assert checked(run_ranks(2, work)) == ["told"] * 2
