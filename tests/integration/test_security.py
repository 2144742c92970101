"""What strangers can do to a running job, and what a job's own sockets carry."""

import argparse
import os
import re
import socket
import stat
import struct
import subprocess
import time
from collections import Counter

import pytest
from tests.integration.forking import Job, script

from bireme.errors import ConfigError
from bireme.launch.doctor import examine
from bireme.launch.jobs import notes_folder, running_jobs
from bireme.transport.seal import SEAL_BYTES
from bireme.wire.codec import decode_head
from bireme.wire.header import HEADER_BYTES, read_header
from bireme.wire.messages import Kind

pytestmark = pytest.mark.slow

SCRIPT = script("script.py")
HELLO_BYTES = 48
PROOF = struct.Struct("<4sHH32s")

NOISE = {
    "nothing": b"",
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "tls": bytes.fromhex("16030100c8010000c40303") + bytes(200),
    "zeros": bytes(10_000),
    "random": bytes(range(256)) * 20,
    "frame": struct.pack("<4sBBHIQII", b"BRM1", 1, 6, 0, 1 << 31, 1 << 62, 0, 0),
    "huge": struct.pack("<4sB?2xQ32s", b"BRMH", 1, True, 1 << 63, bytes(32)),
    "replayed hello": struct.pack("<4sB?2xQ32s", b"BRMH", 1, True, 1 << 20, bytes(32)) * 2,
    "half a hello": b"BRMH\x01",
    "pickle": b"\x80\x04\x95\x1f\x00\x00\x00cos\nsystem\n(S'true'\ntR.",
}


def ports(job):
    """Return the ports that the job listens at: its scheduler's, and its servers'."""
    (note,) = running_jobs(notes_folder({"XDG_RUNTIME_DIR": str(job.folder)}))
    scheduler = int(note.scheduler_address.rpartition(":")[2])
    inodes = set()
    for pid in job.pids(4).values():
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                target = os.readlink(f"/proc/{pid}/fd/{name}")
            except FileNotFoundError:
                continue
            inodes |= set(re.findall(r"socket:\[(\d+)\]", target))
    with open("/proc/net/tcp") as file:
        rows = [line.split() for line in file][1:]
    listening = {
        int(row[1].split(":")[1], 16) for row in rows if row[3] == "0A" and row[9] in inodes
    }
    assert scheduler in listening
    return listening


def test_strangers_disturb_nothing(tmp_path):
    over = tmp_path / "over"
    env = {"STEPS": 80, "PAUSE": 0.02, "BIREME_TRANSPORT": "tcp", "HOLD": over}
    with Job(tmp_path / "job", ("-n", 2, "-s", 1), SCRIPT, **env) as job:
        job.await_lines("W[0] | step", 2)
        found = ports(job)
        assert len(found) == 2
        kept = []
        for port in found:
            for noise in NOISE.values():
                stranger = socket.create_connection(("127.0.0.1", port), 20)
                stranger.sendall(noise)
                kept.append(stranger)
            # A port scan: connect and go, over and over; and some that never say anything.
            for _ in range(60):
                socket.create_connection(("127.0.0.1", port), 20).close()
            kept += [socket.create_connection(("127.0.0.1", port), 20) for _ in range(80)]
        over.touch()
        assert job.end() == 0
        for stranger in kept:
            stranger.close()
        assert re.findall(r"step \d+ (.*)", job.out) == ["3.0"] * 160
        assert "Traceback" not in job.err
        assert len(job.err.splitlines()) < 60


def test_a_worker_with_another_secret_is_refused_at_once(tmp_path):
    began_s = time.monotonic()
    with Job(tmp_path, ("-n", 2, "-s", 1), SCRIPT, ACT="secret:1:0") as job:
        assert job.end() == 1
        text = "the peer refused this process: it holds another secret, or belongs to another job"
        (line,) = [
            line for line in job.err.splitlines() if line.startswith("W[1]") and text in line
        ]
        assert "JobAborted" in line
        assert re.search(r"H +\| .*refused", job.err)
        assert "W[1] ended with exit code 1" in job.err
        assert os.environ.get("BIREME_SECRET", "x" * 64) not in job.err
    assert time.monotonic() - began_s < 20


