import os

import pytest

from bireme.collective.bank.cores import core_set, quota_cores


def test_the_cores_are_those_that_this_process_may_run_on():
    bits = int.from_bytes(core_set(256), "little")
    assert {core for core in range(2048) if bits >> core & 1} == os.sched_getaffinity(0)


def test_cores_without_room_are_left_out(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 7, 8, 4000})
    assert core_set(1) == bytes([0b10000010])


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, float("inf")),
        ({"cpu.max": "max 100000\n"}, float("inf")),
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu.max": "400000 100000\n", "job/cpu.max": "max 100000\n"}, 4.0),
        ({"job/cpu.max": "400000 100000\n", "job/part/cpu.max": "50000 100000\n"}, 0.5),
        ({"other/cpu.max": "50000 100000\n"}, float("inf")),
        ({"cpu/job/cpu.cfs_quota_us": "-1\n", "cpu/job/cpu.cfs_period_us": "1"}, float("inf")),
        ({"cpu/job/cpu.cfs_quota_us": "200\n", "cpu/job/cpu.cfs_period_us": "100\n"}, 2.0),
        ({"cpu.max": "nonsense"}, float("inf")),
    ],
)
def test_the_tightest_limit_of_all_groups_around_us_counts(tmp_path, files, expected):
    own = tmp_path / "own"
    own.write_text("3:cpu,cpuacct:/job\n0::/job/part\n")
    for name, text in files.items():
        (tmp_path / "groups" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "groups" / name).write_text(text)
    assert quota_cores(tmp_path / "groups", own) == expected
