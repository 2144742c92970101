"""The loop: nothing that is left for it is missed."""

import socket
import threading
import time

from bireme.transport.loop import Loop


def test_work_from_other_threads_is_done_while_it_waits() -> None:
    loop = Loop()
    done = threading.Event()
    results: list[int] = []

    def run() -> None:
        while len(results) < 2000:
            loop.step(None)
        done.set()

    thread = threading.Thread(target=run)
    thread.start()
    senders = [
        threading.Thread(target=lambda: [loop.soon(lambda: results.append(1)) for _ in range(1000)])
        for _ in range(2)
    ]
    for sender in senders:
        sender.start()
    assert done.wait(20)
    thread.join()
    loop.close()


def test_wake_is_never_lost() -> None:
    loop = Loop()
    for _ in range(300):
        thread = threading.Thread(target=loop.wake)
        thread.start()
        while not loop.step(20):
            pass
        thread.join()
    loop.close()


def test_limits_run_when_due_and_not_when_forgotten() -> None:
    loop = Loop()
    due: list[str] = []
    one, other = socket.socketpair()
    loop.watch(one, lambda readable, writable: None, writing=False)
    loop.limit(one, time.monotonic() + 0.01, lambda: due.append("forgotten"))
    loop.limit("kept", time.monotonic() + 0.02, lambda: due.append("kept"))
    loop.forget(one)
    began_s = time.monotonic()
    while not due:
        loop.step(None)
    assert due == ["kept"]
    assert time.monotonic() - began_s < 2
    one.close()
    other.close()
    loop.close()


def test_sockets_are_watched_for_what_was_asked() -> None:
    loop = Loop()
    seen: list[tuple[bool, bool]] = []
    one, other = socket.socketpair()
    loop.watch(one, lambda readable, writable: seen.append((readable, writable)), writing=True)
    loop.step(20)
    loop.watch(one, lambda readable, writable: seen.append((readable, writable)), writing=False)
    loop.step(0)
    other.send(b"x")
    loop.step(20)
    assert seen == [(False, True), (True, False)]
    loop.forget(one)
    loop.step(0)
    assert len(seen) == 2
    one.close()
    other.close()
    loop.close()
