"""What the coordinator decides, case by case."""

import pytest
from tests.core.negotiation.world import World, allreduce

from bireme.core.negotiation.events import Departed
from bireme.core.negotiation.messages import Fault, Kind, Report, Request, Run, packed


def test_an_operation_runs_once_every_rank_has_submitted_it():
    world = World(3)
    world.submit(0, allreduce("a"))
    world.submit(2, allreduce("a"))
    world.settle()
    assert world.logs == [[], [], []]
    world.submit(1, allreduce("a"))
    world.settle()
    assert world.logs == [[(0, "a")]] * 3


def test_order_of_submission_does_not_matter_and_all_run_one_order():
    world = World(2, threshold_bytes=0)
    world.submit(0, allreduce("a"), allreduce("b"), allreduce("c"))
    world.submit(1, allreduce("c"), allreduce("b"), allreduce("a"))
    world.settle()
    assert world.logs[0] == world.logs[1]
    assert sorted(world.logs[0]) == [(0, "a"), (0, "b"), (0, "c")]


def test_a_repeated_step_is_told_in_bits():
    world = World(2)
    names = [f"layer.{number}.weight" for number in range(100)]
    for _ in range(2):
        for rank in range(2):
            world.submit(rank, *(allreduce(name) for name in names))
        world.settle()
    for rank in range(2):
        world.submit(rank, *(allreduce(name) for name in names))
        world.report(rank)
    reports = [world.up[rank][0] for rank in range(2)]
    assert [report.requests for report in reports] == [[], []]
    assert [len(report.hits) for report in reports] == [13, 13]
    for rank in range(2):
        world.deliver_up(rank)
    (verdict,) = world.down[1]
    assert verdict.items == [Run(packed((1 << 100) - 1))]


def test_a_changed_shape_is_negotiated_anew_and_keeps_its_slot():
    world = World(2)
    for shape in ((2,), (3,), (3,)):
        for rank in range(2):
            world.submit(rank, allreduce("a", shape))
        world.settle()
        for rank in range(2):
            assert world.end(rank, "a")[1].shape == shape
    world.submit(0, allreduce("a", (3,)))
    assert world.members[0].report().hits == b"\x01"


@pytest.mark.parametrize("is_first", [True, False], ids=["changed first", "changed second"])
def test_one_rank_changes_what_it_says_of_a_known_name(is_first):
    world = World(2)
    for rank in range(2):
        world.submit(rank, allreduce("a"))
    world.settle()
    for rank in (0, 1) if is_first else (1, 0):
        world.submit(rank, allreduce("a", (3,) if rank == 0 else (2,)))
        world.settle()
    ends = [world.ends[rank].pop((0, "a")) for rank in range(2)]
    assert (
        ends[0]
        == ends[1]
        == (
            "failed",
            Fault.MISMATCH,
            "a: the ranks' shapes differ: rank 0 has (3,); rank 1 has (2,)",
        )
    )
    for rank in range(2):
        world.submit(rank, allreduce("a"))
    world.settle()
    assert world.end(0, "a")[0] == world.end(1, "a")[0] == "ran"


MISMATCHES = [
    ({"dtype": "float64"}, "dtypes differ: ranks 0, 2 have float32; rank 1 has float64"),
    ({"shape": (2, 1)}, r"shapes differ: ranks 0, 2 have \(2,\); rank 1 has \(2, 1\)"),
    ({"op": 4}, "reductions differ: ranks 0, 2 have SUM; rank 1 has MAX"),
    ({"prescale": 2.0}, "prescale factors differ: ranks 0, 2 have 1.0; rank 1 has 2.0"),
    ({"postscale": 0.5}, "postscale factors differ"),
    ({"device": "cuda"}, "devices differ: ranks 0, 2 have cpu; rank 1 has cuda"),
    ({"kind": Kind.BROADCAST}, "operations differ: ranks 0, 2 have allreduce; rank 1 has broadc"),
    ({"root": 1}, "root ranks differ"),
    ({"group": "a", "group_size": 2}, "groups differ"),
]


