import pytest

from bireme.errors import JobError
from bireme.launch.asking import ask


def test_answers():
    assert ask(("sh", "-c", "echo $A; exit 3"), {"PATH": "/usr/bin:/bin", "A": "yes"}) == "yes\n"


def test_nobody_there():
    with pytest.raises(JobError, match="cannot ask no-such-program"):
        ask(("no-such-program",), {})
