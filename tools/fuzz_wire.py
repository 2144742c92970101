"""Feed damaged frames to the frame parser until the time is up, and report what it lets through.

Usage: ``python tools/fuzz_wire.py --seconds 60 [--seed 0]``.

A find is anything but a valid message or a ``RemoteProtocolError``, or a refusal that took more
memory than the frame is long. The exit status is 1 when there are finds; the seed repeats them.
"""

import argparse
import json
import random
import struct
import sys
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from bireme.errors import RemoteProtocolError
from bireme.wire.codec import decode_head, encode
from bireme.wire.header import HEADER_BYTES, read_header
from bireme.wire.recall import Codec

GOLDEN = Path(__file__).parent.parent / "tests" / "wire" / "golden.json"

# Claims of lengths, and numbers at the edges of their ranges, as msgpack writes them.
TOKENS = tuple(
    bytes.fromhex(text)
    for text in (
        "ddffffffff dcffff dfffffffff deffff dbffffffff c6ffffffff c9ffffffff05 d6ffffffffff "
        "c0 c1 c2 c3 ca7fc00000 cb7ff0000000000000 cbfff8000000000000 cfffffffffffffffff "
        "d38000000000000000 cf4000000000000000 ff 00 80 90 a0 91 81a161 d90100 c7ff01"
    ).split()
)
MEMORY_PER_FRAME_BYTES = 200_000
MEMORY_PER_BYTE = 128


def flip(rng: random.Random, body: bytes, _others: list[bytes]) -> bytes:
    """Change some bits."""
    changed = bytearray(body)
    for _ in range(rng.randint(1, 4)):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def insert(rng: random.Random, body: bytes, _others: list[bytes]) -> bytes:
    """Write a token, beside or over what is there."""
    at, token = rng.randint(0, len(body)), rng.choice(TOKENS)
    return body[:at] + token + body[at + rng.choice((0, 1, len(token))) :]


def truncate(rng: random.Random, body: bytes, _others: list[bytes]) -> bytes:
    """Leave the end off."""
    return body[: rng.randint(0, len(body))]


def splice(rng: random.Random, body: bytes, others: list[bytes]) -> bytes:
    """Go on with the rest of another message."""
    other = rng.choice(others)
    return body[: rng.randint(0, len(body))] + other[rng.randint(0, len(other)) :]


def repeat(rng: random.Random, body: bytes, _others: list[bytes]) -> bytes:
    """Write one piece many times."""
    at = rng.randint(0, len(body))
    end = rng.randint(at, min(len(body), at + 8))
    return body[:at] + body[at:end] * rng.choice((2, 30, 3000)) + body[end:]


def noise(rng: random.Random, _body: bytes, _others: list[bytes]) -> bytes:
    """Something else altogether."""
    return rng.randbytes(rng.randint(0, 80))


MUTATIONS: tuple[Callable[[random.Random, bytes, list[bytes]], bytes], ...] = (
    flip,
    insert,
    truncate,
    splice,
    repeat,
    noise,
)


def seal(kind: int, body: bytes, payload_bytes: int) -> bytes:
    """Return ``body`` behind a header that is right, so that its content is looked at."""
    fields = struct.pack("<4sBBHIQI", b"BRM1", 1, kind, 0, len(body), payload_bytes, 0)
    return fields + struct.pack("<I", zlib.crc32(body, zlib.crc32(fields))) + body


def frames(rng: random.Random, golden: list[bytes]) -> Iterator[bytes]:
    """Yield damaged heads for ever: most of them well sealed, some not."""
    bodies = [head[HEADER_BYTES:] for head in golden]
    while True:
        head = rng.choice(golden)
        header, body = read_header(head), head[HEADER_BYTES:]
        for _ in range(rng.randint(1, 3)):
            body = rng.choice(MUTATIONS)(rng, body, bodies)
        kind = header.kind if rng.random() < 0.9 else rng.randrange(256)
        payload_bytes = header.payload_bytes if rng.random() < 0.9 else rng.randrange(2**64)
        sealed = seal(kind, body, payload_bytes)
        yield sealed if rng.random() < 0.8 else flip(rng, sealed, bodies)
        yield rng.choice(MUTATIONS)(rng, head, golden)


def verdict(head: bytes, decode: Callable[[bytes], object] = decode_head) -> str | None:
    """Return what is wrong with how ``decode`` treats ``head``, or ``None``."""
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    try:
        decoded = decode(head)
    except RemoteProtocolError:
        decoded = None
    except Exception as error:
        return f"raised {error!r}"
    taken = tracemalloc.get_traced_memory()[1] - before
    if taken > MEMORY_PER_FRAME_BYTES + MEMORY_PER_BYTE * len(head):
        return f"took {taken} bytes of memory for {len(head)}"
    if isinstance(decoded, tuple):
        message, payload_bytes = decoded
        if decode_head(encode(message, payload_bytes)) != decoded and "nan" not in repr(decoded):
            return f"read as {decoded!r}, which does not read back"
    return None


def disagreement(head: bytes, codec: Codec) -> str | None:
    """Return how the codec that remembers reads ``head`` in another way, or ``None``."""
    found: list[object] = []
    for decode in (decode_head, codec.decode):
        try:
            found.append(decode(head))
        except RemoteProtocolError:
            found.append(None)
        except Exception as error:
            return f"raised {error!r}"
    plain, recalled = found
    if plain != recalled and "nan" not in repr(plain):
        return f"read as {plain!r}, and as {recalled!r} by a codec that remembers"
    return None


def fuzz(seconds: float, seed: int, report: Callable[[str], None] = print) -> tuple[int, int]:
    """Try frames for so long and return how many there were, and how many finds."""
    golden = [bytes.fromhex(text) for text in json.loads(GOLDEN.read_text()).values()]
    end_s = time.monotonic() + seconds
    codec = Codec()
    count = finds = 0
    tracemalloc.start()
    try:
        for head in frames(random.Random(seed), golden):
            count += 1
            wrong = verdict(head) or disagreement(head, codec)
            if wrong is not None:
                finds += 1
                report(f"{wrong}: {head[:4000].hex()}")
            if time.monotonic() > end_s:
                break
    finally:
        tracemalloc.stop()
    return count, finds


def main(argv: list[str]) -> int:
    """Fuzz for as long as the command line says, and return the exit status."""
    parser = argparse.ArgumentParser(description="Feed damaged frames to the frame parser.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None, help="default: a random one")
    options = parser.parse_args(argv)
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    count, finds = fuzz(options.seconds, seed)
    print(f"fuzz_wire: {count} frames, {finds} finds, seed {seed}")
    return 1 if finds else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
