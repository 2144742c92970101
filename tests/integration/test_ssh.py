"""Jobs on hosts behind a remote shell: real agents, and the faults of the field.

A program called ssh stands for the real one: it runs the command on this machine, by the shell and
with the bare environment that a remote login would have, or fails as ssh does.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.launch.fake_shells import fake_hosts
from tests.launch.processes import pids, shared_memory, wait_until_gone

FAKES = str(Path(__file__).parent.parent / "launch")
PYTHON = (sys.executable, "-S", "-u", "-c")
IS = "import os, sys, time, signal, json\nrank = os.environ['BIREME_RANK']\n"
WAIT = "time.sleep(60)\n"
HERE = {**os.environ, "PATH": f"{FAKES}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}


def command(code, *options):
    return [sys.executable, "-m", "bireme", "run", *options, "--", *PYTHON, IS + code]


def launch(code, *options, env=None, **more):
    return subprocess.run(
        command(code, *options),
        capture_output=True,
        text=True,
        timeout=50,
        env={**HERE, **(env or {})},
        check=False,
        **more,
    )


class Running:
    """A launcher under way; lines of its standard output can be awaited."""

    def __init__(self, code, *options, env=None):
        self.process = subprocess.Popen(
            command(code, *options),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**HERE, **(env or {})},
        )

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def lines(self, count):
        return [self.process.stdout.readline() for _ in range(count)]

    def end(self):
        out, err = self.process.communicate(timeout=30)
        return self.process.returncode, out, err


def test_nothing_of_the_job_is_in_a_command_line(tmp_path):
    log = tmp_path / "log"
    run = launch(
        "", "-np", "1", "-H", "leda:1", "--env", "A=s3cr3t", env={"FAKE_SSH_LOG": str(log)}
    )
    assert run.returncode == 0
    said = log.read_text()
    assert "s3cr3t" not in said
    assert not re.search(r"[0-9a-f]{64}", said)
    assert "BatchMode=yes" in said


def test_a_job_on_two_hosts():
    code = (
        "names = ('RANK', 'LOCAL_RANK', 'HOROVOD_CROSS_RANK', 'HOROVOD_HOSTNAME', 'MASTER_ADDR')\n"
        "print(*(os.environ[name] for name in names), os.getcwd())\n"
    )
    run = launch(code, "-np", "3", "-H", "leda:2,castor:1")
    assert run.returncode == 0
    assert sorted(run.stdout.splitlines()) == [
        f"W[0] | 0 0 0 leda 127.0.0.1 {os.getcwd()}",
        f"W[1] | 1 1 0 leda 127.0.0.1 {os.getcwd()}",
        f"W[2] | 2 0 1 castor 127.0.0.1 {os.getcwd()}",
    ]
    assert run.stderr == ""


def test_workers_meet_by_the_port_that_was_kept_for_them():
    code = (
        "import socket\n"
        "address = os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])\n"
        "if rank == '0':\n"
        "    with socket.create_server(address) as server:\n"
        "        print(server.accept()[0].recv(10).decode())\n"
        "else:\n"
        "    while True:\n"
        "        try: socket.create_connection(address).send(rank.encode()); break\n"
        "        except ConnectionRefusedError: time.sleep(0.01)\n"
    )
    assert launch(code, "-np", "2", "-H", "leda:1,castor:1").stdout == "W[0] | 1\n"


NASTY = {
    "SPACES": " two  words ",
    "QUOTES": """it's "so" `so` $HOME \\ !""",
    "LINES": "one\ntwo\n",
    "UNICODE": "\u00e4\u4e2d\U0001f6f6",
    "STARS": "* ? [a] {b} ~ # % ; & | < > ( )",
    "EMPTY": "",
}


