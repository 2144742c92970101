"""One process is a job of one rank, with every rule of the larger ones."""

import json

import pytest
import torch

from bireme.collective import Collectives, SingleProcess, Topology
from bireme.errors import CollectiveError, ConfigError, EngineClosed, MismatchError
from bireme.types import ReduceOp


@pytest.fixture
def engine():
    engine: Collectives = SingleProcess()
    yield engine
    engine.close()


def test_an_allreduce_gives_new_tensors_and_leaves_the_old_ones(engine):
    tensors = [torch.tensor([1.0, 2.0]), torch.tensor([3])]
    results = engine.allreduce(
        tensors, names=["a", "b"], op=ReduceOp.SUM, prescale=3.0, postscale=0.5
    ).wait()
    assert [result.tolist() for result in results] == [[1.5, 3.0], [4]]
    assert [tensor.tolist() for tensor in tensors] == [[1.0, 2.0], [3]]


def test_an_allreduce_in_place_takes_parameters(engine):
    parameter = torch.nn.Parameter(torch.ones(2))
    (result,) = engine.allreduce([parameter], names=["a"], outs=[parameter], postscale=2.0).wait()
    assert result is parameter
    assert parameter.tolist() == [2.0, 2.0]


@pytest.mark.parametrize("op", list(ReduceOp))
def test_every_reduction_of_one_rank_is_the_tensor(engine, op):
    tensor = torch.tensor([1.5, -2.0])
    assert torch.equal(engine.allreduce([tensor], names=["a"], op=op).wait()[0], tensor)


def test_gathers_and_scatters_are_copies(engine):
    tensor = torch.arange(6.0).reshape(3, 2)
    (gathered,) = engine.allgather([tensor], names=["a"]).wait()
    (scattered,) = engine.reducescatter([tensor], names=["b"], postscale=2.0).wait()
    output, received = engine.alltoall(tensor, None, name="c").wait()
    part, one = engine.alltoall(tensor, torch.tensor([2], dtype=torch.int32), name="c").wait()
    assert torch.equal(gathered, tensor)
    assert gathered is not tensor
    assert torch.equal(scattered, 2 * tensor)
    assert torch.equal(output, tensor)
    assert (received.tolist(), received.dtype) == ([3], torch.int32)
    assert torch.equal(part, tensor[:2])
    assert one.tolist() == [2]


def test_scalars_have_no_rows_and_the_error_comes_with_the_result(engine):
    scalar = torch.tensor(1.0)
    for handle in (
        engine.allgather([scalar], names=["a"]),
        engine.reducescatter([scalar], names=["b"]),
        engine.alltoall(scalar, None, name="c"),
    ):
        with pytest.raises(MismatchError, match="scalars"):
            handle.wait()
    with pytest.raises(MismatchError, match="SUM and AVERAGE"):
        engine.reducescatter([torch.ones(2)], names=["d"], op=ReduceOp.MAX).wait()


def test_broadcast_barrier_and_join(engine):
    tensor = torch.ones(2)
    assert engine.broadcast(tensor, 0, name="a", out=tensor).wait() is tensor
    copy = engine.broadcast(tensor, 0, name="a").wait()
    assert torch.equal(copy, tensor)
    assert copy is not tensor
    assert engine.barrier().wait() is None
    assert engine.join().wait() == 0
    with pytest.raises(ConfigError, match="root_rank 1"):
        engine.broadcast(tensor, 1, name="a")


def test_process_sets_come_and_go(engine):
    with pytest.raises(ConfigError, match="already"):
        engine.add_process_set([0])
    with pytest.raises(ConfigError, match="no process set 1"):
        engine.barrier(1)
    assert engine.process_sets() == {0: (0,)}
    assert engine.remove_process_set(0) is False
    assert engine.remove_process_set(1) is False


def test_a_closed_engine_refuses(engine):
    engine.close()
    engine.close()
    with pytest.raises(EngineClosed, match="start them again"):
        engine.barrier()
    assert issubclass(EngineClosed, CollectiveError)
    assert issubclass(EngineClosed, RuntimeError)


def test_it_stands_for_one_rank_only():
    with pytest.raises(ConfigError, match="2 ranks"):
        SingleProcess(Topology.on_one_machine(0, 2))


def test_a_timeline_may_be_started_and_stopped(engine, tmp_path):
    engine.stop_timeline()
    for path in (tmp_path / "one.json", tmp_path / "two.json"):
        engine.start_timeline(path, mark_cycles=True)
        engine.allreduce([torch.ones(1)], names=["allreduce.a"]).wait()
        names = [event.get("name") for event in json.loads(path.read_text())]
        assert {"NEGOTIATE_ALLREDUCE", "ALLREDUCE", "CYCLE_START", "0"} < set(names)
    engine.stop_timeline()
