"""Ranks and their coordinator without a network: messages wait until a test delivers them."""

from collections import deque

from bireme.core.negotiation.coordinator import Coordinator
from bireme.core.negotiation.events import Reported, Send, Ticked, Warn
from bireme.core.negotiation.member import Execute, Fail, Member, Settle, Stop
from bireme.core.negotiation.messages import Kind, Request

__all__ = ("World", "allreduce")


def allreduce(name, shape=(2,), **fields):
    return Request(name, Kind.ALLREDUCE, "float32", shape, op=1, **fields)


class World:
    """Delivers reports and verdicts in order per rank, in any order between ranks."""

    def __init__(self, size, threshold_bytes=1 << 20, **options):
        self.coordinator = Coordinator(size, **options)
        self.members = [Member(threshold_bytes) for _ in range(size)]
        self.up = [deque() for _ in range(size)]
        self.down = [deque() for _ in range(size)]
        self.logs = [[] for _ in range(size)]
        self.ends = [{} for _ in range(size)]
        self.stops = [None] * size
        self.warnings = []
        self.notes = []
        self.now_s = 0.0

    def submit(self, rank, *requests):
        for request in requests:
            self.members[rank].submit(request.key, request, request, lambda r=request: r)

    def report(self, rank, **fields):
        self.up[rank].append(self.members[rank].report(**fields))

    def feed(self, event):
        for action in self.coordinator.handle(event, self.now_s):
            if isinstance(action, Send):
                self.down[action.rank].append(action.verdict)
            elif isinstance(action, Warn):
                self.warnings.append(action.text)
            else:
                self.notes.append(action)

    def deliver_up(self, rank):
        self.feed(Reported(rank, self.up[rank].popleft()))

    def deliver_down(self, rank):
        for order in self.members[rank].take(self.down[rank].popleft()):
            self.carry_out(rank, order)

    def carry_out(self, rank, order):
        member = self.members[rank]
        if isinstance(order, Execute):
            for bucket in order.buckets:
                names = [each.request.name for each in bucket.members]
                self.logs[rank].append((bucket.request.process_set, *names))
                for each in bucket.members:
                    ticket = member.take_ticket(each.request.key)
                    self.ends[rank][each.request.key] = (
                        "zeros" if ticket is None else ("ran", each.request, each.sizes)
                    )
        elif isinstance(order, Fail):
            if member.take_ticket(order.key) is not None:
                self.logs[rank].append(("failed", order.key))
                self.ends[rank][order.key] = ("failed", order.fault, order.message)
        elif isinstance(order, Settle):
            member.take_ticket(order.request.key)
            self.ends[rank][order.request.key] = ("settled", order.value)
        else:
            assert isinstance(order, Stop)
            member.tickets()
            self.stops[rank] = (order.fault, order.message)

    def tick(self, now_s):
        self.now_s = now_s
        self.feed(Ticked())
        self.settle()

    def settle(self):
        """Report and deliver until nothing moves."""
        moved = True
        while moved:
            moved = False
            for rank, member in enumerate(self.members):
                if member.has_news:
                    self.report(rank)
                while self.up[rank]:
                    self.deliver_up(rank)
                    moved = True
                while self.down[rank]:
                    self.deliver_down(rank)
                    moved = True

    def end(self, rank, name, process_set=0):
        return self.ends[rank].pop((process_set, name), None)
