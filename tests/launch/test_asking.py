import pytest

from bireme.errors import JobError
from bireme.launch.asking import ask


def test_answers():
    assert ask(("sh", "-c", "echo $A"), {"PATH": "/usr/bin:/bin", "A": "yes"}) == "yes\n"


def test_a_failure_is_no_answer_unless_it_says_so():
    fails = ("sh", "-c", "echo part; echo slurm: Invalid job id >&2; exit 1")
    assert ask(fails, {"PATH": "/usr/bin:/bin"}, "invalid job id") == "part\n"
    with pytest.raises(JobError, match="sh fails with exit code 1: slurm: Invalid job id"):
        ask(fails, {"PATH": "/usr/bin:/bin"})
    with pytest.raises(JobError, match="sh fails with exit code 3: it says nothing"):
        ask(("sh", "-c", "exit 3"), {"PATH": "/usr/bin:/bin"}, "invalid job id")


def test_nobody_there():
    with pytest.raises(JobError, match="cannot ask no-such-program"):
        ask(("no-such-program",), {})
