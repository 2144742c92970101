"""The canonical order of a sum: one fixed binary tree over the shards of a global batch.

Floating point sums depend on their order, so the server never adds by order of arrival: partial
sums are combined only along this tree. Nodes are numbered as in a heap: 1 is the root, ``2 * n``
and ``2 * n + 1`` are below ``n``, and the leaves are the shards. Called by ``core.slots``.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

from bireme.errors import ConfigError

__all__ = ("Tree",)

P = TypeVar("P")


class Tree:
    """Says which partial sums may be combined, whatever the order of arrival.

    A pair of siblings is combined as soon as both are there; a sibling without any live shard is
    empty and is skipped. So the sum of a given set of contributions has one order only.

    Args:
        num_shards: Leaves, >= 1.

    Example:
        >>> tree, partials = Tree(3), {}
        >>> for shard in (2, 0, 1):
        ...     node = tree.node(shard, shard + 1)
        ...     node, total = tree.rise(partials, node, {shard}, lambda a, b: a | b)
        ...     partials[node] = total
        ...     print(partials)
        {3: {2}}
        {3: {2}, 4: {0}}
        {1: {0, 1, 2}}
    """

    def __init__(self, num_shards: int) -> None:
        if num_shards < 1:
            raise ConfigError(f"a batch has at least one shard, got {num_shards}")
        self.num_shards = num_shards
        self._size = 1 << (num_shards - 1).bit_length()
        self._empty: frozenset[int] = frozenset()
        self._empty_at_the_end: frozenset[int] = frozenset()
        self.has_gaps = False
        """Whether a sum may rise without a sibling."""
        self.set_absent(())

    def node(self, first: int, end: int) -> int:
        """Return the node that covers the shards ``first`` up to, without, ``end``.

        Raises:
            ConfigError: No node covers exactly these (the last one of a level ends early, at
                the number of shards).

        Example:
            >>> Tree(6).node(4, 6), Tree(6).node(0, 4)
            (6, 2)
        """
        if 0 <= first < end <= self.num_shards:
            node, width = self._size + first, 1
            while True:
                if min(first + width, self.num_shards) == end:
                    return node
                if node % 2 or first + width > end:
                    break
                node, width = node // 2, width * 2
        raise ConfigError(
            f"shards {first} to {end} of {self.num_shards} are no subtree of the canonical sum; "
            f"give each worker an aligned power of two of them"
        )

    def span(self, node: int) -> tuple[int, int]:
        """Return the shards below a node: the first, and one after the last.

        Example:
            >>> tree = Tree(6)
            >>> tree.span(6), tree.span(2), tree.span(3)
            ((4, 6), (0, 4), (4, 6))
        """
        first = end = node
        while first < self._size:
            first, end = 2 * first, 2 * end + 1
        return first - self._size, min(end - self._size + 1, self.num_shards)

    def set_absent(self, shards: Iterable[int], for_now: Iterable[int] = ()) -> None:
        """Declare which shards will not come; all others will.

        Args:
            shards: These never come again: sums rise past their places at once.
            for_now: These may come back, even in a round that is open: sums rise past their
                places only when the round is complete.
        """
        gone = {self._size + shard for shard in shards}
        gone.update(range(self._size + self.num_shards, 2 * self._size))
        away = gone | {self._size + shard for shard in for_now}
        self._empty = self._closed(gone)
        self.has_gaps = bool(self._empty)
        self._empty_at_the_end = self._closed(away)

    def climb(self, partials: dict[int, P], node: int) -> int:
        """Return the highest node whose sum is that of ``node`` alone.

        Args:
            partials: The partial sums that are there, by node.
            node: Where a sum belongs.
        """
        return _climb(partials, node, self._empty) if self._empty else node

    def rise(
        self, partials: dict[int, P], node: int, partial: P, merge: Callable[[P, P], P]
    ) -> tuple[int, P]:
        """Combine ``partial`` with the siblings that are there, as far up as it goes.

        Args:
            partials: The partial sums by node; those that are used up are taken out.
            node: Where ``partial`` belongs.
            partial: A sum.
            merge: Adds two sums; must not depend on which comes first.

        Returns:
            The node reached and the sum there, which the caller puts into ``partials``.
        """
        return _rise(partials, node, partial, merge, self._empty)

    def settle(self, partials: dict[int, P], merge: Callable[[P, P], P]) -> None:
        """Combine what can be combined after ``set_absent``."""
        _settle(partials, merge, self._empty)

    def total(self, partials: dict[int, P], merge: Callable[[P, P], P]) -> P:
        """Take the sum of a complete round out of ``partials``, which is then empty."""
        if len(partials) > 1:
            _settle(partials, merge, self._empty_at_the_end)
        _, total = partials.popitem()
        assert not partials, "a round was finished before it was complete"
        return total

    def _closed(self, empty: set[int]) -> frozenset[int]:
        """Return ``empty`` with the nodes that have only empty ones below them."""
        for node in range(self._size - 1, 0, -1):
            if 2 * node in empty and 2 * node + 1 in empty:
                empty.add(node)
        return frozenset(empty)


def _climb(partials: dict[int, P], node: int, empty: frozenset[int]) -> int:
    while node ^ 1 in empty and node ^ 1 not in partials:
        node >>= 1
    return node


def _rise(
    partials: dict[int, P],
    node: int,
    partial: P,
    merge: Callable[[P, P], P],
    empty: frozenset[int],
) -> tuple[int, P]:
    node = _climb(partials, node, empty)
    while node ^ 1 in partials:
        partial = merge(partial, partials.pop(node ^ 1))
        node = _climb(partials, node >> 1, empty)
    return node, partial


def _settle(partials: dict[int, P], merge: Callable[[P, P], P], empty: frozenset[int]) -> None:
    for node in sorted(partials, reverse=True):  # the deepest first, so that they have risen
        if node in partials:
            node, partial = _rise(partials, node, partials.pop(node), merge, empty)
            partials[node] = partial
