"""Any order of submission, report and delivery gives one sequence, and nothing is lost."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.negotiation.world import World, allreduce

from bireme.core.negotiation.messages import Kind, Request

SETS = {0: (0, 1, 2), 1: (0, 1), 2: (1, 2)}


@dataclass
class Operation:
    """What the ranks of a set submit under one name in one step."""

    requests: dict


@st.composite
def operations(draw):
    """A step: names of which some repeat from step to step, sizes that change, some mismatches."""
    chosen = draw(
        st.lists(
            st.tuples(st.sampled_from(sorted(SETS)), st.sampled_from("abcdefgh")),
            unique=True,
            max_size=8,
        )
    )
    step = []
    for number, name in chosen:
        kind = draw(st.sampled_from(["sum", "sum", "sum", "changing", "gather", "wrong", "group"]))
        shape = (draw(st.sampled_from([2, 3])),) if kind == "changing" else (2,)
        requests = {}
        for rank in SETS[number]:
            if kind == "gather":
                rows = draw(st.sampled_from([1, 2]))
                request = Request(name, Kind.ALLGATHER, "float32", (rows,), process_set=number)
            elif kind == "wrong":
                odd = draw(st.booleans())
                request = allreduce(name, (2,), prescale=1.0 + odd, process_set=number)
            else:
                request = allreduce(name, shape, process_set=number)
            requests[rank] = [request]
            if kind == "group":
                requests[rank] = [
                    allreduce(name + "." + half, process_set=number, group=name, group_size=2)
                    for half in "xy"
                ]
        step.append(Operation(requests))
    return step


class Shuffler:
    """Moves the messages of a world in an order that hypothesis chooses."""

    def __init__(self, data, world):
        self.data = data
        self.world = world

    def moves(self, unsubmitted):
        world = self.world
        for rank, member in enumerate(world.members):
            if unsubmitted[rank]:
                yield "submit", rank
            if member.has_news:
                yield "report", rank
            if world.up[rank]:
                yield "up", rank
            if world.down[rank]:
                yield "down", rank
            if world.board.num_read[rank] < len(world.board.log):
                yield "read", rank

    def run(self, unsubmitted):
        """Do one move after the other until none is left."""
        world = self.world
        while True:
            moves = list(self.moves(unsubmitted))
            if not moves:
                return
            move, rank = self.data.draw(st.sampled_from(moves))
            if move == "submit":
                key = unsubmitted[rank][0].key
                if key in world.members[rank]._flying:
                    # Under way: a rank waits for it before it submits the name again.
                    self.flush(rank, unsubmitted)
                    continue
                world.submit(rank, unsubmitted[rank].pop(0))
            elif move == "report":
                world.report(rank)
            elif move == "up":
                world.deliver_up(rank)
            elif move == "read":
                world.read_board(rank)
            else:
                world.deliver_down(rank)

    def flush(self, rank, unsubmitted):
        """Let the others go on until the name is free: submit all that stands before it."""
        world = self.world
        key = unsubmitted[rank][0].key
        for _ in range(1000):
            world.settle()
            if key not in world.members[rank]._flying:
                return
            others = [
                other
                for other in range(len(world.members))
                if unsubmitted[other]
                and unsubmitted[other][0].key not in world.members[other]._flying
            ]
            assert others, f"no rank can go on: {key} is under way for ever"
            world.submit(others[0], unsubmitted[others[0]].pop(0))
        raise AssertionError("too many moves")


def with_sets(capacity, threshold_bytes, board_slots=0):
    world = World(3, threshold_bytes, board_slots, cache_capacity=capacity)
    for number in (1, 2):
        for rank in range(3):
            world.submit(rank, Request("add", Kind.ADD_SET, numbers=SETS[number]))
        world.settle()
    return world


def check_alike(world):
    """Two ranks see what both take part in, in one order."""
    for one in range(3):
        for two in range(one):
            shared = {n for n, ranks in SETS.items() if one in ranks and two in ranks}
            views = []
            for rank in (one, two):
                view = []
                for entry in world.logs[rank]:
                    number = entry[1][0] if entry[0] == "failed" else entry[0]
                    if number in shared:
                        view.append(entry)
                views.append(view)
            assert views[0] == views[1]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_all_ranks_run_one_sequence_and_lose_nothing(data):
    steps = data.draw(st.lists(operations(), min_size=1, max_size=4))
    world = with_sets(
        data.draw(st.integers(0, 5)),
        data.draw(st.sampled_from([0, 16, 1 << 20])),
        data.draw(st.sampled_from([0, 2, 1024])),
    )
    unsubmitted = [[], [], []]
    expected = [0, 0, 0]
    for step in steps:
        for rank in range(3):
            mine = [op.requests[rank] for op in step if rank in op.requests]
            for requests in data.draw(st.permutations(mine)):
                unsubmitted[rank] += requests
                expected[rank] += len(requests)
        # Names come back in the next step: a rank goes on once its own are done.
        Shuffler(data, world).run(unsubmitted)
        world.settle()
        assert not any(unsubmitted)
        assert [len(member) for member in world.members] == [0, 0, 0]
    for rank in range(3):
        total = sum(1 if entry[0] == "failed" else len(entry) - 1 for entry in world.logs[rank])
        assert total == expected[rank]
    check_alike(world)
    assert not world.coordinator._tallies
    assert not world.coordinator._pending.union()
    assert world.stops == [None] * 3


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_uneven_data_ends_by_join_whatever_the_order(data):
    """Ranks with 0 to 4 steps join when they are done; every step of the longest runs."""
    num_steps = data.draw(st.lists(st.integers(0, 4), min_size=3, max_size=3))
    world = World(
        3,
        board_slots=data.draw(st.sampled_from([0, 1024])),
        cache_capacity=data.draw(st.integers(0, 4)),
    )
    unsubmitted = [
        [allreduce(f"{name}") for _ in range(steps) for name in "ab"]
        + [Request("join.noname", Kind.JOIN)]
        for steps in num_steps
    ]
    Shuffler(data, world).run(unsubmitted)
    world.settle()
    assert [len(member) for member in world.members] == [0, 0, 0]
    ends = [world.end(rank, "join.noname") for rank in range(3)]
    assert ends[0] == ends[1] == ends[2]
    assert ends[0][0] == "settled"
    assert num_steps[ends[0][1]] >= 0
    assert world.logs[0] == world.logs[1] == world.logs[2]
    ran = [name for entry in world.logs[0] for name in entry[1:]]
    assert sorted(ran) == sorted(["a", "b"] * max(num_steps))


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_steps_whose_names_are_resubmitted_at_once(data):
    """Fast ranks are a step ahead of slow ones; small caches evict what is on its way."""
    world = with_sets(data.draw(st.integers(0, 3)), 0, data.draw(st.sampled_from([0, 1024])))
    names = data.draw(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=6, unique=True))
    num_steps = data.draw(st.integers(1, 3))
    shapes = data.draw(st.lists(st.sampled_from([2, 3]), min_size=num_steps, max_size=num_steps))
    unsubmitted = [[], [], []]
    for rank in range(3):
        for step in range(num_steps):
            order = data.draw(st.permutations(names))
            unsubmitted[rank] += [allreduce(name, (shapes[step],)) for name in order]
    Shuffler(data, world).run(unsubmitted)
    world.settle()
    assert [len(member) for member in world.members] == [0, 0, 0]
    assert world.logs[0] == world.logs[1] == world.logs[2]
    assert len(world.logs[0]) == num_steps * len(names)
    assert all(entry[0] != "failed" for entry in world.logs[0])


def test_what_is_forgotten_under_way_is_reported_before_a_join_that_came_after_it():
    world = World(3, cache_capacity=0)
    join = Request("join.noname", Kind.JOIN)
    for rank in (0, 1):
        world.submit(rank, join)
        world.report(rank)
        world.deliver_up(rank)
    world.submit(2, allreduce("a"))
    world.report(2)
    world.submit(2, allreduce("b"))
    world.settle()
    world.submit(2, allreduce("a"))
    world.report(2)
    world.submit(2, allreduce("b"))
    world.deliver_up(2)
    world.submit(2, join)
    world.deliver_down(2)
    world.settle()
    assert [len(member) for member in world.members] == [0, 0, 0]
    assert [name for entry in world.logs[0] for name in entry[1:]] == ["a", "b", "a", "b"]