@pytest.mark.parametrize("shell", ["/bin/sh", "/bin/bash", "/bin/zsh", "/bin/csh"])
def test_everything_arrives_as_it_is_by_any_shell(shell, tmp_path):
    if not os.path.exists(shell):
        pytest.skip(f"there is no {shell} here")
    folder = tmp_path / "it's a\tfolder $X"
    folder.mkdir()
    code = (
        f"print(json.dumps([{{n: os.environ[n] for n in {list(NASTY)!r}}}, sys.argv[1:],\n"
        "      os.getcwd(), os.environ.get('SSH_AUTH_SOCK'), os.environ['PATH']]))\n"
    )
    arguments = [*NASTY.values(), "-x", "--"]
    run = subprocess.run(
        [*command(code, "-np", "1", "-H", "leda:1"), *arguments],
        capture_output=True,
        text=True,
        timeout=50,
        env={**HERE, **NASTY, "FAKE_SHELL": shell, "SSH_AUTH_SOCK": "/tmp/s"},
        cwd=folder,
        check=True,
    )
    found = json.loads(run.stdout.partition("| ")[2])
    assert found == [NASTY, arguments, str(folder), None, HERE["PATH"]]


def test_bytes_that_are_no_text_arrive_too():
    env = {os.fsdecode(b"RAW"): os.fsdecode(b"\xff\xfe")}
    code = "print(os.environb[b'RAW'])\n"
    assert launch(code, "-np", "1", "-H", "leda:1", env=env).stdout == "W[0] | b'\\xff\\xfe'\n"


def test_what_a_shell_prints_before_is_passed_over():
    run = launch("print('x')\n", "-np", "1", "-H", "noisy:1")
    assert (run.returncode, run.stdout) == (0, "W[0] | x\n")


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("nohost", "no such host"),
        ("refused", "nobody listens there"),
        ("timeout", "does not answer"),
        ("password", "ssh-copy-id password"),
        ("newkey", "ssh-keygen -R newkey"),
        ("silent", "ended without starting the agent"),
        ("nopython", "name its Python by --ssh-python"),
    ],
)
def test_a_host_that_cannot_be_used(host, words):
    run = launch("print('pid', os.getpid())\n", "-np", "2", "-H", f"leda:1,{host}:1")
    assert run.returncode == 2
    assert f"bireme: host {host}: " in run.stderr
    assert words in run.stderr
    assert run.stdout == ""
    assert "Traceback" not in run.stderr


def test_a_host_that_hangs():
    begin_s = time.monotonic()
    run = launch("", "-np", "2", "-H", "leda:1,hang:1", "--start-timeout", "1.5")
    assert run.returncode == 2
    # On a busy machine the other one may be late as well.
    assert re.search(r"[12] of 2 hosts are not ready after 1.5 s: .*hang: no answer", run.stderr)
    assert time.monotonic() - begin_s < 15


def test_no_ssh_at_all():
    run = launch("", "-np", "1", "-H", "leda:1", "--ssh-program", "/no/ssh")
    assert run.returncode == 2
    assert "host leda: cannot run '/no/ssh'" in run.stderr


def test_a_folder_or_a_command_that_is_not_there():
    run = launch("", "-np", "1", "-H", "leda:1", "--workdir", "/no/such/folder")
    assert run.returncode == 2
    assert "host leda: there is no folder /no/such/folder" in run.stderr
    run = subprocess.run(
        [sys.executable, "-m", "bireme", "run", "-np", "1", "-H", "leda:1", "train.py"],
        capture_output=True,
        text=True,
        timeout=50,
        env=HERE,
        check=False,
    )
    assert run.returncode == 2
    assert "cannot run 'train.py': no such command; write: python train.py" in run.stderr


def meet(folder):
    """Return code by which both ranks go on when the other is as far."""
    return (
        f"folder = {str(folder)!r}\n"
        "open(f'{folder}/here-{rank}', 'w').close()\n"
        "while not os.path.exists(f'{folder}/here-{1 - int(rank)}'): time.sleep(0.01)\n"
    )


