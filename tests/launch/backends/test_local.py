"""Real processes: their output, their ends, and that nothing is left of them."""

import os
import re
import signal
import socket
import subprocess
import sys

import pytest
from tests.launch.goldens import JOBS, job, same_as_golden
from tests.launch.processes import is_gone, pids, wait_until_gone

from bireme.errors import ConfigError
from bireme.launch.backends.local import LocalBackend
from bireme.launch.hosts import parse_hosts
from bireme.launch.jobs import running_jobs


@pytest.mark.parametrize("name", JOBS)
def test_what_is_shown_is_exactly_this(name):
    backend = LocalBackend({})
    text = backend.render(backend.plan(JOBS[name]))
    assert same_as_golden(f"local-{name}", text)
    assert "0123456789abcdef" not in text
    assert "not to be shown" not in text


def test_other_hosts_are_not_this_machine():
    with pytest.raises(ConfigError, match="castor: not this machine; use --launcher ssh"):
        LocalBackend({}).plan(job(hosts=parse_hosts("localhost:2,castor:2")))
    with pytest.raises(ConfigError, match="do not fit into the 2 slots"):
        LocalBackend({}).plan(job(hosts=parse_hosts("localhost:2")))
    with pytest.raises(ConfigError, match="runs on none"):
        LocalBackend({}).plan(job(sync_dir="/tmp/x"))


PYTHON = (sys.executable, "-S", "-u", "-c")
IS = """import os, sys, time, signal
role, rank = os.environ['BIREME_ROLE'], os.environ['BIREME_RANK']
"""
WAIT = "time.sleep(60)\n"


def command(code, *options):
    return [sys.executable, "-m", "bireme", "run", *options, "--", *PYTHON, IS + code]


def launch(code, *options, env=None, **more):
    return subprocess.run(
        command(code, *options),
        capture_output=True,
        text=True,
        timeout=50,
        env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})},
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
            env={**os.environ, **(env or {})},
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


def test_every_process_runs_the_command_in_its_role():
    run = launch("print(role, rank, sys.argv[1:])\n", "-n", "2", "-s", "2")
    assert run.returncode == 0
    assert sorted(run.stdout.splitlines()) == [
        "H    | scheduler 0 []",
        "S[0] | server 0 []",
        "S[1] | server 1 []",
        "W[0] | worker 0 []",
        "W[1] | worker 1 []",
    ]
    assert run.stderr == ""


def test_workers_without_servers_meet_each_other():
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
    run = launch(code, "-np", "2")
    assert (run.returncode, run.stdout, run.stderr) == (0, "W[0] | 1\n", "")


def test_a_job_without_servers_ends_with_its_first_failure():
    code = "if rank == '1': sys.exit(7)\nprint('pid', os.getpid())\n" + WAIT
    run = launch(code, "-np", "2")
    assert run.returncode == 7
    assert "W[1] ended with exit code 7" in run.stderr
    # It may have been ended before it has said its number.
    wait_until_gone(pids(re.findall(r"pid \d+", run.stdout)))


def test_streams_stay_apart():
    run = launch("print('out'); print('err', file=sys.stderr)\n", "-n", "1")
    assert run.stdout.count("| out") == run.stderr.count("| err") == 3
    assert "err" not in run.stdout


def test_no_colours_in_a_pipe():
    assert "\x1b" not in launch("print('x')\n", "-n", "1").stdout


def test_output_is_kept_per_process(tmp_path):
    folder = tmp_path / "a" / "logs"
    run = launch(
        "print(role); print('e', file=sys.stderr)\n", "-n", "2", "--output-dir", str(folder)
    )
    assert run.returncode == 0
    assert sorted(path.name for path in folder.iterdir()) == [
        "scheduler.log",
        "server-0.log",
        "worker-0.log",
        "worker-1.log",
    ]
    assert sorted((folder / "worker-1.log").read_text().split()) == ["e", "worker"]


def test_the_first_failure_is_reported_and_the_rest_is_ended():
    code = (
        "if rank == '1':\n"
        "    for i in range(30): print('line', i)\n"
        "    sys.exit(7)\n"
        "print('pid', os.getpid())\n" + WAIT
    )
    run = launch(code, "-n", "2", "-s", "1")
    assert run.returncode == 7
    report = run.stderr[run.stderr.index("bireme: W[1] ended with exit code 7") :]
    assert "    line 29" in report
    assert "    line 10\n" in report
    assert "    line 9\n" not in report
    wait_until_gone(pids(re.findall(r"pid \d+", run.stdout)))


