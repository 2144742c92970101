"""What every rank checks of Horovod's rules: handles, barriers, errors, joins, new jobs.

``horovod_rules.py FOLDER``, by a launcher.
"""

import os

import pytest
import torch
from tests.integration.programs.hvd_checks import Checks, Half

import bireme.horovod.torch as hvd

check = Checks()


@check
def a_process_finds_itself_in_its_environment():
    for name in ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size"):
        assert os.environ[f"HOROVOD_{name.upper()}"] == str(getattr(hvd, name)())
    assert os.environ["HOROVOD_HOSTNAME"]
    assert os.environ["HOROVOD_CONTROLLER"] == "gloo"


# Handles and barriers.


STARTS = {
    "allreduce": lambda name, **how: hvd.allreduce_async(torch.ones(4), name=name, **how),
    "in place": lambda name, **how: hvd.allreduce_async_(torch.ones(4), name=name, **how),
    "group": lambda name, **how: hvd.grouped_allreduce_async([torch.ones(4)] * 2, name=name, **how),
    "gather": lambda name, **how: hvd.allgather_async(torch.ones(4), name, **how),
    "gathers": lambda name, **how: hvd.grouped_allgather_async([torch.ones(4)], name, **how),
    "broadcast": lambda name, **how: hvd.broadcast_async(torch.ones(4), 0, name, **how),
    "broadcast in place": lambda name, **how: hvd.broadcast_async_(torch.ones(4), 0, name, **how),
    "scatter": lambda name, **how: hvd.reducescatter_async(torch.ones(12), name, **how),
    "scatters": lambda name, **how: hvd.grouped_reducescatter_async([torch.ones(12)], name, **how),
    "exchange": lambda name, **how: hvd.alltoall_async(torch.ones(12), None, name, **how),
}


def start_all(label):
    return [start(f"{label} {kind}") for kind, start in STARTS.items()]


@check
def an_operation_is_not_done_before_all_ranks_have_submitted_it():
    if hvd.rank() == 0:
        numbers = start_all("early")
        assert all(type(number) is int for number in numbers)
        assert not any(hvd.poll(number) for number in numbers)
    hvd.barrier()
    if hvd.rank() != 0:
        numbers = start_all("early")
    for number in numbers:
        while not hvd.poll(number):
            pass
    for number in reversed(numbers):
        assert hvd.synchronize(number) is not None
        assert hvd.synchronize(number) is None
        with pytest.raises(ValueError, match="synchronised already"):
            hvd.poll(number)


@check
def a_barrier_waits_for_every_member_of_its_set_and_for_nobody_else():
    with Half() as half:
        # The odd ranks pass theirs before the even ones reach their own.
        if hvd.rank() % 2 == 0:
            hvd.allreduce(torch.ones(1), name="after the odd ranks")
        hvd.barrier(process_set=half)
        if hvd.rank() % 2:
            hvd.allreduce(torch.ones(1), name="after the odd ranks")
    before = hvd.allreduce_async(torch.ones(1), name="before", op=hvd.Sum)
    if hvd.rank() == 0:
        late = hvd.allreduce_async(torch.ones(1), name="late", op=hvd.Sum)
    hvd.barrier()
    assert hvd.synchronize(before) == hvd.size()
    if hvd.rank() == 0:
        assert not hvd.poll(late)
    hvd.barrier()
    if hvd.rank() != 0:
        late = hvd.allreduce_async(torch.ones(1), name="late", op=hvd.Sum)
    assert hvd.synchronize(late) == hvd.size()


@check
def a_name_used_twice_at_once_is_a_value_error_for_every_operation():
    for kind, start in STARTS.items():
        if hvd.rank() == 0:
            number = start(f"twice {kind}")
            with pytest.raises(ValueError, match=f"twice {kind}.* is under way already"):
                start(f"twice {kind}")
        hvd.barrier()
        if hvd.rank() != 0:
            number = start(f"twice {kind}")
        assert hvd.synchronize(number) is not None


