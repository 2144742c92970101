"""Ranks go by host and slot, and every library's names say the same."""

from hypothesis import given
from hypothesis import strategies as st

from bireme.launch.seats import WORLD_VARIABLES, seats, world_variables


def test_hosts_of_unequal_size():
    found = seats([("a", 2), ("b", 1), ("c", 3)])
    assert [seat.rank for seat in found] == [0, 1, 2, 3, 4, 5]
    assert [seat.host for seat in found] == ["a", "a", "b", "c", "c", "c"]
    assert [seat.local_rank for seat in found] == [0, 1, 0, 0, 1, 2]
    assert [seat.local_size for seat in found] == [2, 2, 1, 3, 3, 3]
    assert [seat.cross_rank for seat in found] == [0, 0, 1, 2, 1, 0]
    assert [seat.cross_size for seat in found] == [3, 2, 3, 3, 2, 1]


@given(st.lists(st.integers(0, 4), max_size=6))
def test_cross_ranks_number_the_workers_of_one_local_rank(counts):
    found = seats([(f"h{index}", count) for index, count in enumerate(counts)])
    assert len(found) == sum(counts)
    for local_rank in range(4):
        row = [seat for seat in found if seat.local_rank == local_rank]
        assert [seat.cross_rank for seat in row] == list(range(len(row)))
        assert {seat.cross_size for seat in row} <= {len(row)}


def test_scripts_of_horovod_and_of_torchrun_find_their_names():
    assert world_variables(seats([("a", 1), ("b", 2)])[2]) == {
        "HOROVOD_RANK": "2",
        "HOROVOD_SIZE": "3",
        "HOROVOD_LOCAL_RANK": "1",
        "HOROVOD_LOCAL_SIZE": "2",
        "HOROVOD_CROSS_RANK": "0",
        "HOROVOD_CROSS_SIZE": "1",
        "HOROVOD_HOSTNAME": "b",
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "RANK": "2",
        "WORLD_SIZE": "3",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
    }


def test_the_names_are_known_before_a_job_is():
    known = world_variables(seats([("a", 1)])[0]).keys()
    assert known | {"MASTER_ADDR", "MASTER_PORT"} < WORLD_VARIABLES