def test_the_first_failure_ends_every_host(tmp_path):
    code = (
        "print('pid', os.getpid())\n" + meet(tmp_path) + "if rank == '1':\n"
        "    for i in range(30): print('line', i, file=sys.stderr)\n"
        "    sys.exit(7)\n" + WAIT
    )
    with Running(code, "-np", "2", "-H", "leda:1,castor:1") as run:
        started = pids(run.lines(2))
        code, _, err = run.end()
    assert code == 7
    report = err[err.index("bireme: W[1] on castor ended with exit code 7") :]
    assert report.splitlines()[1:21] == [f"    line {i}" for i in range(10, 30)]
    wait_until_gone(started)


def test_a_killed_process_is_named_by_its_signal():
    run = launch("os.kill(os.getpid(), 9)\n", "-np", "1", "-H", "leda:1")
    assert run.returncode == 137
    assert "W[0] on leda was killed by SIGKILL (exit code 137)" in run.stderr


def test_ctrl_c_once_asks_and_sigterm_too():
    code = (
        "def save(*_): print('saved'); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, save)\n"
        "try:\n"
        "    print('pid', os.getpid())\n" + "    time.sleep(60)\n"
        "except KeyboardInterrupt: print('saved')\n"
    )
    for signum, expected in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        with Running(code, "-np", "2", "-H", "leda:1,castor:1") as run:
            started = pids(run.lines(2))
            run.process.send_signal(signum)
            code_, out, _ = run.end()
        assert (code_, out.count("saved")) == (expected, 2)
        wait_until_gone(started)


def test_ctrl_c_twice_kills():
    code = (
        "for s in (2, 15): signal.signal(s, lambda *_: print('no'))\n"
        "print('pid', os.getpid())\n"
        "while True: time.sleep(60)\n"
    )
    options = ("-np", "2", "-H", "leda:1,castor:1", "--grace-period", "120")
    with Running(code, *options) as run:
        started = pids(run.lines(2))
        run.process.send_signal(signal.SIGINT)
        run.lines(2)
        run.process.send_signal(signal.SIGINT)
        code, _, err = run.end()
    assert code == 130
    assert "ending every process at once" in err
    wait_until_gone(started)


def test_ctrl_c_while_hosts_get_ready(tmp_path):
    log = tmp_path / "log"
    with Running("", "-np", "1", "-H", "hang:1", env={"FAKE_SSH_LOG": str(log)}) as run:
        limit_s = time.monotonic() + 20
        while not log.exists():
            assert time.monotonic() < limit_s
            time.sleep(0.01)
        run.process.send_signal(signal.SIGINT)
        assert run.end()[0] == 130


@pytest.mark.slow
def test_no_orphans_when_the_launcher_is_killed():
    code = (
        "import subprocess\n"
        "print('pid', subprocess.Popen(['sleep', '60']).pid)\n"
        "print('pid', os.getpid())\n" + WAIT
    )
    with Running(code, "-np", "2", "-H", "leda:1,castor:1") as run:
        started = pids(run.lines(4))
        run.process.kill()
        wait_until_gone(started)


def test_a_connection_that_dies():
    code = "print('pid', os.getpid(), 'agent', os.getppid())\n" + WAIT
    with Running(code, "-np", "2", "-H", "leda:1,castor:1") as run:
        lines = run.lines(2)
        (castor,) = (line for line in lines if line.startswith("W[1]"))
        os.kill(int(castor.split("agent ")[1]), signal.SIGKILL)
        code, _, err = run.end()
    assert code == 255
    assert "W[1] on castor was lost with its host: the connection to it has ended" in err
    wait_until_gone(pids(lines))


@pytest.mark.slow
def test_who_ignores_sigterm_is_killed(tmp_path):
    code = (
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('pid', os.getpid())\n" + meet(tmp_path) + "if rank == '1': sys.exit(2)\n" + WAIT
    )
    with Running(code, "-np", "2", "-H", "leda:1,castor:1") as run:
        started = pids(run.lines(2))
        code, _, err = run.end()
    assert code == 2
    assert "killing W[0]" in err
    wait_until_gone(started)