@pytest.mark.parametrize(("fields", "words"), MISMATCHES)
def test_a_mismatch_fails_everywhere_alike_and_nothing_else(fields, words):
    import re

    import msgspec

    world = World(3)
    for rank in range(3):
        request = allreduce("a")
        if rank == 1:
            request = msgspec.structs.replace(request, **fields)
        world.submit(rank, request, allreduce("b"))
    world.settle()
    ends = [world.end(rank, "a") for rank in range(3)]
    assert ends[0] == ends[1] == ends[2]
    assert ends[0][:2] == ("failed", Fault.MISMATCH)
    assert re.search(words, ends[0][2])
    assert [world.end(rank, "b")[0] for rank in range(3)] == ["ran"] * 3


def test_a_group_is_released_together():
    world = World(2, threshold_bytes=0)
    group = [allreduce(name, group="x", group_size=2) for name in ("x", "y")]
    for _ in range(3):
        world.submit(0, *group, allreduce("z"))
        world.submit(1, group[0], allreduce("z"))
        world.settle()
        assert world.end(0, "z") is not None
        assert world.end(0, "x") is None
        world.submit(1, group[1])
        world.settle()
        assert world.end(0, "x")[0] == world.end(0, "y")[0] == "ran"
        assert world.end(1, "x")[0] == world.end(1, "y")[0] == "ran"


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["bad first", "bad last"])
def test_a_group_with_a_mismatch_fails_whole_and_works_the_next_time(order):
    world = World(2)
    for _ in range(2):
        good = [allreduce(name, group="x", group_size=2) for name in ("x", "y")]
        bad = [allreduce("x", (5,), group="x", group_size=2), good[1]]
        world.submit(0, *good)
        for number in order:
            world.submit(1, bad[number])
            world.settle()
        for rank in range(2):
            assert world.end(rank, "x")[:2] == ("failed", Fault.MISMATCH)
            assert world.end(rank, "y")[:2] == ("failed", Fault.MISMATCH)
        for rank in range(2):
            world.submit(rank, *good)
        world.settle()
        for rank in range(2):
            assert world.end(rank, "x")[0] == world.end(rank, "y")[0] == "ran"


def test_ragged_gathers_tell_everybody_the_rows():
    world = World(2)
    for rows in ((1, 4), (1, 4), (2, 4)):
        for rank in range(2):
            world.submit(rank, Request("g", Kind.ALLGATHER, "float32", (rows[rank], 3)))
        world.settle()
        assert [world.end(rank, "g")[2] for rank in range(2)] == [rows, rows]
    for rank in range(2):
        world.submit(rank, Request("g", Kind.ALLGATHER, "float32", (1, 3 + rank)))
    world.settle()
    assert "dimensions" in world.end(0, "g")[2]
    for rank in range(2):
        world.submit(rank, Request("t", Kind.ALLTOALL, "float32", (5,), numbers=(rank, 3 - rank)))
    world.settle()
    assert world.end(1, "t")[2] == (0, 3, 1, 2)


def test_scalars_have_no_rows():
    world = World(2)
    for rank in range(2):
        world.submit(rank, Request("g", Kind.ALLGATHER, "float32", ()))
        world.submit(rank, Request("r", Kind.REDUCESCATTER, "float32", (4,), op=4))
    world.settle()
    assert "no scalars" in world.end(0, "g")[2]
    assert "not MAX" in world.end(1, "r")[2]


def test_who_has_joined_adds_zeros_until_all_have():
    world = World(3)
    join = Request("join.noname", Kind.JOIN)
    for rank in range(3):
        world.submit(rank, allreduce("known"))
    world.settle()
    world.submit(1, join)
    for rank in (0, 2):
        world.submit(rank, allreduce("known"), allreduce("new"))
    world.submit(0, Request("g", Kind.ALLGATHER, "float32", (1,)))
    world.submit(2, Request("g", Kind.ALLGATHER, "float32", (1,)))
    world.settle()
    assert world.end(0, "known")[0] == world.end(2, "new")[0] == "ran"
    assert world.end(1, "known") == world.end(1, "new") == "zeros"
    assert "not supported with Join at this time: rank 1 joined" in world.end(0, "g")[2]
    assert world.end(2, "g")[:2] == ("failed", Fault.MISMATCH)
    world.submit(2, join)
    world.settle()
    assert world.end(1, "join.noname") is None
    world.submit(0, allreduce("last"), join)
    world.settle()
    assert world.end(0, "last")[0] == "ran"
    assert [world.end(rank, "join.noname") for rank in range(3)] == [("settled", 0)] * 3
    for rank in range(3):
        world.submit(rank, allreduce("new"))
    world.settle()
    assert [world.end(rank, "new")[0] for rank in range(3)] == ["ran"] * 3