def test_a_killed_process_is_named_by_its_signal():
    run = launch("if role == 'server': os.kill(os.getpid(), signal.SIGKILL)\n" + WAIT, "-n", "1")
    assert run.returncode == 137
    assert "S[0] was killed by SIGKILL (exit code 137)" in run.stderr
    assert "it had printed nothing" in run.stderr


@pytest.mark.slow
def test_who_ignores_sigterm_is_killed(tmp_path):
    code = (
        f"folder = {str(tmp_path)!r}\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "open(f'{folder}/{role}', 'w').close()\n"
        "if role == 'worker':\n"
        "    while len(os.listdir(folder)) < 3: time.sleep(0.01)\n"
        "    sys.exit(2)\n" + WAIT
    )
    run = launch(code, "-n", "1")
    assert run.returncode == 2
    assert "killing H, S[0]" in run.stderr


def test_ctrl_c_once_is_graceful():
    code = (
        "try:\n"
        "    print('pid', os.getpid())\n"
        "    time.sleep(60)\n"
        "except KeyboardInterrupt:\n"
        "    print('saved')\n"
    )
    with Running(code, "-n", "1") as run:
        started = run.lines(3)
        run.process.send_signal(signal.SIGINT)
        code, out, err = run.end()
    assert code == 130
    assert out.count("saved") == 3
    assert "SIGINT: ending the job" in err
    wait_until_gone(pids(started))


def test_ctrl_c_twice_kills():
    # On a busy machine SIGTERM may follow before the second Ctrl-C.
    code = (
        "for s in (2, 15): signal.signal(s, lambda *_: print('no'))\n"
        "print('pid', os.getpid())\n"
        "while True: time.sleep(60)\n"
    )
    with Running(code, "-n", "1", "--grace-period", "120") as run:
        started = run.lines(3)
        run.process.send_signal(signal.SIGINT)
        run.lines(3)
        run.process.send_signal(signal.SIGINT)
        code, _, err = run.end()
    assert code == 130
    assert "ending every process at once" in err
    wait_until_gone(pids(started))


def test_sigterm_is_passed_on():
    with Running("print('pid', os.getpid())\n" + WAIT, "-n", "1") as run:
        started = run.lines(3)
        run.process.terminate()
        assert run.end()[0] == 143
    wait_until_gone(pids(started))


@pytest.mark.slow
def test_no_orphans_when_the_launcher_is_killed():
    code = (
        "import subprocess\n"
        "print('pid', subprocess.Popen(['sleep', '60']).pid)\n"
        "print('pid', os.getpid())\n" + WAIT
    )
    with Running(code, "-n", "1") as run:
        started = pids(run.lines(6))
        assert not any(is_gone(pid) for pid in started)
        run.process.kill()
        wait_until_gone(started)