@check
def a_step_that_changes_is_reduced_as_its_last_call_says():
    size = hvd.size()

    def reduced(tensor, **how):
        number = hvd.allreduce_async_(tensor, name="changing", **how)
        return hvd.synchronize(number).tolist()

    for _ in range(3):
        assert reduced(torch.ones(2), op=hvd.Sum) == [size] * 2
        assert reduced(torch.ones(2), op=hvd.Sum) == [size] * 2
        assert reduced(torch.ones(2), op=hvd.Max) == [1] * 2
        assert reduced(torch.ones(2)) == [1] * 2
        assert reduced(torch.ones(2), average=False) == [size] * 2
        for factor in (2.0, 4.0):
            assert reduced(torch.ones(2), op=hvd.Sum, prescale_factor=factor) == [factor * size] * 2
        assert reduced(torch.ones(3, dtype=torch.int64), op=hvd.Sum) == [size] * 3
        assert reduced(torch.ones(4)[::2], op=hvd.Sum) == [size] * 2
        param = torch.nn.Parameter(torch.ones(2))
        assert reduced(param, op=hvd.Sum) == [size] * 2
        assert param.tolist() == [size] * 2
        with Half() as half:
            assert reduced(torch.ones(2), op=hvd.Sum, process_set=half) == [half.size()] * 2
            assert reduced(torch.ones(2), op=hvd.Sum, process_set=half) == [half.size()] * 2
        with pytest.raises(ValueError, match="not known to the job"):
            reduced(torch.ones(2), op=hvd.Sum, process_set=half)


# Errors.


def refused(kind, call):
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value)


def alike(call):
    """Check that ``call`` is the same error on every rank, and that operations go on."""
    texts = hvd.allgather_object(refused(hvd.HorovodInternalError, call))
    assert texts == texts[:1] * hvd.size()
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum) == hvd.size()


@check
def what_ranks_disagree_on_is_the_same_error_everywhere():
    rank, first = hvd.rank(), hvd.rank() == 0
    turned = torch.ones(2, 3) if first else torch.ones(3, 2)
    deep = torch.ones(6) if first else torch.ones(6, 1)
    dtype = torch.int32 if first else torch.float32
    wide, other = torch.ones(12, 2 if first else 3), torch.ones(12, dtype=dtype)
    cases = [
        *(lambda each=each: hvd.allreduce(each, name="d") for each in (turned, deep, other)),
        *(lambda each=each: hvd.broadcast(each, 0, name="d") for each in (turned, deep, other)),
        *(lambda each=each: hvd.allgather(each, name="d") for each in (wide, deep, other)),
        *(lambda each=each: hvd.alltoall(each, name="d") for each in (wide, other)),
        *(lambda each=each: hvd.reducescatter(each, name="d") for each in (wide, deep, other)),
        lambda: hvd.broadcast(wide[:, :1], min(rank, 1), name="d"),
        lambda: hvd.allreduce(turned[0, 0], op=[hvd.Sum, hvd.Min][first], name="d"),
        lambda: hvd.allreduce(turned[0, 0], postscale_factor=1.0 + first, name="d"),
        lambda: hvd.reducescatter(torch.ones(4), prescale_factor=1.0 + first, name="d"),
        lambda: hvd.reducescatter(torch.ones(4), op=[hvd.Sum, hvd.Average][first], name="d"),
        lambda: hvd.grouped_allreduce([torch.ones(2), turned], name="d"),
        lambda: hvd.grouped_allgather([torch.ones(2), wide], name="d"),
        lambda: hvd.grouped_reducescatter([torch.ones(2), wide], name="d"),
        lambda: hvd.add_process_set([0] if first else [1]),
        lambda: hvd.allgather(torch.tensor(1.0)),
        lambda: hvd.reducescatter(torch.tensor(1.0)),
        lambda: hvd.grouped_reducescatter([torch.ones(2), torch.tensor(1.0)]),
        lambda: hvd.reducescatter(torch.ones(4), op=hvd.Adasum),
        lambda: hvd.grouped_reducescatter([torch.ones(4)], op=hvd.Max),
    ]
    for case in cases:
        alike(case)


