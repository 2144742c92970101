"""Ranks and their coordinator without a network: messages wait until a test delivers them."""

from collections import deque

from bireme.core.negotiation.coordinator import Coordinator
from bireme.core.negotiation.events import Absorbed, Reported, Send, Ticked, Warn
from bireme.core.negotiation.member import Execute, Fail, Member, Settle, Stop
from bireme.core.negotiation.messages import Kind, Request

__all__ = ("World", "allreduce")


def allreduce(name, shape=(2,), **fields):
    return Request(name, Kind.ALLREDUCE, "float32", shape, op=1, **fields)


class Board:
    """What `bireme.collective.board.Board` is, on paper."""

    def __init__(self, size):
        self.epoch = 0
        self.posted = [0] * size
        self.log = []
        self.num_read = [0] * size
        self.num_absorbed = 0

    def post(self, rank, mask, epoch):
        if not epoch or epoch != self.epoch:
            return False
        assert not self.posted[rank] & mask
        self.posted[rank] |= mask
        ready = -1
        for each in self.posted:
            ready &= each
        if ready:
            self.posted = [each ^ ready for each in self.posted]
            self.log.append(ready)
        return True

    def read(self, rank):
        runs, self.num_read[rank] = self.log[self.num_read[rank] :], len(self.log)
        return runs

    def absorb(self):
        self.epoch = 0
        posted, self.posted = self.posted, [0] * len(self.posted)
        ran = 0
        for mask in self.log[self.num_absorbed :]:
            ran |= mask
        self.num_absorbed = len(self.log)
        return posted, ran


class World:
    """Delivers reports and verdicts in order per rank, in any order between ranks."""

    def __init__(self, size, threshold_bytes=1 << 20, board_slots=0, **options):
        self.coordinator = Coordinator(size, has_board=bool(board_slots), **options)
        self.members = [Member(threshold_bytes, board_slots) for _ in range(size)]
        self.board = Board(size)
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
        """Post, or freeze the board and report."""
        member = self.members[rank]
        mask = 0 if fields else member.postable
        if mask and self.board.post(rank, mask, member.epoch):
            member.has_posted()
            return
        if member.epoch:
            self.board.epoch = 0
        self.up[rank].append(member.report(**fields))

    def read_board(self, rank):
        runs = self.board.read(rank)
        for mask in runs:
            self.carry_out(rank, self.members[rank].run(mask))
        return bool(runs)

    def feed(self, event):
        epoch = self.coordinator.epoch
        if epoch:
            self.handle(Absorbed(epoch, *self.board.absorb()))
        self.handle(event)
        if self.coordinator.epoch:
            self.board.epoch = self.coordinator.epoch

    def handle(self, event):
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
        self.read_board(rank)
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
                moved = self.read_board(rank) or moved
                while self.down[rank]:
                    self.deliver_down(rank)
                    moved = True

    def end(self, rank, name, process_set=0):
        return self.ends[rank].pop((process_set, name), None)
