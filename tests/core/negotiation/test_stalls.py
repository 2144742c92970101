"""The words of a stall."""

from bireme.core.negotiation.messages import Kind, Request
from bireme.core.negotiation.stalls import stall_report


def test_names_are_gathered_by_who_is_missing():
    waiting = [(Request(f"t{n}", Kind.ALLREDUCE), [0]) for n in range(8)]
    waiting.append((Request("s", Kind.ALLREDUCE, process_set=1), [2]))
    text = stall_report(waiting, {0: (0, 1, 2), 1: (1, 2)}, {1: None}, 61.2)
    assert "for 61 s" in text
    assert "rank 2 misses t0, t1, t2, t3, t4, t5 and 2 more (submitted by rank 0)" in text
    text = stall_report(waiting[-1:], {0: (0, 1, 2), 1: (1, 2)}, (), 61.2)
    assert "rank 1 misses s (submitted by rank 2)" in text