def test_a_known_gather_is_refused_while_somebody_has_joined():
    world = World(2)
    gather = Request("g", Kind.ALLGATHER, "float32", (1,))
    for rank in range(2):
        world.submit(rank, gather)
    world.settle()
    world.ends[0].clear()
    world.submit(1, Request("join.noname", Kind.JOIN))
    world.submit(0, gather)
    world.settle()
    assert world.end(0, "g")[:2] == ("failed", Fault.MISMATCH)
    world.submit(0, Request("barrier.noname", Kind.BARRIER))
    world.settle()
    assert world.end(0, "barrier.noname") == ("settled", 0)


def test_process_sets_are_apart_from_each_other():
    world = World(4)
    for ranks in ((0, 1), (2, 3)):
        for rank in range(4):
            world.submit(rank, Request("add", Kind.ADD_SET, numbers=ranks))
        world.settle()
    assert [world.end(rank, "add") for rank in range(4)] == [("settled", 2)] * 4
    assert {number: group.ranks for number, group in world.coordinator._sets.items()} == {
        0: (0, 1, 2, 3),
        1: (0, 1),
        2: (2, 3),
    }
    for rank in (2, 3):
        world.submit(rank, allreduce("a", process_set=2))
    world.submit(0, allreduce("a", process_set=1))
    world.settle()
    assert world.logs == [[], [], [(2, "a")], [(2, "a")]]
    for rank in range(4):
        world.submit(rank, Request("remove", Kind.REMOVE_SET, numbers=(1,)))
    world.settle()
    assert world.end(3, "remove") == ("settled", 1)
    assert "has been removed" in world.end(0, "a", 1)[2]
    world.submit(1, allreduce("a", process_set=1))
    world.settle()
    assert "has been removed" in world.end(1, "a", 1)[2]
    for number in (0, 7):
        for rank in range(4):
            world.submit(rank, Request("remove", Kind.REMOVE_SET, numbers=(number,)))
        world.settle()
        assert world.end(3, "remove") == ("settled", 0)


def test_a_process_set_that_ranks_do_not_agree_on():
    world = World(2)
    world.submit(0, Request("add", Kind.ADD_SET, numbers=(0,)))
    world.submit(1, Request("add", Kind.ADD_SET, numbers=(1,)))
    world.settle()
    assert "process sets differ" in world.end(0, "add")[2]
    for rank in range(2):
        world.submit(rank, Request("add", Kind.ADD_SET, numbers=(0, 1)))
    world.settle()
    assert "already" in world.end(1, "add")[2]


def test_a_stall_is_told_when_it_is_due_and_names_who_is_missing():
    world = World(3, stall_warning_s=60.0)
    for rank in range(3):
        world.submit(rank, allreduce("known"))
    world.settle()
    world.now_s = 10.0
    world.submit(0, allreduce("known"), allreduce("new"))
    world.settle()
    world.now_s = 20.0
    world.submit(2, allreduce("known"))
    world.settle()
    assert world.coordinator.deadline_s == 70.0
    world.tick(69.0)
    assert world.warnings == []
    world.tick(70.0)
    (warning,) = world.warnings
    assert "for 60 s" in warning
    assert "rank 1 misses known (submitted by ranks 0, 2)" in warning
    assert "ranks 1, 2 miss new (submitted by rank 0)" in warning
    assert world.coordinator.deadline_s == 130.0
    world.submit(1, allreduce("known"), allreduce("new"))
    world.submit(2, allreduce("new"))
    world.settle()
    assert world.coordinator.deadline_s is None
    world.tick(1000.0)
    assert len(world.warnings) == 1