def test_output_is_kept_by_node(tmp_path):
    run = launch(
        "print('o'); print('e', file=sys.stderr)\n",
        *("-np", "2", "-H", "leda:1,castor:1", "--output-dir", str(tmp_path / "logs")),
    )
    assert run.returncode == 0
    assert sorted((tmp_path / "logs" / "worker-1.log").read_text().split()) == ["e", "o"]


@pytest.mark.slow
def test_much_output_arrives_whole_and_in_order():
    run = launch(
        "for i in range(100000): print(i, 'x' * 100)\n",
        *("-np", "2", "-H", "leda:1,castor:1"),
    )
    assert run.returncode == 0
    for rank in "01":
        numbers = re.findall(rf"^W\[{rank}\] \| (\d+) x{{100}}$", run.stdout, re.MULTILINE)
        assert numbers == [str(i) for i in range(100000)]


def test_a_restart_on_its_host(tmp_path):
    code = (
        f"mark = {str(tmp_path / 'mark')!r}\n"
        "if os.environ['BIREME_ROLE'] == 'worker' and rank == '1' and not os.path.exists(mark):\n"
        "    open(mark, 'w').close()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "print('done')\n"
    )
    run = launch(code, "-n", "2", "-H", "leda:1,castor:1", "--on-worker-death", "wait")
    assert run.returncode == 0
    assert "restarting W[1] (1 of 3)" in run.stderr
    assert run.stdout.count("done") == 4


