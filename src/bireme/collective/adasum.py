"""The adaptive sum of gradients: adds what is orthogonal, averages what points the same way.

Any number of ranks, any backend: pairs of ranks exchange halves, so that each holds ever smaller
parts of ever larger sums; ranks beyond the largest power of two are folded into others first.
Called by `Execution`, tensor by tensor.
"""

import sys
from math import sqrt

import torch
from torch import Tensor

from bireme.collective.planes import Plane

__all__ = ("adasum_",)

_TINY = sqrt(sys.float_info.min)
_HALVES = (torch.float16, torch.bfloat16)


def adasum_(flat: Tensor, plane: Plane) -> None:
    """Overwrite a flat tensor with the adaptive sum over the ranks of ``plane``.

    Args:
        flat: Shape (n,), a floating or complex type. 16-bit ones are computed with in float32.
        plane: Its ranks all call this, with equal lengths.

    Source:
        Maleki et al., "Scaling Distributed Training with Adaptive Summation", arXiv:2006.02924,
        section 4.2 (recursive vector halving) and equation 3.
    """
    if flat.dtype in _HALVES:
        wide = flat.to(torch.float32)
        adasum_(wide, plane)
        flat.copy_(wide)
        return
    if flat.is_complex():
        adasum_(torch.view_as_real(flat).view(-1), plane)
        return
    if plane.size > 1:
        _Round(flat, plane).run()


class _Round:
    """One tensor's exchange."""

    def __init__(self, flat: Tensor, plane: Plane) -> None:
        self._flat = flat
        self._plane = plane
        self._num_main = 1 << (plane.size.bit_length() - 1)

    def run(self) -> None:
        rank, size, num_main = self._plane.rank, self._plane.size, self._num_main
        if size > num_main:
            self._fold_the_rest()
        part = self._flat if rank < num_main else self._flat[:0]
        distance = 1
        while distance < num_main:
            part = self._halve(part, distance)
            distance *= 2
        self._gather(part)

    def _fold_the_rest(self) -> None:
        """Ranks beyond the power of two give their tensors to as many others, and only wait."""
        rank, size, num_main = self._plane.rank, self._plane.size, self._num_main
        length = self._flat.numel()
        sent, received = [0] * size, [0] * size
        if rank >= num_main:
            sent[rank - num_main] = length
        elif rank + num_main < size:
            received[rank + num_main] = length
        other = self._flat.new_empty(sum(received))
        self._plane.all_to_all(self._flat[: sum(sent)], sent, other, received)
        if other.numel():
            _combine_(self._flat, other, _dots(self._flat, other))

    def _halve(self, part: Tensor, distance: int) -> Tensor:
        """Exchange halves with the partner at ``distance`` and return the own half, combined."""
        rank, size = self._plane.rank, self._plane.size
        is_main = rank < self._num_main
        is_left = not rank & distance
        first = part.numel() // 2
        mine, theirs = (part[:first], part[first:]) if is_left else (part[first:], part[:first])
        sent, received = [0] * size, [0] * size
        if is_main:
            sent[rank ^ distance] = theirs.numel()
            received[rank ^ distance] = mine.numel()
        other = part.new_empty(mine.numel() if is_main else 0)
        self._plane.all_to_all(theirs if is_main else part[:0], sent, other, received)
        left, right = (mine, other) if is_left else (other, mine)
        dots = self._sum_of_dots(_dots(left, right), 2 * distance)
        if is_main:
            # The left half of the pair's sum is combined as the right half is: left, then right.
            _combine_(left, right, dots)
            if not is_left:
                mine.copy_(left)
        return mine

    def _sum_of_dots(self, dots: Tensor, width: int) -> Tensor:
        """Add the three products over the ranks that hold parts of the same two vectors."""
        size = self._plane.size
        everyones = dots.new_empty(3 * size)
        self._plane.all_gather(dots, everyones, [3] * size)
        first = self._plane.rank // width * width
        return everyones.view(size, 3)[first : min(first + width, self._num_main)].sum(0)

    def _gather(self, part: Tensor) -> None:
        """Put the ranks' parts together."""
        bounds = [self._bounds(rank) for rank in range(self._plane.size)]
        sizes = [end - start for start, end in bounds]
        whole = self._flat.new_empty(sum(sizes))
        self._plane.all_gather(part.contiguous(), whole, sizes)
        at = 0
        for (start, end), size in zip(bounds, sizes, strict=True):
            self._flat[start:end].copy_(whole[at : at + size])
            at += size

    def _bounds(self, rank: int) -> tuple[int, int]:
        if rank >= self._num_main:
            return 0, 0
        start, end, distance = 0, self._flat.numel(), 1
        while distance < self._num_main:
            middle = start + (end - start) // 2
            start, end = (start, middle) if not rank & distance else (middle, end)
            distance *= 2
        return start, end


def _dots(left: Tensor, right: Tensor) -> Tensor:
    """Return left.right, left.left and right.right, accumulated in float64. Shape (3,)."""
    one, two = left.to(torch.float64), right.to(torch.float64)
    return torch.stack([one.dot(two), one.dot(one), two.dot(two)])


def _combine_(left: Tensor, right: Tensor, dots: Tensor) -> None:
    """Overwrite ``left`` with the adaptive sum of two vectors whose products are ``dots``."""
    both, ones, twos = dots.tolist()
    scale_left = 1.0 - both / (2.0 * ones) if ones >= _TINY else 1.0
    scale_right = 1.0 - both / (2.0 * twos) if twos >= _TINY else 1.0
    left.mul_(scale_left).add_(right, alpha=scale_right)
