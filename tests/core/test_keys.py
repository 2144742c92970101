import pytest

from bireme.core import keys
from bireme.core.keys import KeyRegistry
from bireme.errors import ConfigError
from bireme.types.dtypes import DType
from bireme.types.nodes import worker
from bireme.wire.messages import KeyDecl, Layout


def decl(name="w", shape=(4, 4), **more):
    return KeyDecl(name, shape, DType.FLOAT32, **more)


def test_the_same_key_is_one_key_for_all_workers():
    registry = KeyRegistry([1.0, 1.0], 1 << 20)
    (first,) = registry.declare(0, (decl(),), worker(0))
    (second,) = registry.declare(0, (decl(),), worker(1))
    assert first.new
    assert not second.new
    assert (first.key_id, first.slots) == (second.key_id, second.slots)
    (other,) = registry.declare(1, (decl(),), worker(1))
    assert other.key_id != first.key_id, "stores share no keys"


def test_a_conflict_names_both_and_declares_nothing():
    registry = KeyRegistry([1.0], 1 << 20)
    registry.declare(0, (decl(),), worker(0))
    with pytest.raises(ConfigError, match=r"\(4, 4\).*W\[0\].*\(4, 5\).*W\[1\]"):
        registry.declare(0, (decl("new"), decl(shape=(4, 5))), worker(1))
    assert len(registry) == 1
    with pytest.raises(ConfigError, match="every worker"):
        registry.declare(0, (decl("x"), decl("x", shape=(1,))), worker(1))
    assert len(registry) == 1


def test_large_keys_are_cut_and_spread_and_others_stay_whole():
    registry = KeyRegistry([1.0, 1.0], 64)
    cut, whole, rows = registry.declare(
        0,
        (
            decl("cut", (64,)),
            decl("whole", (64,), splittable=False),
            decl("rows", (2, 64), layout=Layout.ROWS),
        ),
        worker(0),
    )
    assert len(cut.slots) == 4
    assert {slot.server for slot in cut.slots} == {0, 1}
    assert len(whole.slots) == 1
    assert [slot.length for slot in rows.slots] == [64, 64]


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (3, 0), (1,)])
def test_keys_of_any_shape_have_a_slot(shape):
    (placement,) = KeyRegistry([1.0], 64).declare(0, (decl("k", shape),), worker(0))
    assert len(placement.slots) == 1


def test_a_declaration_whose_answer_would_be_too_large_is_refused_and_changes_nothing():
    registry = KeyRegistry([1.0], 1 << 20)
    with pytest.raises(ConfigError, match="BIREME_SLICE_BYTES"):
        registry.declare(0, (decl(), decl("huge", (1 << 40,))), worker(0))
    names = [f"{number:05}" + "k" * 4000 for number in range(1100)]
    with pytest.raises(ConfigError, match="fewer keys at a time"):
        registry.declare(0, tuple(decl(name) for name in names), worker(0))
    assert len(registry) == 0
    (whole,) = registry.declare(0, (decl("huge", (1 << 40,), splittable=False),), worker(0))
    assert len(whole.slots) == 1


@pytest.mark.parametrize("length", range(1, 400, 3))
def test_no_answer_has_more_slots_than_the_limit(length, monkeypatch):
    monkeypatch.setattr(keys, "_MOST_SLOTS", 20)
    registry = KeyRegistry([1.0] * 7, 64)
    try:
        (placed,) = registry.declare(0, (decl("w", (length,)),), worker(0))
    except ConfigError:
        assert length >= 13 * 16, "this one fits"
    else:
        assert len(placed.slots) <= 20


def test_a_table_has_a_slot_on_every_server_and_takes_no_bytes_yet():
    registry = KeyRegistry([1.0, 2.0, 1.0], 64)
    table = decl("t", (0, 1 << 20), layout=Layout.TABLE)
    (placed,) = registry.declare(0, (table,), worker(0))
    assert [(slot.server, slot.offset, slot.length) for slot in placed.slots] == [
        (0, 0, 0),
        (1, 0, 0),
        (2, 0, 0),
    ]
    with pytest.raises(ConfigError, match="every worker"):
        registry.declare(0, (decl("t", (0, 4), layout=Layout.TABLE),), worker(1))
    plain = KeyRegistry([1.0, 2.0, 1.0], 64)
    same = [each.declare(0, (decl("w", (64,)),), worker(0))[0].slots for each in (registry, plain)]
    assert same[0] == same[1], "a table moves no other key"
