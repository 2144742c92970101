"""An agent over pipes: it answers, obeys, and leaves nothing behind when its launcher is gone."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time

import pytest
from tests.launch.goldens import running_job
from tests.launch.processes import wait_until_gone

from bireme.launch.environment import Meeting
from bireme.launch.parts import begin_for
from bireme.launch.plan import THIS_MACHINE, plan_on
from bireme.launch.talk import (
    Asked,
    Begin,
    Bye,
    Ended,
    Failed,
    FromAgent,
    Go,
    Lines,
    Pulse,
    Ready,
    Send,
    Unframer,
    frame,
)
from bireme.types import worker
from bireme.version import __version__

PID = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"


class Talk:
    """The launcher's end."""

    def __init__(self, arguments=("-m", "bireme", "agent")):
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, "SSH_CONNECTION": "10.0.0.1 1 127.0.0.1 22"},
        )
        self.unframer = Unframer(FromAgent, has_mark=True)
        self.waiting = []

    def say(self, *messages):
        self.process.stdin.write(b"".join(map(frame, messages)))

    def hear(self):
        while not self.waiting:
            data = os.read(self.process.stdout.fileno(), 65536)
            if not data:
                return None
            self.waiting = [each for each in self.unframer.feed(data) if each != Pulse()]
        return self.waiting.pop(0)


@pytest.fixture
def talk():
    with talking() as made:
        yield made


@contextlib.contextmanager
def talking(*arguments):
    made = Talk(*arguments)
    try:
        yield made
    finally:
        made.process.kill()
        made.process.wait()
        made.process.stdin.close()
        made.process.stdout.close()


def begin(code=PID, **options):
    command = (sys.executable, "-S", "-c", code)
    fields = {"num_workers": 1, "num_servers": 0, "server_env": {}, "workdir": ""}
    spec = running_job(command=command, **fields, **options)
    plan = plan_on(spec, [THIS_MACHINE])
    return begin_for(plan, plan.hosts[0])


def started(talk):
    talk.say(begin(inherited=dict(os.environ)))
    ready = talk.hear()
    assert isinstance(ready, Ready)
    assert ready.launcher == "10.0.0.1"
    talk.say(Go(Meeting(store_host="127.0.0.1", store_port=1, engine_port=2)))
    lines = talk.hear()
    assert isinstance(lines, Lines)
    return int(lines.lines[0])


def test_from_the_first_word_to_the_last(talk):
    pid = started(talk)
    talk.say(Send((worker(0),), signal.SIGTERM))
    assert talk.hear() == Ended(worker(0), -signal.SIGTERM)
    talk.say(Bye())
    assert talk.hear() is None
    assert talk.process.wait(30) == 0
    wait_until_gone([pid])


def test_the_end_of_its_input_ends_everything(talk):
    pid = started(talk)
    talk.process.stdin.close()
    wait_until_gone([pid])
    assert talk.process.wait(30) == 0


def test_a_launcher_whose_machine_is_gone():
    code = "from bireme.launch.agent import Agent; Agent(0, 1, '', '10.0.0.1', silence_s=3).run()"
    with talking(("-c", code)) as talk:
        pid = started(talk)
        # No more comes, and nothing ends: as when the power or the network fails.
        assert talk.hear() == Failed("the launcher has not been heard for 3 s", __version__)
        wait_until_gone([pid])


@pytest.mark.slow
def test_signs_of_life_keep_it():
    code = "from bireme.launch.agent import Agent; Agent(0, 1, '', '10.0.0.1', silence_s=5).run()"
    with talking(("-c", code)) as talk:
        started(talk)
        end_s = time.monotonic() + 7
        while time.monotonic() < end_s:
            talk.say(Pulse())
            assert talk.process.poll() is None
            select.select([], [], [], 0.2)
        talk.say(Send((worker(0),), signal.SIGTERM))
        assert talk.hear() == Ended(worker(0), -signal.SIGTERM)


def test_nobody_hears_it_any_more(talk):
    pid = started(talk)
    talk.process.stdout.close()
    talk.say(Send((worker(0),), signal.SIGINT))
    wait_until_gone([pid])
    assert talk.process.wait(30) == 0


def test_an_agent_that_is_killed_leaves_nothing(talk):
    pid = started(talk)
    talk.process.kill()
    wait_until_gone([pid])


ESCAPE = """
import os, subprocess, sys, time
env = {} if {bare} else None
code = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
child = [sys.executable, "-S", "-c", code]
if os.fork() == 0:
    subprocess.Popen(child, env=env, start_new_session=True)
    os._exit(0)
os.wait()
time.sleep(60)
"""


def escaped(talk, bare):
    """Have a process make a session of its own, and its parent end."""
    talk.say(begin(ESCAPE.replace("{bare}", str(bare)), inherited=dict(os.environ)))
    assert isinstance(talk.hear(), Ready)
    talk.say(Go(Meeting(store_host="127.0.0.1", store_port=1, engine_port=2)))
    return int(talk.hear().lines[0])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux hands orphans on")
@pytest.mark.parametrize(
    "bare", [False, True], ids=["as it was", "with nothing in its environment"]
)
def test_what_made_a_session_of_its_own_ends_with_the_agent(talk, bare):
    pid = escaped(talk, bare)
    talk.say(Bye())
    wait_until_gone([pid])
    assert talk.process.wait(30) == 0


def test_what_made_a_session_of_its_own_is_found_when_the_agent_is_killed(talk):
    pid = escaped(talk, False)
    talk.process.kill()
    wait_until_gone([pid])


def test_who_is_asked_to_end_asks_the_launcher(talk):
    started(talk)
    talk.process.terminate()
    assert talk.hear() == Asked(signal.SIGTERM)
    talk.say(Send((worker(0),), signal.SIGKILL))
    assert talk.hear() == Ended(worker(0), -signal.SIGKILL)


def test_what_it_cannot_do(talk):
    bad = begin(inherited=dict(os.environ))
    talk.say(
        Begin(**{**{name: getattr(bad, name) for name in bad.__struct_fields__}, "workdir": "/no"})
    )
    said = talk.hear()
    assert isinstance(said, Failed)
    assert "there is no folder /no" in said.text
    assert talk.process.wait(30) == 1


def test_what_is_no_message(talk):
    talk.process.stdin.write(b"\xff" * 100)
    assert "none of an agent's" in talk.hear().text
    assert talk.process.wait(30) == 1