def test_a_long_stall_ends_the_job_where_that_is_asked_for():
    world = World(2, stall_warning_s=1.0, stall_shutdown_s=3.0)
    world.submit(0, allreduce("a"))
    world.settle()
    for now_s in (1.0, 2.0):
        world.tick(now_s)
    assert world.stops == [None, None]
    world.tick(3.0)
    assert world.stops[0] == world.stops[1]
    assert "rank 1 misses a" in world.stops[0][1]


def test_no_warning_where_none_is_asked_for():
    world = World(2, stall_warning_s=0.0)
    world.submit(0, allreduce("a"))
    world.settle()
    assert world.coordinator.deadline_s is None
    world.tick(1e6)
    assert world.warnings == []


def test_a_lost_rank_ends_everything_and_is_named():
    world = World(3)
    world.submit(0, allreduce("a"))
    world.settle()
    world.feed(Departed(2, "connection reset"))
    world.settle()
    assert world.stops == [(Fault.LOST, "rank 2 is lost: connection reset")] * 3
    world.feed(Departed(1, "connection reset"))
    assert not any(world.down)


def test_a_rank_that_leaves_fails_what_needs_it_and_nothing_else():
    world = World(3)
    for rank in range(3):
        world.submit(rank, Request("add", Kind.ADD_SET, numbers=(0, 1)))
        world.submit(rank, allreduce("known"))
    world.settle()
    for rank in range(3):
        world.end(rank, "known")
    world.submit(0, allreduce("known"), allreduce("new"))
    world.settle()
    world.report(2, is_leaving=True)
    world.settle()
    for name in ("known", "new"):
        assert world.end(0, name) == ("failed", Fault.CLOSED, f"{name}: rank 2 has shut down")
    for rank in range(2):
        world.submit(rank, allreduce("a", process_set=1), allreduce("known"), allreduce("late"))
    world.settle()
    for rank in range(2):
        assert world.end(rank, "a", 1)[0] == "ran"
        assert world.end(rank, "known")[:2] == ("failed", Fault.CLOSED)
        assert world.end(rank, "late")[:2] == ("failed", Fault.CLOSED)
    world.feed(Departed(2, "closed"))
    assert world.stops == [None] * 3
    world.report(0, is_leaving=True)
    world.settle()
    assert world.stops[1] == (Fault.CLOSED, "rank 0 has shut down")


def test_a_failure_of_one_rank_is_everybodys():
    world = World(2)
    world.report(1, failure="the network is gone")
    world.settle()
    assert world.stops == [(Fault.BROKEN, "rank 1: the network is gone")] * 2


def test_reports_that_make_no_sense_end_the_job():
    for report in (
        Report(0, packed(0b100)),
        Report(0, b"", [allreduce("a"), allreduce("a")]),
    ):
        world = World(2, cache_capacity=0)
        for name in ("b", "c", "d"):
            for rank in range(2):
                world.submit(rank, allreduce(name))
            world.settle()
        world.up[1].append(report)
        world.settle()
        if report.requests:
            assert world.stops[0][0] is Fault.BROKEN


def test_a_timeline_hears_who_submitted_when():
    world = World(2)
    world.coordinator.notes.is_tracing = True
    for _ in range(2):
        for rank in (1, 0):
            world.submit(rank, allreduce("a"))
            world.settle()
        assert [(note.rank, note.is_first) for note in world.notes] == [
            (1, True),
            (0, False),
            (-1, False),
        ]
        assert {note.kind for note in world.notes} == {"ALLREDUCE"}
        world.notes.clear()


def test_slots_are_taken_from_the_least_recently_used():
    world = World(2, cache_capacity=2)
    for name in ("a", "b", "a", "c"):
        for rank in range(2):
            world.submit(rank, allreduce(name))
        world.settle()
    for name, is_known in (("a", True), ("b", False), ("c", True)):
        member = world.members[0]
        member.submit((0, name), allreduce(name), name, lambda name=name: allreduce(name))
        assert bool(member.report().hits) is is_known


def on_board(size=2, slots=1024, **options):
    """Return ranks that have agreed on ``a`` and ``b`` once, with a board that is open."""
    world = World(size, board_slots=slots, **options)
    for rank in range(size):
        world.submit(rank, allreduce("a"), allreduce("b"))
    world.settle()
    for log in world.logs:
        log.clear()
    return world


