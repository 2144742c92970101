"""Boards of several ranks in one process."""

import os

from bireme.collective.bank.segment import Segment, make_file
from bireme.collective.board import Board

__all__ = ("boards_of",)


def boards_of(size):
    layout = Board.layout(size)
    descriptor = make_file(layout)
    made = [Board(Segment(os.dup(descriptor), layout, rank)) for rank in range(size)]
    os.close(descriptor)
    return made
