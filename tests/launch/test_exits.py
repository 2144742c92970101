"""Ends of processes are named as people know them."""

import pytest

from bireme.launch.exits import Exit, abort_of, names_an_abort


@pytest.mark.parametrize(
    ("status", "words", "code"),
    [
        (0, "ended with exit code 0", 0),
        (3, "ended with exit code 3", 3),
        (255, "ended with exit code 255", 255),
        (-15, "was killed by SIGTERM (exit code 143)", 143),
        (-11, "was killed by SIGSEGV (exit code 139)", 139),
        (-63, "was killed by signal 63 (exit code 191)", 191),
    ],
)
def test_words_and_codes(status, words, code):
    assert str(Exit(status)) == words
    assert Exit(status).code == code
    assert Exit(status).failed == (status != 0)


def test_what_was_neither_an_exit_nor_a_signal():
    lost = Exit(255, "was lost with its host: no route")
    assert (str(lost), lost.code, lost.failed) == ("was lost with its host: no route", 255, True)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], False),
        (["ValueError: no"], False),
        (["Traceback", "bireme.errors.JobAborted: W[1] on leda: killed"], True),
        (["bireme.errors.NodeLost: W[1]", "more"], True),
    ],
)
def test_following(lines, expected):
    assert names_an_abort(lines) is expected


@pytest.mark.parametrize(
    ("line", "follows"),
    [
        ("bireme.errors.JobAborted: W[1] on leda: ValueError: no", True),
        ("bireme.errors.JobAborted: W[0] on leda: ValueError: no", False),
        ("bireme.errors.JobAborted: the scheduler refuses this worker: W[0] is alive", False),
        ("bireme.errors.JobAborted: the scheduler on leda is gone, and did not come back", True),
    ],
)
def test_an_abort_that_is_the_process_s_own_fault(line, follows):
    assert names_an_abort(["Traceback", line], "W[0]") is follows


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        (
            "bireme.horovod.common.exceptions.HorovodInternalError: rank 1 has shut down",
            "rank 1 has shut down",
        ),
        (
            "bireme.errors.RankLost: rank 1 is lost: the peer vanished",
            "rank 1 is lost: the peer vanished",
        ),
        (
            "[rank0]: RuntimeError: Got the following error when running the callback: RankLost: "
            "all_reduce sum of 20 torch.float32: the process of rank 1 left the group",
            "rank 1 left the group",
        ),
        ("HorovodInternalError: rank 0 is lost: the peer vanished", None),
        ("HorovodInternalError: Mismatched shapes: rank 1 sent [2], rank 0 [3]", None),
        ("rank 1 has shut down", None),
    ],
)
def test_a_rank_that_went_away_is_the_cause_of_what_others_raise(line, cause):
    assert abort_of(["Traceback", line], "W[0]") == cause


def test_an_abort_is_told_in_its_own_words():
    line = "bireme.errors.JobAborted: S[0] on leda: silent for 5.2 s"
    assert abort_of(["Traceback", line], "S[1]") == "S[0] on leda: silent for 5.2 s"
    assert abort_of([line], "S[0]") is None
    assert abort_of(["ValueError: no"], "S[1]") is None