@check
def what_one_rank_does_wrong_is_a_value_error_on_it_alone():
    size, ones = hvd.size(), torch.ones(4)
    for splits in ([1] * (size + 1), [5] + [0] * (size - 1), [-1] + [0] * (size - 1)):
        wrong = torch.tensor(splits, dtype=torch.int32)
        refused(ValueError, lambda wrong=wrong: hvd.alltoall(ones, wrong))
    refused(ValueError, lambda: hvd.alltoall(ones, torch.zeros(size)))
    refused(ValueError, lambda: hvd.alltoall(torch.ones(size + 1)))
    refused(ValueError, lambda: hvd.broadcast(ones, size))
    refused(ValueError, lambda: hvd.broadcast(ones, -1))
    refused(ValueError, lambda: hvd.allreduce(ones, average=True, op=hvd.Sum))
    # Calls without a name still go together, though rank 0 has made some that were refused.
    if hvd.rank() == 0:
        refused(ValueError, lambda: hvd.alltoall(torch.ones(size + 1)))
        refused(ValueError, lambda: hvd.broadcast(ones, size))
        refused(ValueError, lambda: hvd.allreduce(torch.tensor([True])))
        refused(ValueError, lambda: hvd.allreduce(torch.tensor([[True]]).t()))
        refused(ValueError, lambda: hvd.allreduce(ones, op=77))
    assert len(hvd.alltoall(torch.ones(size))) == size
    assert hvd.broadcast(ones, 0).tolist() == ones.tolist()
    assert hvd.allreduce(ones, op=hvd.Sum).tolist() == [size] * 4


@check
def who_is_not_a_member_is_refused_by_every_operation():
    chosen = hvd.add_process_set([0])
    if hvd.rank() == 0:
        text = refused(ValueError, lambda: hvd.broadcast(torch.ones(1), 1, process_set=chosen))
        assert "root_rank 1" in text
    else:
        starts = list(STARTS.values())
        starts += [lambda _, **how: hvd.barrier(**how), lambda _, **how: chosen.rank()]
        for start in starts:
            text = refused(ValueError, lambda start=start: start("no", process_set=chosen))
            assert f"Rank {hvd.rank()} is not a member of the provided process set" in text
    assert hvd.remove_process_set(chosen)
    refused(ValueError, lambda: hvd.allreduce(torch.ones(1), process_set=chosen))
    unknown = hvd.ProcessSet([0, 1])
    refused(ValueError, lambda: hvd.allreduce(torch.ones(1), process_set=unknown))


# Ranks without data.


@check
def while_a_rank_has_joined_reductions_go_on_and_all_else_is_an_error():
    size = hvd.size()
    for first in range(size):
        for is_known in (False, True):
            if hvd.rank() == first:
                last = hvd.join()
            else:
                reduce_without(first)
                for kind, start in STARTS.items():
                    if kind not in ("allreduce", "in place", "group"):
                        number = start(f"join {kind}")
                        text = refused(
                            hvd.HorovodInternalError, lambda n=number: hvd.synchronize(n)
                        )
                        assert "Join" in text
                last = hvd.join()
            assert last != first
            assert hvd.allgather_object(last) == [last] * size
            if not is_known:
                # The next time every rank knows the names.
                for kind in STARTS:
                    hvd.synchronize(STARTS[kind](f"join {kind}"))