def test_a_repeated_step_needs_no_message():
    world = on_board()
    assert world.board.epoch == world.coordinator.epoch > 0
    for rank in range(2):
        world.submit(rank, allreduce("a"), allreduce("b"))
        world.report(rank)
        assert not world.up[rank]
    assert world.read_board(0)
    assert world.read_board(1)
    assert world.logs == [[(0, "a", "b")]] * 2
    assert not any(world.down)


def test_whoever_has_something_new_freezes_the_board_and_what_is_on_it_counts():
    world = on_board()
    world.submit(0, allreduce("a"))
    world.report(0)
    world.submit(1, allreduce("c"))
    world.report(1)
    assert world.board.epoch == 0
    world.submit(1, allreduce("a"))
    world.settle()
    assert world.logs == [[(0, "a")]] * 2
    assert world.board.epoch == 0, "c waits"
    world.submit(0, allreduce("c"))
    world.settle()
    assert world.logs == [[(0, "a"), (0, "c")]] * 2
    assert world.board.epoch


def test_what_a_name_means_to_one_rank_on_the_board_and_to_another_not_is_told():
    world = on_board()
    world.submit(0, allreduce("a"))
    world.report(0)
    world.submit(1, allreduce("a", (9,)))
    world.settle()
    for rank in range(2):
        outcome, fault, message = world.end(rank, "a")
        assert (outcome, fault) == ("failed", Fault.MISMATCH)
        assert "(2,)" in message
        assert "(9,)" in message
        world.submit(rank, allreduce("b"))
    world.settle()
    assert [log[-1] for log in world.logs] == [(0, "b")] * 2


def test_a_stall_on_the_board_is_told_once_the_coordinator_has_it():
    world = on_board(stall_warning_s=60.0)
    world.submit(0, allreduce("a"))
    world.report(0)
    assert world.coordinator.deadline_s is None
    world.now_s = 5.0
    world.report(0, failure="", is_leaving=False)
    world.settle()
    assert world.coordinator.deadline_s == 65.0
    world.tick(65.0)
    assert "rank 1 misses a" in world.warnings[0]
    world.submit(1, allreduce("a"))
    world.settle()
    assert world.logs == [[(0, "a")]] * 2


def test_slots_that_do_not_fit_and_other_sets_are_reported():
    world = on_board(slots=1)
    for rank in range(2):
        world.submit(rank, allreduce("a"), allreduce("b"))
    world.settle()
    assert not world.board.log
    for rank in range(2):
        world.submit(rank, Request("add", Kind.ADD_SET, numbers=(0,)))
    world.settle()
    for _ in range(2):
        world.submit(0, allreduce("s", process_set=1))
        world.settle()
    assert not world.board.log
    for rank in range(2):
        world.submit(rank, allreduce("a"))
    world.settle()
    assert world.board.log == [1]
    assert world.logs[1][-1] == (0, "a")


def test_the_board_stays_frozen_while_somebody_has_no_more_data_or_is_gone():
    world = on_board()
    world.submit(1, Request("join.noname", Kind.JOIN))
    world.settle()
    for _ in range(2):
        world.submit(0, allreduce("a"))
        world.settle()
    assert world.board.epoch == 0
    assert world.logs[0] == [(0, "a"), (0, "a")]
    world.submit(0, Request("join.noname", Kind.JOIN))
    world.settle()
    assert world.board.epoch
    world.report(1, is_leaving=True)
    world.settle()
    world.submit(0, allreduce("a"))
    world.settle()
    assert world.end(0, "a")[1] is Fault.CLOSED
    assert world.board.epoch == 0


def test_what_runs_on_the_board_is_used_and_stays_in_the_cache():
    world = on_board(cache_capacity=2)
    for rank in range(2):
        world.submit(rank, allreduce("a"))
    world.settle()
    for rank in range(2):
        world.submit(rank, allreduce("c"))
    world.settle()
    known = [name for name in "abc" if world.members[0].signature_of((0, name)) is not None]
    assert known == ["a", "c"]
