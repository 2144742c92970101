import random
import threading

from bireme.node.memory import Held
from bireme.node.sheets import Part, Sheets, joined


class Ram:
    """Counts what is allocated and not released."""

    def __init__(self) -> None:
        self.live_bytes = 0

    def allocate(self, size_bytes: int):
        return _Buffer(self, size_bytes)


class _Buffer:
    def __init__(self, ram: Ram, size_bytes: int) -> None:
        self._ram, self._size_bytes = ram, size_bytes
        self.view = memoryview(bytearray(size_bytes))
        ram.live_bytes += size_bytes

    def release(self) -> None:
        self._ram.live_bytes -= self._size_bytes
        self.view = memoryview(b"")


def take(sheets: Sheets, payload: object, count: int, size_bytes: int = 64) -> list[Held]:
    whole = count * size_bytes
    return [sheets.part(payload, whole, at, size_bytes) for at in range(0, whole, size_bytes)]


def test_parts_of_one_message_are_one_piece():
    pieces = take(Sheets(Ram().allocate), object(), 4)
    for number, piece in enumerate(pieces):
        piece.view[:] = bytes([number]) * 64
    (whole,) = joined(pieces)
    assert bytes(whole) == b"".join(bytes(piece.view) for piece in pieces)


def test_what_lies_apart_stays_apart():
    sheets = Sheets(Ram().allocate)
    one, two = take(sheets, object(), 3), take(sheets, object(), 3)
    other = Held(memoryview(bytearray(5)))
    pieces = [one[0], one[2], two[0], two[1], other, one[1], one[2]]
    views = joined(pieces)
    assert [len(view) for view in views] == [64, 64, 128, 5, 128]
    for number, piece in enumerate(pieces):
        piece.view[:] = bytes([number]) * piece.view.nbytes
    assert b"".join(views) == b"".join(piece.view for piece in pieces)


def test_a_message_with_one_entry_needs_no_sheet():
    piece = Sheets(Ram().allocate).part(object(), 64, 0, 64)
    assert not isinstance(piece, Part)
    assert len(piece.view) == 64


def test_a_sheet_is_freed_with_its_last_part():
    ram = Ram()
    sheets = Sheets(ram.allocate)
    first = take(sheets, object(), 4)
    second = take(sheets, object(), 4)
    assert ram.live_bytes == 512
    for piece in first[1:]:
        piece.release()
    assert ram.live_bytes == 512
    first[0].release()
    assert ram.live_bytes == 256
    # The newest sheet is kept as long as its message may ask for more.
    for piece in second:
        piece.release()
    take(sheets, object(), 4)
    assert ram.live_bytes == 256


def test_no_sheet_is_begun_while_much_of_the_others_lies_idle():
    ram = Ram()
    sheets = Sheets(ram.allocate)
    first = take(sheets, object(), 4)
    first.pop().release()
    alone = take(sheets, object(), 4)
    assert len(joined(alone)) == 4
    assert ram.live_bytes == 512
    for piece in first:
        piece.release()
    assert ram.live_bytes == 256
    assert len(joined(take(sheets, object(), 4))) == 1
    for piece in alone:
        piece.release()
    assert ram.live_bytes == 256


def test_nothing_is_lost_or_freed_twice_whatever_is_kept():
    ram = Ram()
    sheets = Sheets(ram.allocate)
    random.seed(1)
    kept: dict[int, Held] = {}
    for _ in range(300):
        message = object()
        for place, slot in enumerate(random.sample(range(40), 20)):
            piece = sheets.part(message, 20 * 64, place * 64, 64)
            piece.view[:] = bytes([slot]) * 64
            old = kept.pop(slot, None)
            kept[slot] = piece
            if old is not None:
                old.release()
        assert all(bytes(piece.view) == bytes([slot]) * 64 for slot, piece in kept.items())
    for piece in kept.values():
        piece.release()
    # The newest sheet may still be there.
    assert ram.live_bytes <= 20 * 64


def test_parts_are_freed_by_any_thread():
    ram = Ram()
    sheets = Sheets(ram.allocate)
    for _ in range(20):
        pieces = take(sheets, object(), 40)
        threads = [
            threading.Thread(target=lambda some: [piece.release() for piece in some], args=[some])
            for some in (pieces[::2], pieces[1::2])
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    take(sheets, object(), 40)
    assert ram.live_bytes == 40 * 64
