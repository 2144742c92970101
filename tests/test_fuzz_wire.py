"""The wire fuzzer finds nothing in the parser, and finds what is planted for it."""

import importlib.util
import random
import tracemalloc
from pathlib import Path

import pytest

from bireme.errors import RemoteProtocolError
from bireme.wire.codec import decode_head

SCRIPT = Path(__file__).parent.parent / "tools" / "fuzz_wire.py"


@pytest.fixture(scope="module")
def fuzzer():
    spec = importlib.util.spec_from_file_location("fuzz_wire", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_only_protocol_errors_come_out(fuzzer):
    said = []
    count, finds = fuzzer.fuzz(1.5, seed=random.SystemRandom().randrange(2**32), report=said.append)
    assert count > 100
    assert (finds, said) == (0, [])


def test_the_fuzzer_reaches_the_fields(fuzzer):
    golden = [bytes.fromhex(text) for text in fuzzer.json.loads(fuzzer.GOLDEN.read_text()).values()]
    accepted, refusals = 0, set()
    for _, head in zip(range(5000), fuzzer.frames(random.Random(0), golden), strict=False):
        try:
            decode_head(head)
            accepted += 1
        except RemoteProtocolError as error:
            refusals.add(str(error)[:12])
    assert accepted > 50
    assert len(refusals) > 20


@pytest.mark.parametrize(
    ("decode", "words"),
    [
        (lambda _head: 1 / 0, "raised ZeroDivisionError"),
        (lambda _head: bytearray(10_000_000), "took 1"),
    ],
)
def test_planted_defects_are_found(fuzzer, decode, words):
    tracemalloc.start()
    try:
        assert words in fuzzer.verdict(b"x" * 28, decode)
        assert fuzzer.verdict(b"x" * 28) is None
    finally:
        tracemalloc.stop()


def test_the_command(fuzzer, capsys):
    assert fuzzer.main(["--seconds", "0.1", "--seed", "7"]) == 0
    assert capsys.readouterr().out.endswith("0 finds, seed 7\n")
