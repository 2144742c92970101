"""What Slurm's commands say of a job. Pure; called by the backend for Slurm."""

from bireme.launch.base import State

__all__ = ("shown", "shown_exit_code", "shown_state")

_QUEUED = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SUSPENDED")
_RUNNING = ("RUNNING", "COMPLETING", "STAGE_OUT", "SIGNALING", "STOPPED", "RESIZING")


def shown(said: str, name: str) -> str:
    """Return a field of what ``scontrol --oneliner show job`` prints; empty if it is not there.

    Example:
        >>> shown("JobId=7 JobState=FAILED ExitCode=3:0", "JobState")
        'FAILED'
    """
    found = [word.partition("=")[2] for word in said.split() if word.startswith(f"{name}=")]
    return found[0] if found else ""


def shown_state(said: str) -> State:
    """Return how a job is; one that Slurm knows no longer has ended."""
    state = shown(said, "JobState")
    if state in _QUEUED:
        return State.QUEUED
    return State.RUNNING if state in _RUNNING else State.ENDED


def shown_exit_code(said: str) -> int | None:
    """Return a job's exit code as a shell would show it; ``None`` while it goes on.

    Example:
        >>> shown_exit_code("JobState=FAILED ExitCode=3:0"), shown_exit_code("JobState=RUNNING")
        (3, None)
        >>> shown_exit_code("JobState=CANCELLED ExitCode=0:15")
        143
    """
    if shown_state(said) is not State.ENDED:
        return None
    code, _, signum = shown(said, "ExitCode").partition(":")
    if signum.isdecimal() and int(signum):
        return 128 + int(signum)
    if code.isdecimal() and (int(code) or shown(said, "JobState") == "COMPLETED"):
        return int(code)
    # Cancelled before it began, out of time, or forgotten: nothing says that it went well.
    return 1
