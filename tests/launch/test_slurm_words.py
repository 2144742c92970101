import pytest

from bireme.launch.base import State
from bireme.launch.slurm_words import shown, shown_exit_code, shown_state

ENDS = {
    "JobState=COMPLETED ExitCode=0:0": 0,
    "JobState=FAILED ExitCode=3:0": 3,
    "JobState=CANCELLED ExitCode=0:15": 143,
    "JobState=CANCELLED ExitCode=0:0": 1,
    "JobState=TIMEOUT ExitCode=0:0": 1,
    "JobState=NODE_FAIL ExitCode=0:0": 1,
    "": 1,
    "JobState=PENDING ExitCode=0:0": None,
    "JobState=RUNNING ExitCode=0:0": None,
    "JobState=COMPLETING ExitCode=3:0": None,
}


@pytest.mark.parametrize("said", ENDS)
def test_exit_codes(said):
    assert shown_exit_code(f"JobId=7 {said}") == ENDS[said]


def test_states():
    assert shown_state("JobState=PENDING") is State.QUEUED
    assert shown_state("JobState=RUNNING") is State.RUNNING
    assert shown_state("") is State.ENDED
    assert shown("StdErr=/x StdOut=/home/ann/slurm-7.log Power=", "StdOut").endswith("7.log")
