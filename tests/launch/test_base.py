"""The interface says what a backend promises; the real ones are checked by their own tests."""

from bireme.launch.base import Backend, State, Submitted
from bireme.launch.registry import BACKENDS, find_backend


def test_the_promises_are_written_down():
    assert "Guarantees:" in Backend.__doc__


def test_backends_have_every_member():
    members = {name for name in vars(Backend) if not name.startswith("_")}
    assert {"add_options", "from_options", "plan", "render", "submit", "status"} <= members
    for name in BACKENDS:
        assert all(hasattr(find_backend(name), member) for member in members)


def test_a_job_in_a_queue_has_no_exit_code_yet():
    assert Submitted(job="17", exit_code=None).exit_code is None
    assert [str(state) for state in State] == ["queued", "running", "ended"]
