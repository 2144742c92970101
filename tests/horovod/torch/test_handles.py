import pytest
import torch

from bireme.collective import Handle
from bireme.errors import EngineClosed
from bireme.horovod.session import CURRENT
from bireme.horovod.torch import handles


def test_an_operation_before_init_is_an_internal_error():
    import bireme.horovod.torch as hvd

    with pytest.raises(hvd.HorovodInternalError, match=r"use hvd.init\(\)"):
        hvd.allreduce(torch.ones(1))
    with pytest.raises(RuntimeError, match=r"use hvd.init\(\)"):
        hvd.barrier()


def test_a_handle_is_a_number_that_is_good_once(hvd):
    number = hvd.allreduce_async(torch.ones(2), name="a")
    assert isinstance(number, int)
    assert hvd.poll(number) in (True, False)
    assert torch.equal(hvd.synchronize(number), torch.ones(2))
    assert hvd.synchronize(number) is None
    assert hvd.synchronize(12345) is None
    with pytest.raises(ValueError, match="synchronised already"):
        hvd.poll(number)


@pytest.mark.parametrize("kind", ["allreduce", "allreduce_", "allgather", "reducescatter"])
def test_a_groups_handle_gives_a_tuple(hvd, kind):
    start = f"grouped_{kind.rstrip('_')}_async" + "_" * kind.endswith("_")
    results = hvd.synchronize(getattr(hvd, start)([torch.ones(2), torch.ones(3)]))
    assert isinstance(results, tuple)
    assert [len(each) for each in results] == [2, 3]


def test_poll_says_what_the_engine_says(hvd):
    handle = Handle(1, "slow")
    number = CURRENT.number_of((0, "a"), (handle, bool, None))
    assert not hvd.poll(number)
    handle.finish(True)
    assert hvd.poll(number)
    assert hvd.synchronize(number)


def test_a_wait_that_is_interrupted_may_be_repeated(hvd):
    waits = []

    def drive(handle, _timeout_s):
        waits.append(1)
        if len(waits) == 1:
            raise KeyboardInterrupt
        handle.finish("result")

    number = CURRENT.number_of((0, "a"), (Handle(1, "slow", drive), str.upper, None))
    with pytest.raises(KeyboardInterrupt):
        hvd.synchronize(number)
    assert not hvd.poll(number)
    assert hvd.synchronize(number) == "RESULT"
    assert hvd.synchronize(number) is None


def test_an_error_of_the_engine_becomes_horovods(hvd):
    handle = Handle(1, "lost")
    number = CURRENT.number_of((0, "a"), (handle, bool, None))
    handle.fail(EngineClosed("shut down elsewhere"))
    with pytest.raises(hvd.HorovodInternalError, match="shut down elsewhere"):
        hvd.synchronize(number)
    assert hvd.synchronize(number) is None


def test_a_job_that_shut_down_under_a_script_is_an_internal_error(hvd):
    CURRENT.engine.close()
    with pytest.raises(hvd.HorovodInternalError, match="shut down"):
        hvd.allreduce_async(torch.ones(1))


@pytest.mark.parametrize("bad", [7, -1, "sum", None])
def test_an_op_that_there_is_not(bad):
    with pytest.raises(ValueError, match=r"one of hvd.Average"):
        handles.as_op(bad)


def test_only_tensors_are_taken(hvd):
    with pytest.raises(ValueError, match=r"expected a torch.Tensor, got list"):
        hvd.allreduce([1.0])


def test_join_and_barrier_of_one(hvd):
    assert hvd.join() == 0
    assert hvd.barrier() is None


def test_results_come_back_into_tensors_that_are_not_laid_out_in_order():
    tensor = torch.zeros(2, 3).t()
    (sent,) = handles.dense([tensor])
    assert sent.is_contiguous()
    sent += 1
    assert handles.put_back([tensor], [sent])[0] is tensor
    assert torch.equal(tensor, torch.ones(3, 2))


def test_a_name_used_twice_at_once_is_an_error_however_fast_the_first_is_done(hvd):
    tensor = torch.ones(1)
    number = hvd.allreduce_async(tensor, name="twice")
    with pytest.raises(ValueError, match=r"allreduce.twice is under way already"):
        hvd.allreduce_async(tensor, name="twice")
    other = hvd.allgather_async(tensor, name="twice")
    hvd.synchronize(number)
    hvd.synchronize(other)
    # Known to be done: by poll, or by synchronize.
    number = hvd.allreduce_async(tensor, name="twice")
    assert hvd.poll(number)
    number = hvd.allreduce_async(tensor, name="twice")
    hvd.synchronize(number)
    hvd.synchronize(hvd.allreduce_async(tensor, name="twice"))


def test_a_name_may_be_used_again_later_though_nobody_asked_for_its_result(hvd, monkeypatch):
    now = [1.0]
    monkeypatch.setattr("bireme.horovod.session.time.thread_time", lambda: now[0])
    hvd.allreduce_async(torch.ones(1), name="m")
    now[0] += 0.002
    hvd.allreduce_async(torch.ones(1), name="m")


@pytest.mark.parametrize("kind", ["EngineClosed", "RankLost", "MismatchError"])
def test_after_a_process_has_left_init_begins_a_new_job(hvd, kind):
    from bireme import errors

    before = CURRENT.engine
    handle = Handle(1, "lost")
    number = CURRENT.number_of((0, "a"), (handle, bool, None))
    handle.fail(getattr(errors, kind)("rank 1"))
    with pytest.raises(hvd.HorovodInternalError):
        hvd.synchronize(number)
    assert hvd.is_initialized()
    hvd.init()
    assert (CURRENT.engine is before) == (kind == "MismatchError")


def test_unnamed_operations_are_counted_anew_after_a_join(hvd):
    hvd.allreduce(torch.ones(1))
    assert CURRENT.name_of("allreduce", None, 0) == "allreduce.noname.1"
    hvd.join()
    assert CURRENT.name_of("allreduce", None, 0) == "allreduce.noname.0"


@pytest.mark.parametrize(
    "tensor",
    [torch._neg_view(torch.ones(3)), torch.tensor([1 + 2j]).conj(), torch.ones(2, 3).t()],
    ids=["negated", "conjugated", "transposed"],
)
def test_the_engine_gets_memory_that_holds_the_elements(tensor):
    assert not handles.is_plain(tensor)
    (sent,) = handles.dense([tensor])
    assert handles.is_plain(sent)
    assert torch.equal(sent, tensor)