def test_nobody_reads_any_more():
    process = subprocess.Popen(
        command("while True:\n    print('pid', os.getpid())\n    time.sleep(0.05)\n", "-n", "1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        started = pids([process.stdout.readline() for _ in range(20)])
        process.stdout.close()
        assert process.wait(30) == 143
        said = process.stderr.read()
    assert "nobody reads the output any longer" in said
    assert "Traceback" not in said
    assert "Exception ignored" not in said
    wait_until_gone(started)


def test_the_scheduler_inherits_the_open_port():
    code = (
        "import socket\n"
        "if role == 'scheduler':\n"
        "    listener = socket.socket(fileno=int(os.environ['BIREME_LISTEN_FD']))\n"
        "    for _ in range(2): print(listener.accept()[0].recv(10))\n"
        "else:\n"
        "    host, port = os.environ['DMLC_PS_ROOT_URI'], os.environ['DMLC_PS_ROOT_PORT']\n"
        "    socket.create_connection((host, int(port))).send(role.encode())\n"
        "    print('BIREME_LISTEN_FD' in os.environ)\n"
    )
    run = launch(code, "-n", "1")
    assert run.returncode == 0
    assert sorted(run.stdout.splitlines()) == [
        "H    | b'server'",
        "H    | b'worker'",
        "S[0] | False",
        "W[0] | False",
    ]


def test_the_port_is_the_schedulers_alone():
    code = (
        "import socket\n"
        "address = os.environ['DMLC_PS_ROOT_URI'], int(os.environ['DMLC_PS_ROOT_PORT'])\n"
        "if role != 'worker': sys.exit()\n"
        "while True:\n"
        "    try: socket.create_connection(address).close()\n"
        "    except ConnectionRefusedError: break\n"
        "    except ConnectionResetError: pass  # It closed in the middle of the handshake.\n"
    )
    assert launch(code, "-n", "1").returncode == 0


def test_the_secret_is_in_the_environment_of_the_children_only():
    code = "print(len(os.environ['BIREME_SECRET']), os.environ['BIREME_SECRET'] in str(sys.argv))\n"
    run = launch(code, "-n", "1")
    assert run.stdout.count("64 False") == 3
    assert re.search(r"[0-9a-f]{64}", run.stdout + run.stderr) is None


def test_a_running_job_can_be_found(tmp_path):
    code = "print('up')\nsys.stdout.flush()\n" + WAIT
    with Running(code, "-n", "1", env={"XDG_RUNTIME_DIR": str(tmp_path)}) as run:
        run.lines(3)
        (note,) = running_jobs(tmp_path / "bireme")
        assert note.launcher_pid == run.process.pid
        assert (note.num_workers, len(note.secret)) == (1, 64)
        run.process.terminate()
        run.end()
    assert running_jobs(tmp_path / "bireme") == []


def test_a_job_runs_although_it_cannot_be_found(tmp_path):
    (tmp_path / "bireme").touch()
    run = launch("print('x')\n", "-n", "1", env={"XDG_RUNTIME_DIR": str(tmp_path)})
    assert run.returncode == 0
    assert "bireme doctor will not find this job" in run.stderr


def test_restarts_under_wait(tmp_path):
    mark = tmp_path / "mark"
    code = (
        f"mark = {str(mark)!r}\n"
        "if role == 'worker' and rank == '1' and not os.path.exists(mark):\n"
        "    open(mark, 'w').close()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "print('done')\n"
    )
    run = launch(
        code, "-n", "2", "--on-worker-death", "wait", "--output-dir", str(tmp_path / "logs")
    )
    assert run.returncode == 0
    assert "restarting W[1] (1 of 3)" in run.stderr
    assert run.stdout.count("done") == 4


def test_continue_without_a_worker():
    code = "if role == 'worker' and rank == '0': sys.exit(9)\n"
    run = launch(code, "-n", "2", "--on-worker-death", "continue")
    assert run.returncode == 0
    assert "W[0] ended with exit code 9" in run.stderr
    assert "goes on without it" in run.stderr


def test_the_one_that_followed_is_not_blamed():
    code = (
        "if role != 'worker': time.sleep(60)\n"
        "if rank == '0':\n"
        "    print('bireme.errors.JobAborted: W[1] failed', file=sys.stderr)\n"
        "    sys.exit(1)\n"
        "time.sleep(0.5); sys.exit(6)\n"
    )
    run = launch(code, "-n", "2")
    assert run.returncode == 6
    assert "bireme: W[1] ended with exit code 6" in run.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("no-such-command",), "cannot run 'no-such-command': no such command"),
        (("train.py",), "write: python train.py"),
        (("--output-dir", "/proc/none", "true"), "cannot write to the output directory"),
        (("--env", "PATH=/none", "true"), "cannot run 'true'"),
    ],
)
def test_what_is_refused_before_anything_starts(arguments, words):
    run = subprocess.run(
        [sys.executable, "-m", "bireme", "run", "-n", "1", *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert run.returncode == 2
    assert words in run.stderr
    assert "Traceback" not in run.stderr


def test_two_jobs_at_once_do_not_meet():
    code = "print(os.environ['BIREME_JOB'], os.environ['BIREME_SCHEDULER_PORT'])\ntime.sleep(0.3)\n"
    with Running(code, "-n", "1") as one, Running(code, "-n", "1") as two:
        (code_one, out_one, _), (code_two, out_two, _) = one.end(), two.end()
    assert code_one == code_two == 0
    assert not {line.split("| ")[1] for line in out_one.splitlines()} & {
        line.split("| ")[1] for line in out_two.splitlines()
    }


def test_a_notice_names_variables_without_effect():
    run = launch("", "-n", "1", env={"BIREME_BARIER_TIMEOUT": "3"})
    assert "bireme: BIREME_BARIER_TIMEOUT has no effect" in run.stderr


def test_the_launcher_runs_without_torch():
    code = (
        "import sys\n"
        "from bireme import cli\n"
        "code = cli.main(['run', '-n', '1', 'true'])\n"
        "sys.exit(code or 'torch' in sys.modules or 'numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=30, check=False).returncode == 0


def test_many_processes_and_much_output():
    run = launch("for i in range(2000): print('x' * 100)\n", "-n", "8", "-s", "3")
    assert run.returncode == 0
    assert len(run.stdout.splitlines()) == 12 * 2000


def test_the_port_is_free_again():
    run = launch("print(os.environ['BIREME_SCHEDULER_PORT'])\n", "-n", "1")
    port = int(run.stdout.split("| ")[1].split()[0])
    with socket.create_server(("127.0.0.1", port)):
        pass
