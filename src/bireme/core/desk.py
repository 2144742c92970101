"""What a worker has in hand: open calls, unanswered requests, and the actions to be returned.

Shared by :mod:`bireme.core.worker` (which takes calls in) and :mod:`bireme.core.answers` (which
takes answers in).
"""

from bireme.core.actions import Action, Complete, Fail, Release, Send
from bireme.core.bunches import Cut
from bireme.core.calls import CommandCall, InitCall, PullCall, PushCall, RowsCall
from bireme.core.handing import Handing
from bireme.core.inquiry import INQUIRY_LIMIT_S, Inquiry
from bireme.core.lanes import Lanes
from bireme.core.member import Member
from bireme.core.opencalls import OpenCall, OpenCalls
from bireme.core.questions import CommandRequest, RoundsRequest, StatusQuestion
from bireme.core.requests import (
    SCHEDULER_RANK,
    InitRequest,
    PullRequest,
    PushRequest,
    Request,
    RowsRequest,
)
from bireme.core.routes import Routes
from bireme.errors import BiremeError
from bireme.types.nodes import SCHEDULER, Role, server

__all__ = ("Desk",)

_LONGEST_PAUSE = 8
_MOST_ASKED = 8

_OUTLIVE_THEIR_CALL = (PushRequest, InitRequest, CommandRequest)


