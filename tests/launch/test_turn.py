"""A turn calls what is ready, unless an earlier call has taken it out."""

import os
import selectors

from bireme.launch.turn import turn


def test_one_that_takes_out_the_others():
    called = []
    with selectors.DefaultSelector() as selector:
        pipes = [os.pipe() for _ in range(3)]

        def act(number):
            called.append(number)
            for reader, _ in pipes:
                selector.unregister(reader)

        for number, (reader, writer) in enumerate(pipes):
            os.write(writer, b"x")
            selector.register(reader, selectors.EVENT_READ, lambda number=number: act(number))
        turn(selector, 1.0)
        assert len(called) == 1
        turn(selector, 0.0)
        assert len(called) == 1
        for ends in pipes:
            for end in ends:
                os.close(end)


def test_what_only_wakes():
    with selectors.DefaultSelector() as selector:
        reader, writer = os.pipe()
        selector.register(reader, selectors.EVENT_READ)
        os.write(writer, b"x")
        turn(selector, 10.0)
        os.close(reader)
        os.close(writer)