def test_a_secret_file_that_others_can_read_is_refused(tmp_path):
    path = tmp_path / "secret"
    path.write_text("k" * 64)
    path.chmod(0o644)
    options = ("-n", 1, "-s", 1)
    with Job(tmp_path / "job", options, SCRIPT, BIREME_SECRET_FILE=path) as job:
        assert job.end() != 0
        assert f"others can read the secret in {path} (mode 644); try: chmod 600 {path}" in job.err
    path.chmod(stat.S_IRUSR)
    with Job(tmp_path / "again", options, SCRIPT, BIREME_SECRET_FILE=path) as job:
        assert job.end() == 0, job.err


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    key, cert = folder / "key.pem", folder / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-keyout", key, "-out", cert, "-days", "2", "-subj", "/CN=job"]
    subprocess.run(command, check=True, capture_output=True)
    return {"BIREME_TLS_CERT": cert, "BIREME_TLS_KEY": key, "BIREME_TLS_CA": cert}


def test_a_job_under_tls(tmp_path, tls):
    env = {**tls, "BIREME_SECURITY": "tls", "BIREME_TRANSPORT": "tcp"}
    with Job(tmp_path / "a", ("-n", 2, "-s", 1), SCRIPT, ACT="hang:1:2", **env) as job:
        job.await_lines("W[0] | step", 2)
        folder = {"XDG_RUNTIME_DIR": str(job.folder)}
        (note,) = running_jobs(notes_folder(folder))
        lines = []
        options = argparse.Namespace(job=note.job, hosts="", hostfile="")
        given = {name: str(path) for name, path in tls.items()}
        assert examine(options, {**folder, **given}, lines.append) == 0
        assert "  running, view 1, 1 key" in lines
        with pytest.raises(ConfigError, match="BIREME_TLS_CERT"):
            examine(options, folder, lines.append)
    with Job(tmp_path / "b", ("-n", 2, "-s", 1), SCRIPT, **env) as job:
        assert job.end() == 0, job.err
        assert re.findall(r"step \d+ (.*)", job.out) == ["3.0"] * 10


def frames(stream):
    """Yield head and payload of each frame behind a handshake; every byte must be accounted for."""
    assert stream[:4] == b"BRMH"
    magic, size_bytes, reserved, _ = PROOF.unpack_from(stream, HELLO_BYTES)
    assert (magic, reserved) == (b"BRMP", 0)
    position = HELLO_BYTES + PROOF.size + size_bytes
    while position < len(stream):
        header = read_header(stream[position : position + HEADER_BYTES])
        head = stream[position : position + header.head_bytes]
        position += header.head_bytes + SEAL_BYTES
        yield header, head, stream[position : position + header.payload_bytes]
        position += header.payload_bytes
    assert position == len(stream)


def test_sockets_carry_frames_and_nothing_else(tmp_path):
    folder = tmp_path / "watch"
    folder.mkdir()
    options, program = ("-n", 2, "-s", 2), script("watched.py")
    with Job(tmp_path / "job", options, program, WATCH=folder, BIREME_TRANSPORT="tcp") as job:
        assert job.end() == 0, job.err
        (value,) = set(re.findall(r"value (.*)", job.out))
    # Momentum 0.5, rate 0.5, gradient 2 of two workers: 1 + 1.5 + 1.75
    assert float(value) == -4.25
    kinds = Counter()
    for path in folder.iterdir():
        stream = path.read_bytes()
        if path.name.startswith("states") or not stream.strip(b"\0"):
            continue
        for header, head, payload in frames(stream):
            kinds[header.kind] += 1
            if header.kind < 240:
                decode_head(head)
            for data in (head[HEADER_BYTES:], payload):
                assert not re.search(rb"\x80[\x02-\x05](\x95|c|\}|\]|q)", data)
                assert b"torch" not in data or header.kind != Kind.COMMAND or b"\ntorch" not in data
    assert {Kind.JOIN, Kind.START, Kind.INIT, Kind.PUSH, Kind.VALUE, Kind.COMMAND} <= set(kinds)
