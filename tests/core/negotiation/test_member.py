"""A rank's books: names, slots, plans."""

import pytest
from tests.core.negotiation.world import allreduce

from bireme.core.negotiation.member import Execute, Fail, Member, Settle, Stop
from bireme.core.negotiation.messages import (
    Ended,
    Failed,
    Fault,
    Forget,
    Kind,
    Learned,
    Request,
    Run,
    Settled,
    Verdict,
)
from bireme.errors import ConfigError, RemoteProtocolError


def submit(member, request, ticket="ticket"):
    member.check_free(request.key)
    member.submit(request.key, request, ticket, lambda: request)


@pytest.fixture
def member():
    """A member that knows ``a`` as slot 0 and has nothing under way."""
    member = Member(1 << 20)
    submit(member, allreduce("a"))
    member.report()
    member.take(Verdict(1, [Learned(0, allreduce("a"))]))
    member.take_ticket((0, "a"))
    return member


def test_a_known_operation_is_a_bit(member):
    assert not member.has_news
    submit(member, allreduce("a"))
    assert member.has_news
    report = member.report()
    assert (report.seen, report.hits, report.requests) == (1, b"\x01", [])
    assert not member.has_news


def test_a_known_operation_may_be_submitted_again_at_once(member):
    known, other = allreduce("a"), allreduce("a", (9,))
    for request in (other, allreduce("b")):
        assert member.submit_again(request.key, request, "ticket", lambda: None) is None
    assert not member.has_news
    assert len(member) == 0

    assert member.submit_again(known.key, known, "ticket", lambda: known) is True
    with pytest.raises(ConfigError, match="a is under way"):
        member.submit_again(known.key, known, "another", lambda: known)
    assert member.report().hits == b"\x01"
    assert member.take_ticket(known.key) == "ticket"


def test_only_the_first_of_several_is_news(member):
    member.take(Verdict(2, [Learned(1, allreduce("b"))]))
    submit(member, allreduce("b"))
    member.take_ticket((0, "b"))
    member.take(Verdict(3, [Learned(1, allreduce("b"))]))
    known = allreduce("a")
    assert member.submit_again(known.key, known, "ticket", lambda: known) is False


def test_one_that_was_submitted_again_is_told_by_name_if_its_slot_goes(member):
    known = allreduce("a")
    assert member.submit_again(known.key, known, "ticket", lambda: known)
    member.take(Verdict(2, [Forget(0)]))
    assert member.report().requests == [known]


def test_a_changed_one_is_told_whole(member):
    submit(member, allreduce("a", (9,)))
    report = member.report()
    assert (report.hits, report.requests) == (b"", [allreduce("a", (9,))])


def test_a_slot_that_goes_before_its_report_left_is_told_by_name(member):
    submit(member, allreduce("a"))
    member.take(Verdict(2, [Forget(0)]))
    report = member.report()
    assert (report.seen, report.hits, report.requests) == (2, b"", [allreduce("a")])


def test_a_slot_that_is_learned_anew_before_its_report_left_is_told_by_name(member):
    submit(member, allreduce("a"))
    member.take(Verdict(2, [Learned(0, allreduce("b"))]))
    assert member.report().requests == [allreduce("a")]
    member.take(Verdict(3, [Forget(7)]))


def test_what_was_learned_without_this_rank_is_told_whole(member):
    member.take(Verdict(2, [Learned(1, allreduce("b"))]))
    submit(member, allreduce("b"))
    assert member.report().requests == [allreduce("b")]


def test_a_name_is_free_once_its_ticket_is_taken(member):
    submit(member, allreduce("a"), "mine")
    with pytest.raises(ConfigError, match="a is under way"):
        member.check_free((0, "a"))
    assert len(member) == 1
    assert member.take_ticket((0, "a")) == "mine"
    assert member.take_ticket((0, "a")) is None
    member.check_free((0, "a"))
    submit(member, allreduce("a"), "again")
    assert member.tickets() == ["again"]
    assert member.tickets() == []


def test_plans_are_made_once_until_something_is_learned(member):
    (first,) = member.take(Verdict(2, [Run(b"\x01")]))
    (second,) = member.take(Verdict(3, [Run(b"\x01")]))
    assert isinstance(first, Execute)
    assert first.buckets[0] is second.buckets[0]
    *_, third = member.take(Verdict(4, [Learned(1, allreduce("b")), Run(b"\x03")]))
    assert [each.request.name for each in third.buckets[0].members] == ["a", "b"]


def test_orders_follow_the_verdict(member):
    join = Request("join", Kind.JOIN)
    items = [
        Failed(0, ["x", "y"], Fault.MISMATCH, "why"),
        Settled(join, 3),
        Ended(Fault.LOST, "who"),
    ]
    assert member.take(Verdict(2, items)) == [
        Fail((0, "x"), Fault.MISMATCH, "why"),
        Fail((0, "y"), Fault.MISMATCH, "why"),
        Settle(join, 3),
        Stop(Fault.LOST, "who"),
    ]


def test_a_slot_without_a_meaning_breaks_the_protocol(member):
    with pytest.raises(RemoteProtocolError, match="slot 2"):
        member.take(Verdict(2, [Run(b"\x04")]))


def test_plans_are_bounded(member):
    member.take(Verdict(2, [Learned(slot, allreduce(f"n{slot}")) for slot in range(1, 12)]))
    for number in range(1, 1000):
        member.take(Verdict(2 + number, [Run(number.to_bytes(2, "little").rstrip(b"\0"))]))
    assert len(member._plans) <= 256