def reduce_without(first):
    """Check reductions in which every rank but one has ``rank + 1``."""
    size, mine = hvd.size(), hvd.rank() + 1
    others = [rank + 1 for rank in range(size) if rank != first]
    for dtype in (torch.int32, torch.int64, torch.float32, torch.float64, torch.bfloat16):
        tensor = torch.full((3,), mine, dtype=dtype)
        found = hvd.allreduce(tensor, op=hvd.Sum, name=f"s {dtype}")
        assert found.tolist() == [sum(others)] * 3
        mean = torch.tensor(sum(others) / size).to(dtype)
        torch.testing.assert_close(hvd.allreduce(tensor, name=f"a {dtype}"), mean.expand(3))
        for op, expected in ((hvd.Min, min(others)), (hvd.Max, max(others))):
            assert hvd.allreduce(-tensor, op=op, name=f"{op} {dtype}")[0] in (
                -max(others),
                -min(others),
            )
            assert hvd.allreduce(tensor, op=op, name=f"{op} {dtype}")[0] == expected
        product = hvd.allreduce(tensor, op=hvd.Product, name=f"p {dtype}")
        assert product[0] == torch.tensor(others).prod()
    pair = [torch.full((2,), float(mine)), torch.full((17,), float(mine))]
    for each in hvd.grouped_allreduce(pair, op=hvd.Sum, name="pair"):
        assert each.tolist() == [float(sum(others))] * len(each)


# Jobs after one another.


@check
def operations_that_nobody_waits_for_do_not_hinder_the_next_job():
    for _ in range(5):
        for kind, start in STARTS.items():
            if hvd.rank() == 0 or kind == "allreduce":
                start(f"left {kind}")
        hvd.shutdown()
        assert not hvd.is_initialized()
        refused(RuntimeError, lambda: hvd.allreduce(torch.ones(1)))
        refused(ValueError, hvd.rank)
        hvd.init()
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum) == hvd.size()


@check
def sets_may_be_given_to_init():
    hvd.shutdown()
    size = int(os.environ["HOROVOD_SIZE"])
    sets = [hvd.ProcessSet(range(first, size, 2)) for first in range(2)]
    hvd.init(process_sets=sets)
    mine, other = sets[hvd.rank() % 2], sets[1 - hvd.rank() % 2]
    assert mine.process_set_id > 0
    assert mine.included()
    assert not other.included()
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=mine) == mine.size()
    known = hvd.mpi_ops._basics._get_process_set_ids_and_ranks()
    assert known == {0: list(range(size)), 1: sets[0].ranks, 2: sets[1].ranks}
    again = hvd.ProcessSet(range(0, size, 2))
    refused(ValueError, lambda: hvd.add_process_set(again))
    hvd.barrier()
    hvd.shutdown()
    hvd.init()
    assert list(hvd.mpi_ops._basics._get_process_set_ids_and_ranks()) == [0]
    refused(ValueError, lambda: hvd.allreduce(torch.ones(1), process_set=mine))


@check
def ranks_may_form_jobs_of_their_own():
    rank, size = hvd.rank(), hvd.size()
    halves = [list(range(first, size, 2)) for first in range(2)]
    mine = halves[rank % 2]
    hvd.shutdown()
    hvd.init(mine)
    assert (hvd.rank(), hvd.size()) == (mine.index(rank), len(mine))
    assert hvd.allgather_object(rank) == mine
    hvd.shutdown()
    hvd.init()
    assert (hvd.rank(), hvd.size()) == (rank, size)


@check
def elastic_training_goes_on_in_a_new_job_from_the_last_commit():
    model = torch.nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.5)
    sampler = hvd.elastic.ElasticSampler(range(6 * hvd.size()), shuffle=False)
    state = hvd.elastic.TorchState(model, optimizer, batch=hvd.rank(), sampler=sampler)
    runs, jobs = [], []
    state.register_reset_callbacks([lambda: jobs.append(hvd.size())])

    @hvd.elastic.run
    def train(state):
        runs.append((state.batch, len(sampler)))
        while state.batch < 6:
            if state.batch == 4 and len(runs) == 1:
                hvd.allreduce(torch.ones(1 + hvd.rank()), name="which fails")
            hvd.allreduce_(state.model.weight, name="weight")
            sampler.record_batch(state.batch, 1)
            state.batch += 1
            if state.batch == 2:
                state.commit()
        return model.weight.item()

    weights = hvd.allgather_object(train(state))
    assert weights == weights[:1] * hvd.size()
    assert runs == [(0, 6), (2, 4)]
    assert jobs == [hvd.size()]


if __name__ == "__main__":
    check.run()