class Desk:
    """Sends requests until they are answered, and ends calls.

    Args:
        member: The worker's membership.
        cut: Takes the payloads of bunches apart.
    """

    def __init__(self, member: Member, cut: Cut | None = None) -> None:
        self.member = member
        self.routes = Routes()
        self.handing = Handing()
        self.calls = OpenCalls()
        self.lanes = Lanes(self.next_number, cut)
        self.requests: dict[int, Request] = {}
        self.actions: list[Action] = []
        self.key_names: dict[int, int | str] = {}
        self.barriers: dict[str, int] = {}
        """By name, the number of the first barrier that is not done."""
        self.now_s = 0.0
        self._last_number = -1
        self._stale: set[int] = set()
        self._inquiries: list[Inquiry] = []
        self._sweep_s: float | None = None

    def next_number(self) -> int:
        """Return a number that no request had before."""
        self._last_number += 1
        return self._last_number

    def take(self) -> list[Action]:
        """Send what is ready; return all actions and begin anew."""
        for request in self.lanes.take_ready():
            self.post(request)
        actions, self.actions = self.actions, []
        return actions

    def post(self, request: Request) -> None:
        """Send a new request, now or as soon as there is a link."""
        if isinstance(request, PushRequest | PullRequest):
            request.by_relay = self.handing.takes(request)
        self.register(request)
        self.send(request)

    def register(self, request: Request) -> None:
        """Keep a new request until it is answered."""
        self.requests[request.number] = request
        request.pause_s = self._resend_s()
        if self._sweep_s is None:
            self._sweep_s = self.now_s + request.pause_s / 4

    def send(self, request: Request) -> None:
        """Send a request, again or for the first time, if there is a link."""
        link = self.handing.link if request.by_relay else self._link_to(request.server)
        if link is None:
            return
        request.sent = True
        request.due_s = self.now_s + request.pause_s
        view = self.member.view
        message = request.message(view)
        if request.by_relay and isinstance(request, PushRequest):
            message = request.handover(view)
        elif request.by_relay and isinstance(request, PullRequest):
            message = request.fetch(view)
        self.actions.append(Send(link, message, request.payload(), request.priority))

    def stale(self, request: Request, view: int) -> None:
        """Send a request again as soon as ``view`` is known."""
        if self.member.view >= view:
            self.send(request)
        else:
            self._stale.add(request.number)

    def view_changed(self) -> None:
        """Send again what was refused as stale."""
        stale, self._stale = self._stale, set()
        for number in sorted(stale):
            if number in self.requests:
                self.send(self.requests[number])

    def reached(self, rank: int) -> None:
        """A link to a server, or the scheduler, is up again: send what it may have missed."""
        in_doubt = []
        for request in list(self.requests.values()):
            if request.server != rank or request.by_relay:
                continue
            if request.sent and isinstance(request, PushRequest):
                in_doubt.append(request)
            else:
                self.send(request)
        if in_doubt:
            self._ask_about(rank, in_doubt)

    def redirect(self, request: PushRequest | PullRequest) -> None:
        """Send to its server what was handed to the relay: a new beginning for it."""
        request.by_relay = False
        request.pause_s = self._resend_s()
        self.send(request)

    def relay_lost(self) -> None:
        """Send what was handed to the relay to the servers: they know what has arrived."""
        for request in list(self.requests.values()):
            if not request.by_relay:
                continue
            if isinstance(request, PushRequest | PullRequest):
                self.redirect(request)
            else:
                self.drop(request)

    def drop(self, request: Request) -> None:
        """Forget a request that is answered, or whose call is over."""
        self.requests.pop(request.number, None)
        if isinstance(request, RowsRequest | CommandRequest) and request.handle is not None:
            self.actions.append(Release(request.handle))

    def part_done(self, call: OpenCall | None, parts: int = 1) -> None:
        """Note that parts of a call are done; it completes with the last one."""
        if call is None or not parts:
            return
        call.remaining -= parts
        if call.remaining == 0 and call.open:
            self.complete(call, call.result or None)

    def complete(self, call: OpenCall, result: object = None) -> None:
        """End a call well."""
        if call.open:
            self.calls.close(call)
            self.actions.append(Complete(call.id, result))

    def fail(self, call: OpenCall | None, error: BiremeError) -> None:
        """End a call with an error; its pushes and commands go on without it."""
        if call is None or not call.open:
            return
        self.calls.close(call)
        self.actions.append(Fail(call.id, error))
        self.release_answers(call)
        for request in [each for each in self.requests.values() if each.call is call]:
            if not isinstance(request, _OUTLIVE_THEIR_CALL):
                self.drop(request)

    def release_answers(self, call: OpenCall) -> None:
        """Let go of the payloads that came with the answers to a command."""
        if isinstance(call.call, CommandCall):
            for answer in call.result.values():
                if isinstance(answer, tuple) and answer[1] is not None:
                    self.actions.append(Release(answer[1]))

    def abandon(self, error: BiremeError) -> None:
        """End all calls and let go of all payloads: nothing is sent any more."""
        for call in self.calls.all():
            self.fail(call, error)
        items: list[tuple[object, ...]] = list(self.lanes.abandon())
        for request in list(self.requests.values()):
            if isinstance(request, PushRequest | InitRequest):
                items += [item for _, item in request.items.values()]
            self.drop(request)
        handles = [item[2] if len(item) > 2 else item[1] for item in items]
        self.actions += [Release(handle) for handle in handles if handle is not None]
        self._inquiries.clear()
        self._sweep_s = None

    # Time.

    def tick(self) -> None:
        """Send again what got no answer, and look at the limits of calls."""
        now_s = self.now_s
        if self._sweep_s is not None and now_s >= self._sweep_s:
            self._sweep()
        for call in self.calls.expired(now_s):
            self._inquire(call)
        for inquiry in self._inquiries:
            if inquiry.call.open and (inquiry.complete or now_s >= inquiry.limit_s):
                self.fail(inquiry.call, inquiry.error(self.key_names, self._places()))
        self._end_inquiries()

    def next_deadline_s(self) -> float | None:
        """Return when ``tick`` has something to do."""
        due_s, first_s = self._sweep_s, self.calls.next_deadline_s()
        if first_s is not None and (due_s is None or first_s < due_s):
            due_s = first_s
        for inquiry in self._inquiries:
            if due_s is None or inquiry.limit_s < due_s:
                due_s = inquiry.limit_s
        return due_s

    def report(self, number: int, report: dict[str, object]) -> bool:
        """Take a node's report; return whether it was asked for by an inquiry."""
        for inquiry in self._inquiries:
            if inquiry.answered(number, report):
                if inquiry.complete:
                    self.fail(inquiry.call, inquiry.error(self.key_names, self._places()))
                return True
        return False

    def _places(self) -> dict[str, str]:
        """Where the other workers are, for messages."""
        return {
            str(node): f"process {info.pid} on {info.host}"
            for node, info in self.member.nodes.items()
            if node.role is Role.WORKER
        }

    def _resend_s(self) -> float:
        started = self.member.started
        return 5.0 if started is None else started.config.resend_timeout_s

    def _link_to(self, rank: int) -> int | None:
        if rank == SCHEDULER_RANK:
            return self.member.link if self.member.node is not None else None
        return self.routes.link_to(rank)

    def _sweep(self) -> None:
        pause_s = self._resend_s()
        in_doubt: dict[tuple[int, bool], list[PushRequest]] = {}
        for request in list(self.requests.values()):
            if not request.sent or self.now_s < request.due_s:
                continue
            request.pause_s = min(2 * request.pause_s, _LONGEST_PAUSE * pause_s)
            request.due_s = self.now_s + request.pause_s
            if isinstance(request, PushRequest):
                in_doubt.setdefault((request.server, request.by_relay), []).append(request)
            elif request.call is None and isinstance(request, RoundsRequest):
                self.drop(request)
            else:
                self.send(request)
        for (rank, _), pushes in in_doubt.items():
            self._ask_about(rank, pushes)
        self._sweep_s = self.now_s + pause_s / 4 if self.requests else None

    def _ask_about(self, rank: int, pushes: list[PushRequest]) -> None:
        """Ask whether pushes have arrived, which costs less than to send them again."""
        keys = dict.fromkeys(key_id for push in pushes for key_id, _ in push.items)
        about = tuple(push.number for push in pushes)
        question = RoundsRequest(self.next_number(), None, rank, tuple(keys), about)
        # It must not overtake the pushes it asks about, which may still wait to leave.
        question.priority = min(push.priority for push in pushes)
        question.by_relay = pushes[0].by_relay
        self.post(question)

    def _end_inquiries(self) -> None:
        over = [each for each in self._inquiries if not each.call.open]
        for inquiry in over:
            for number in inquiry.unanswered():
                self.requests.pop(number, None)
            self._inquiries.remove(inquiry)

    def _inquire(self, call: OpenCall) -> None:
        inquiry = Inquiry(call, _slots(call), self.now_s + INQUIRY_LIMIT_S)
        ranks = {each.server for each in self.requests.values() if each.call is call}
        ranks |= self.lanes.waiting_servers(call)
        for rank in sorted(ranks or {SCHEDULER_RANK})[:_MOST_ASKED]:
            name = str(SCHEDULER if rank == SCHEDULER_RANK else server(rank))
            if self._link_to(rank) is None:
                inquiry.add(f"there is no link to {name}")
                continue
            question = StatusQuestion(self.next_number(), None, rank)
            inquiry.ask(question.number, name)
            self.post(question)
        self._ask_relay(inquiry)
        self._inquiries.append(inquiry)

    def _ask_relay(self, inquiry: Inquiry) -> None:
        """Ask the relay too, which may hold a push back for want of another worker's."""
        if any(each.by_relay and each.call is inquiry.call for each in self.requests.values()):
            question = StatusQuestion(self.next_number(), None, SCHEDULER_RANK)
            question.by_relay = True
            inquiry.ask(question.number, "the relay of this machine")
            self.post(question)


def _slots(call: OpenCall) -> set[tuple[int, int]]:
    asked = call.call
    if isinstance(asked, PushCall):
        slots = {entry[:2] for entry in asked.entries}
        return slots.union(*[bunch.slots for bunch, _ in asked.bunches])
    if isinstance(asked, PullCall):
        return set(asked.slots).union(*[bunch.slots for bunch in asked.bunches])
    if isinstance(asked, RowsCall):
        return {(asked.key_id, asked.index)}
    if isinstance(asked, InitCall):
        return {(entry.key_id, entry.index) for entry, _ in asked.entries}
    return set()
