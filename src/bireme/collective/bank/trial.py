"""Whether processes of this machine can meet in shared memory, found out by two that do.

Called by ``bireme doctor``, and by itself as the second process. Knows nothing of torch.
"""

import os
import subprocess
import sys
import time

from bireme.collective.bank.futex import futex_number
from bireme.collective.bank.segment import Layout, Segment, State, make_file
from bireme.collective.bank.steps import Steps
from bireme.errors import BiremeError, CollectiveError

__all__ = ("accompany", "try_bank")

_LAYOUT = Layout(num_ranks=2, area_bytes=4096)
_NUM_STEPS = 200
_COMING_S, _LIMIT_S = 60.0, 20.0
_CODE = (
    "import sys; from bireme.collective.bank.trial import accompany; accompany(int(sys.argv[1]))"
)


def try_bank() -> str:
    """Return ``"works: ..."``, or why the bank does not work here.

    Example:
        >>> try_bank().partition(":")[0]
        'works'
    """
    if futex_number() is None:
        return "does not work: this system has no futexes; collectives go over Gloo"
    try:
        spent_s = _meet_a_child()
    except (BiremeError, OSError) as error:
        return f"does not work: {error}; use Gloo"
    return f"works: processes here share memory, {spent_s / _NUM_STEPS * 1e6:.0f} us a step"


def _meet_a_child() -> float:
    """Return how long the steps took, in seconds."""
    descriptor = make_file(_LAYOUT)
    try:
        segment = Segment(os.dup(descriptor), _LAYOUT, 0)
        try:
            command = [sys.executable, "-c", _CODE, str(descriptor)]
            with subprocess.Popen(
                command, pass_fds=[descriptor], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            ) as child:
                try:
                    return _walk_with(child, segment)
                finally:
                    child.kill()
        finally:
            segment.close()
    finally:
        os.close(descriptor)


def _walk_with(child: "subprocess.Popen[bytes]", segment: Segment) -> float:
    deadline_s = time.monotonic() + _COMING_S
    while segment.words[segment.state_word(1)] != State.HERE:
        if (code := child.poll()) is not None:
            raise CollectiveError(f"the second process of the trial ended with {code}")
        if time.monotonic() > deadline_s:
            raise CollectiveError("the second process of the trial did not come")
        time.sleep(0.01)
    return _walk(segment)


def _walk(segment: Segment) -> float:
    """Take steps, and see in each that what the other has written is there."""
    steps, other = Steps(segment), 1 - segment.rank
    steps.begin("trial", _LIMIT_S)
    start_s = time.perf_counter()
    for number in range(_NUM_STEPS):
        odd = steps.step & 1
        segment.area(segment.rank, odd)[0] = number + segment.rank
        steps.end_step()
        if segment.area(other, odd)[0] != number + other:
            raise CollectiveError("what one process writes the other does not see in time")
    return time.perf_counter() - start_s


def accompany(descriptor: int) -> None:
    """Be the second process.

    Args:
        descriptor: The memory file; inherited.
    """
    segment = Segment(descriptor, _LAYOUT, 1)
    try:
        _walk(segment)
    finally:
        segment.close()
