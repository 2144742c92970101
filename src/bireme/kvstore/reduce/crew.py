"""Threads that help with one piece of work, made when first needed and again after a fork."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait

__all__ = ("Crew",)


class Crew:
    """Runs one function in several threads at once, the caller's among them.

    The function shares out its work itself, so that it also gets done when no helper ever
    starts: a helper that has not begun when the caller has finished is called off.

    Example:
        >>> calls = []
        >>> Crew().run(lambda: calls.append("here"), num_threads=1)
        >>> calls
        ['here']
    """

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._num_helpers = 0
        self._process = 0

    def run(self, work: Callable[[], None], num_threads: int) -> None:
        """Return when ``work`` has returned in every thread that began it.

        Args:
            work: Called in each thread; must share out its work.
            num_threads: At most this many threads, the caller's included, >= 1.

        Raises:
            BaseException: What ``work`` raised, in any thread.
        """
        if num_threads <= 1:
            work()
            return
        pool = self._ready(num_threads - 1)
        helpers = [pool.submit(work) for _ in range(num_threads - 1)]
        try:
            work()
        finally:
            begun = [helper for helper in helpers if not helper.cancel()]
            wait(begun)
        for helper in begun:
            helper.result()

    def _ready(self, num_helpers: int) -> ThreadPoolExecutor:
        # Threads do not survive a fork, and a pool without threads would wait for ever.
        process = os.getpid()
        if self._pool is None or self._process != process or self._num_helpers < num_helpers:
            self._pool = ThreadPoolExecutor(num_helpers, thread_name_prefix="bireme-reduce")
            self._process, self._num_helpers = process, num_helpers
        return self._pool
