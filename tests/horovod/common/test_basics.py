import json

import pytest

from bireme.horovod.common.basics import HorovodBasics
from bireme.horovod.common.process_sets import ProcessSet

QUESTIONS = [
    *("size", "local_size", "cross_size", "rank", "local_rank", "cross_rank"),
    *("is_homogeneous", "mpi_threads_supported", "stop_timeline"),
]


@pytest.mark.parametrize("question", QUESTIONS)
def test_before_init_every_question_says_what_to_do(question):
    with pytest.raises(ValueError, match=r"has not been initialized; use hvd.init\(\)"):
        getattr(HorovodBasics(), question)()


def test_a_single_process_is_rank_0_of_1(hvd):
    assert hvd.is_initialized()
    assert (hvd.rank(), hvd.size()) == (0, 1)
    assert (hvd.local_rank(), hvd.local_size()) == (0, 1)
    assert (hvd.cross_rank(), hvd.cross_size()) == (0, 1)
    assert hvd.is_homogeneous()
    hvd.init()
    hvd.shutdown()
    hvd.shutdown()
    assert not hvd.is_initialized()


def test_constants_are_the_numbers_of_the_wire(hvd):
    assert [hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max, hvd.Product] == list(range(6))


def test_what_is_built(hvd):
    assert hvd.gloo_built() is hvd.gloo_enabled() is True
    assert hvd.mpi_built() is hvd.mpi_enabled() is hvd.ddl_built() is hvd.ccl_built() is False
    assert isinstance(hvd.nccl_built(), int)
    assert isinstance(hvd.cuda_built(), bool)
    assert isinstance(hvd.rocm_built(), bool)
    with pytest.raises(ValueError, match="MPI is not enabled"):
        hvd.mpi_threads_supported()


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"process_sets": "static"}, "'dynamic', got 'static'"),
        ({"process_sets": [[0]]}, r"a list of ProcessSet, got \[0\] in it"),
        ({"process_sets": [ProcessSet([0]), ProcessSet([0])]}, r"the same ranks twice: \[0\]"),
        ({"process_sets": [ProcessSet([0]), ProcessSet([1])]}, "ranks are integers >= 0 and < 1"),
        ({"comm": 3}, "not an MPI build"),
        ({"comm": [1]}, "rank 0 is not among"),
        ({"comm": [0, 0]}, "different integers"),
    ],
)
def test_arguments_of_init_that_make_no_sense_are_value_errors(arguments, match):
    basics = HorovodBasics()
    with pytest.raises(ValueError, match=match):
        basics.init(**arguments)
    assert not basics.is_initialized()


def test_init_takes_the_older_words(hvd):
    hvd.shutdown()
    hvd.init(process_sets="dynamic")
    hvd.shutdown()
    hvd.init([0])
    assert hvd.size() == 1
    assert hvd.mpi_ops._basics._get_process_set_ids_and_ranks() == {0: [0]}


def names_in(path):
    return {event["name"] for event in json.loads(path.read_text()) if "name" in event}


def test_the_environment_starts_a_timeline(hvd, tmp_path, monkeypatch):
    import torch

    hvd.shutdown()
    path = tmp_path / "trace.json"
    monkeypatch.setenv("HOROVOD_TIMELINE", str(path))
    monkeypatch.setenv("HOROVOD_TIMELINE_MARK_CYCLES", "1")
    hvd.init()
    hvd.allreduce(torch.ones(3), name="test_allreduce")
    assert {"NEGOTIATE_ALLREDUCE", "ALLREDUCE", "CYCLE_START"} <= names_in(path)
    assert "allreduce.test_allreduce" in path.read_text()
    hvd.stop_timeline()
    hvd.stop_timeline()


def test_a_timeline_that_cannot_be_written_leaves_no_job(monkeypatch, tmp_path):
    monkeypatch.setenv("HOROVOD_TIMELINE", str(tmp_path / "none" / "trace.json"))
    basics = HorovodBasics()
    with pytest.raises(OSError, match="cannot write"):
        basics.init()
    assert not basics.is_initialized()


def test_a_timeline_may_be_started_at_any_time(hvd, tmp_path, monkeypatch):
    import torch

    hvd.shutdown()
    monkeypatch.setenv("HOROVOD_TIMELINE", "DYNAMIC")
    hvd.init()
    hvd.start_timeline(str(tmp_path / "a.json"))
    hvd.broadcast(torch.ones(3), 0, name="b")
    hvd.stop_timeline()
    assert "BROADCAST" in names_in(tmp_path / "a.json")
    with pytest.raises(OSError, match="cannot write"):
        hvd.start_timeline(str(tmp_path / "none" / "a.json"))