def test_another_version_on_a_host(tmp_path):
    package = tmp_path / "bireme"
    package.mkdir()
    code = (
        "import struct, sys, msgspec\n"
        "from types import SimpleNamespace\n"
        "def main(_):\n"
        "    body = msgspec.msgpack.encode({'type': 'ready', 'version': '0.0.1', 'python': '3',\n"
        "        'hostname': 'h', 'address': 'a'})\n"
        "    out = b'\\0bireme agent 1\\n' + struct.pack('<I', len(body)) + body\n"
        "    sys.stdout.buffer.write(out); sys.stdout.flush(); sys.stdin.read(); return 0\n"
    )
    (package / "cli.py").write_text(code)
    (package / "__init__.py").write_text("")
    python = tmp_path / "python"
    python.write_text(
        f"#!/bin/sh\nread x; echo {tmp_path} | exec env PYTHONPATH={tmp_path} "
        f'{sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    run = launch("", "-np", "1", "-H", "leda:1", "--ssh-python", str(python))
    assert run.returncode == 2
    assert "host leda: it has bireme 0.0.1" in run.stderr


def test_the_folder_is_copied_first(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "part.py").write_text("NAME = 'copied'\n")
    (source / "big").write_bytes(os.urandom(3_000_000))
    code = "sys.path.insert(0, '')\nimport part\n"
    code += "print(part.NAME, os.getcwd(), len(open('big', 'rb').read()))\n"
    target = tmp_path / "target"
    run = launch(code, "-np", "2", "-H", "leda:1,castor:1", "--sync-dir", str(target), cwd=source)
    assert run.returncode == 0, run.stderr
    assert run.stdout.count(f"copied {target} 3000000") == 2
    run = launch(code, "-np", "1", "-H", "leda:1", "--sync-dir", "/proc/none", cwd=source)
    assert run.returncode == 2
    assert "host leda: cannot copy files to /proc/none" in run.stderr


def test_a_disk_that_is_full(tmp_path):
    (tmp_path / "worker-0.log").symlink_to("/dev/full")
    run = launch("print('x')\n", "-np", "1", "-H", "leda:1", "--output-dir", str(tmp_path))
    assert (run.returncode, run.stdout) == (0, "W[0] | x\n")
    assert "the output of W[0] is not kept any longer" in run.stderr


def test_two_jobs_at_once_on_the_same_hosts():
    code = "print(os.environ['BIREME_JOB'], os.environ['MASTER_PORT'])\ntime.sleep(0.3)\n"
    hosts = ("-np", "2", "-H", "leda:1,castor:1")
    with Running(code, *hosts) as one, Running(code, *hosts) as two:
        (code_one, out_one, _), (code_two, out_two, _) = one.end(), two.end()
    assert code_one == code_two == 0
    words = [{*re.findall(r"job-\w+|\d{4,}", out)} for out in (out_one, out_two)]
    assert all(len(found) == 2 for found in words)
    assert not words[0] & words[1]


def test_a_program_that_forks():
    code = (
        "reading, writing = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    print('pid', os.getpid()); os.close(writing); time.sleep(60)\n"
        "os.close(writing); os.read(reading, 1)\n"
    )
    run = launch(code, "-np", "1", "-H", "leda:1")
    assert run.returncode == 0
    (child,) = pids(run.stdout.splitlines())
    wait_until_gone([child])


def test_a_program_that_prints_nothing_and_one_long_line():
    assert launch("", "-np", "2", "-H", "leda:1,castor:1").stdout == ""
    run = launch("print('x' * 3_000_000)\n", "-np", "1", "-H", "leda:1")
    assert run.stdout.count("x") == 3_000_000


@pytest.mark.slow
def test_much_output_needs_little_memory():
    code = "line = b'x' * 199 + b'\\n'\nfor _ in range(5000): os.write(1, line * 100)\n"
    # 100 MB by an address space of 400 MB, in the launcher and in its agents.
    limited = ["sh", "-c", 'ulimit -v 400000; exec "$@"', "sh"]
    run = subprocess.run(
        [*limited, *command(code, "-np", "1", "-H", "leda:1")],
        capture_output=True,
        env=HERE,
        timeout=55,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.count(b"\n") == 500_000


@pytest.mark.slow
def test_ten_jobs_in_a_row_leave_nothing(tmp_path):
    env = {"XDG_RUNTIME_DIR": str(tmp_path), "TMPDIR": str(tmp_path)}
    before, started, ports = shared_memory(), [], []
    for turn in range(10):
        code = "print('pid', os.getpid(), os.environ['MASTER_PORT'])\n"
        code += f"sys.exit(5 * ({turn} % 2))\n"
        run = launch(code, "-np", "2", "-H", "leda:1,castor:1", env=env)
        assert run.returncode == 5 * (turn % 2)
        started += pids(run.stdout.splitlines())
        ports += [int(line.split()[-1]) for line in run.stdout.splitlines()]
    wait_until_gone(started)
    for port in ports:
        # Not a plain bind: connections of others may have got the number meanwhile.
        with socket.create_server(("127.0.0.1", port)):
            pass
    assert shared_memory(started) <= before
    # The folder of notes stays, empty.
    assert os.listdir(tmp_path) == ["bireme"]
    assert os.listdir(tmp_path / "bireme") == []


@pytest.mark.slow
def test_hundreds_of_remote_shells(tmp_path):
    """Shells that only say what agents would: 300 hosts cost the launcher seconds, not minutes."""
    hosts = fake_hosts(tmp_path, 300)
    run = launch("", "-np", "300", *hosts)
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("| x") == 300


def test_this_machine_and_one_that_only_ssh_knows():
    code = "print(os.environ['HOROVOD_HOSTNAME'], os.environ['MASTER_ADDR'])\n"
    run = launch(code, "-np", "2", "-H", "localhost:1,leda:1")
    assert run.returncode == 0, run.stderr
    # As leda has seen the launcher.
    assert sorted(run.stdout.splitlines()) == [
        "W[0] | localhost 127.0.0.1",
        "W[1] | leda 127.0.0.1",
    ]
