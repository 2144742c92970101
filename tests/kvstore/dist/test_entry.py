import torch

from bireme.kvstore.dist.entry import DistEntry, SlotSpan
from bireme.update import Layout


def make(shape, *lengths):
    spans, offset = [], 0
    for index, length in enumerate(lengths):
        spans.append(SlotSpan((3, index), offset, length, index % 2))
        offset += length
    return DistEntry("k", Layout(torch.Size(shape), torch.float32, False), spans)


def test_rows():
    assert make((4, 3), 6, 6).has_whole_rows
    assert not make((4, 3), 7, 5).has_whole_rows
    assert make((4, 0), 0).has_whole_rows
    assert [make(shape, 1).row_length for shape in ((), (5,), (5, 2, 3))] == [1, 1, 6]


def test_memory_is_used_again_after_the_last_slot():
    entry = make((10,), 6, 4)
    staged = entry.staging()
    first, second = entry.hand_out(staged)
    assert (first.view.nbytes, second.view.nbytes) == (24, 16)
    first.release()
    other = entry.staging()
    assert other is not staged
    second.release()
    assert entry.staging() is staged


def test_one_piece_is_kept():
    entry = make((10,), 10)
    pieces = [entry.staging() for _ in range(3)]
    for piece in pieces:
        entry.put_back(piece)
    assert entry.staging() is pieces[0]
    again = entry.staging()
    assert all(again is not piece for piece in pieces)
