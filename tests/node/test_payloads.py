import pytest

from bireme.node.memory import Held
from bireme.node.parcels import Parcel
from bireme.node.payloads import kept, laid_out, release_all
from bireme.node.sheets import Sheets
from bireme.transport.pool import BufferPool, PooledBuffer


def held(content):
    return Held(memoryview(bytearray(content)))


def shown(pieces):
    views, size_bytes = laid_out(pieces)
    return [bytes(view) for view in views], size_bytes


@pytest.mark.parametrize(
    ("contents", "expected"),
    [([b"abc"], [b"abc"]), ([b""], []), ([b"a", b"", b"bc"], [b"a", b"bc"]), ([b"", b""], [])],
)
def test_pieces_follow_in_order_without_the_empty_ones(contents, expected):
    assert shown([held(each) for each in contents]) == (expected, sum(map(len, expected)))


def test_a_parcel_is_laid_out_already():
    views = [memoryview(b"a"), memoryview(b"bc")]
    found, size_bytes = laid_out([Parcel(views, 3, None)])
    assert found is views
    assert size_bytes == 3


def test_neighbours_in_a_sheet_are_one_piece():
    pool = BufferPool(1 << 20)
    sheets = Sheets(lambda size_bytes: PooledBuffer(pool, size_bytes))
    parts = [sheets.part("message", 4, at, 2) for at in (0, 2)]
    for number, part in enumerate(parts):
        part.view[:] = bytes([number, number])
    assert shown(parts) == ([b"\0\0\1\1"], 4)


@pytest.mark.parametrize("count", [1, 3])
def test_what_is_kept_is_let_go_by_one_call(count):
    pieces = [held(b"a") for _ in range(count)]
    let_go = kept(pieces)
    assert all(piece.shared for piece in pieces)
    let_go()
    assert not any(piece.shared for piece in pieces)


def test_all_are_let_go():
    freed = []
    release_all([Held(memoryview(b"a"), lambda: freed.append(1)) for _ in range(2)])
    assert freed == [1, 1]
