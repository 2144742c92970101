"""The board: who posts last says what runs, everybody reads one order, and sleepers are woken."""

import fcntl
import multiprocessing
import os
import random
import threading
import time

import pytest
from tests.collective.boards import boards_of

from bireme.collective.board import MAX_SLOTS, PATIENCE_S

LIMIT_S = 10.0
EPOCH = 7


@pytest.fixture
def boards():
    made = boards_of(3)
    made[0].open(EPOCH)
    yield made
    for board in made:
        board.close()
        board.close()


def test_what_all_have_posted_runs_once_for_each(boards):
    assert boards[0].post(0b011, EPOCH)
    assert boards[1].post(0b110, EPOCH)
    assert boards[0].read() == []
    assert boards[2].post(0b111, EPOCH)
    assert boards[0].post(0b100, EPOCH)
    assert [board.read() for board in boards] == [[0b010, 0b100]] * 3
    assert boards[0].read() == []
    assert boards[0].absorb() == [0b001, 0, 0b001]


def test_a_board_that_is_not_open_for_an_epoch_takes_nothing(boards):
    assert not boards[0].post(1, EPOCH + 1)
    boards[1].freeze()
    assert boards[2].epoch == 0
    assert not boards[0].post(1, EPOCH)
    boards[0].open(EPOCH + 1)
    assert not boards[0].post(1, EPOCH)
    assert boards[0].post(1, EPOCH + 1)
    assert boards[0].absorb() == [1, 0, 0]
    assert boards[0].absorb() == [0, 0, 0]


def test_the_log_is_a_ring_and_nobody_misses_an_entry(boards):
    """One rank reads as late as it may: when it has to post a slot again."""
    last = 1 << MAX_SLOTS - 1
    for turn in range(8):
        for slot in range(0, MAX_SLOTS, 7):
            for board in boards:
                assert board.post(1 << slot, EPOCH)
        for board in boards:
            assert board.read() == [1 << slot for slot in range(0, MAX_SLOTS, 7)], turn
    for board in boards:
        assert board.post(last, EPOCH)
    assert boards[1].read() == [last]


@pytest.mark.parametrize("how", ["run", "freeze", "wake"])
def test_a_sleeper_is_woken(boards, how):
    boards[0].post(1, EPOCH)
    bell = boards[0].bell
    began = threading.Event()
    took_s = []

    def sleep():
        began.set()
        start_s = time.monotonic()
        while boards[0].bell == bell:
            boards[0].wait(bell)
        took_s.append(time.monotonic() - start_s)

    sleeper = threading.Thread(target=sleep)
    sleeper.start()
    assert began.wait(LIMIT_S)
    if how == "run":
        boards[1].post(1, EPOCH)
        assert boards[0].bell == bell, "nothing to see yet"
        boards[2].post(1, EPOCH)
    elif how == "freeze":
        boards[1].freeze()
    else:
        boards[0].wake()
    sleeper.join(LIMIT_S)
    assert not sleeper.is_alive()


def test_a_sleep_ends_at_its_limit(boards):
    start_s = time.monotonic()
    boards[0].wait(boards[0].bell, 0.0)
    boards[0].wait(boards[0].bell, 0.01)
    boards[0].wait(boards[0].bell + 1)
    boards[0].wait(boards[0].bell)
    assert PATIENCE_S * 0.9 < time.monotonic() - start_s < LIMIT_S


def test_ranks_that_post_at_the_same_time_read_one_order():
    boards = boards_of(3)
    boards[0].open(EPOCH)
    read = [[], [], []]
    num_steps, num_slots = 30, 5

    def rank(number):
        board, order = boards[number], random.Random(number)
        for _ in range(num_steps):
            slots = list(range(num_slots))
            order.shuffle(slots)
            left = (1 << num_slots) - 1
            for slot in slots:
                assert board.post(1 << slot, EPOCH)
            while left:
                bell = board.bell
                runs = board.read()
                for mask in runs:
                    assert left & mask == mask
                    left ^= mask
                read[number] += runs
                if not runs:
                    board.wait(bell)

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
        assert not thread.is_alive()
    assert read[0] == read[1] == read[2]
    for board in boards:
        board.close()


def _hold(descriptor, has_begun):
    lock = os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    has_begun.set()
    time.sleep(60.0)


def test_a_process_that_dies_with_the_lock_leaves_it_free(boards):
    context = multiprocessing.get_context("fork")
    has_begun = context.Event()
    holder = context.Process(
        target=_hold, args=(boards[0]._segment._descriptor, has_begun), daemon=True
    )
    holder.start()
    assert has_begun.wait(LIMIT_S)
    holder.kill()
    assert boards[1].post(1, EPOCH)
    holder.join(LIMIT_S)


def test_a_forked_child_does_not_hold_the_lock(boards):
    """A child's copy of a descriptor would keep the lock that its parent died with."""
    (lock,) = boards[0].descriptors()
    child = os.fork()
    if not child:
        os._exit(int(os.readlink(f"/proc/self/fd/{lock}") != os.devnull))
    assert os.waitpid(child, 0)[1] == 0
