"""Texts become values of the field's type, or an error that names the variable."""

from dataclasses import dataclass, field
from enum import StrEnum

import pytest

from bireme.errors import ConfigError
from bireme.settings.variables import check_fields, env, read_fields, variables, write_fields


class Fruit(StrEnum):
    FIG = "fig"
    PEAR = "pear"


@dataclass(frozen=True, slots=True, kw_only=True)
class Basket:
    count: int = field(default=1, metadata=env("B_COUNT", low=0, high=9))
    rank: int | None = field(default=None, metadata=env("B_RANK", low=0))
    wait_s: float = field(default=1.5, metadata=env("B_WAIT", above=0))
    room_bytes: int = field(default=64, metadata=env("B_ROOM", low=1))
    open: bool = field(default=False, metadata=env("B_OPEN"))
    name: str = field(default="", metadata=env("B_NAME"))
    fruit: Fruit = field(default=Fruit.FIG, metadata=env("B_FRUIT"))
    unnamed: int = 3

    def __post_init__(self):
        check_fields(self)


@pytest.mark.parametrize(
    ("variable", "text", "name", "value"),
    [
        ("B_COUNT", " 7 ", "count", 7),
        ("B_RANK", "0", "rank", 0),
        ("B_WAIT", "2", "wait_s", 2.0),
        ("B_WAIT", "1e-3", "wait_s", 0.001),
        ("B_ROOM", "100", "room_bytes", 100),
        ("B_ROOM", "4 KiB", "room_bytes", 4096),
        ("B_ROOM", "2m", "room_bytes", 2 << 20),
        ("B_ROOM", "1GB", "room_bytes", 1 << 30),
        ("B_OPEN", "yes", "open", True),
        ("B_OPEN", "FALSE", "open", False),
        ("B_NAME", " a b ", "name", " a b "),
        ("B_FRUIT", "Pear", "fruit", Fruit.PEAR),
    ],
)
def test_reading(variable, text, name, value):
    assert read_fields(Basket, {variable: text}) == {name: value}
    assert type(read_fields(Basket, {variable: text})[name]) is type(value)


def test_an_empty_text_sets_nothing():
    assert read_fields(Basket, {"B_COUNT": "", "B_NAME": "", "B_OPEN": " ", "OTHER": "1"}) == {}


@pytest.mark.parametrize(
    ("variable", "text", "words"),
    [
        ("B_COUNT", "one", "B_COUNT must be an integer, got 'one'"),
        ("B_COUNT", "1.0", "B_COUNT must be an integer"),
        ("B_COUNT", "1_0", "B_COUNT must be an integer"),
        ("B_COUNT", "9" * 5000, "B_COUNT must be an integer"),
        ("B_COUNT", "10", "B_COUNT must be >= 0 and <= 9, got '10'"),
        ("B_COUNT", "-1", "B_COUNT must be >= 0 and <= 9, got '-1'"),
        ("B_WAIT", "0", "B_WAIT must be > 0, got '0'"),
        ("B_WAIT", "nan", "B_WAIT must be > 0"),
        ("B_WAIT", "inf", "B_WAIT must be > 0"),
        ("B_WAIT", "5s", "B_WAIT must be a number, got '5s'"),
        ("B_ROOM", "4 TiB", "B_ROOM must be an integer"),
        ("B_OPEN", "perhaps", "B_OPEN must be 0 or 1"),
        ("B_FRUIT", "plum", "B_FRUIT must be one of 'fig', 'pear', got 'plum'"),
    ],
)
def test_what_cannot_be_read(variable, text, words):
    with pytest.raises(ConfigError, match=words):
        read_fields(Basket, {variable: text})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"count": 10}, "count must be >= 0 and <= 9, got 10"),
        ({"count": True}, "count must be an integer, got True"),
        ({"count": None}, "count must be an integer, got None"),
        ({"count": 1.0}, "count must be an integer, got 1.0"),
        ({"rank": -1}, "rank must be >= 0, got -1"),
        ({"wait_s": float("inf")}, "wait_s must be > 0, got inf"),
        ({"wait_s": "1"}, "wait_s must be a number, got '1'"),
        ({"open": 1}, "open must be 0 or 1, got 1"),
        ({"name": 3}, "name must be a string, got 3"),
        ({"fruit": "fig"}, "fruit must be one of 'fig', 'pear'"),
    ],
)
def test_what_is_refused(fields, words):
    with pytest.raises(ConfigError, match=words):
        Basket(**fields)


def test_writing_is_the_inverse_of_reading():
    basket = Basket(count=0, rank=3, wait_s=2, open=True, name="x y", fruit=Fruit.PEAR)
    texts = write_fields(basket)
    assert texts["B_OPEN"] == "1"
    assert Basket(**read_fields(Basket, texts)) == basket
    assert "B_RANK" not in write_fields(Basket())


def test_fields_without_a_variable_are_left_alone():
    assert "unnamed" not in variables(Basket)
