import os
import signal
import sys
import threading
from dataclasses import replace

import pytest

from bireme.errors import ConfigError, JobError
from bireme.launch.queued import Queue, follow, hand_in, lines_of

SUBMITS = """
import os, signal, sys, time
script = sys.stdin.read()
print(7, flush=True)
with open(sys.argv[1] + '/7.log', 'w') as log:
    log.write('one\\ntwo\\n')
    log.flush()
    if 'wait' in script:
        while not os.path.exists(sys.argv[1] + '/cancelled'):
            time.sleep(0.01)
    log.write('three')
sys.exit(5 if 'fail' in script else 0)
"""


class Printer:
    def __init__(self):
        self.said, self.passed_on = [], []

    def say(self, text):
        self.said.append(text)

    def pass_on(self, text):
        self.passed_on.append(text)
        if text == "two" and self.on_two:
            self.on_two()

    on_two = None


def queue_of(tmp_path, code=SUBMITS):
    return Queue(
        submit=(sys.executable, "-S", "-c", code, str(tmp_path)),
        number_of=lambda said: said.partition("\n")[0],
        cancel=lambda number: ("touch", f"{tmp_path}/cancelled"),
        env=os.environ,
    )


def test_a_cluster_is_asked_where_its_command_does_not_wait(tmp_path):
    answers = iter([None, None, 3])
    queue = replace(queue_of(tmp_path, "print(7)"), exit_code=lambda number: next(answers))
    ended = follow(queue, "", lambda n: tmp_path / f"{n}.log", Printer())
    assert (ended.job, ended.exit_code) == ("7", 3)


@pytest.mark.parametrize(("script", "code"), [("work", 0), ("fail", 5)])
def test_output_and_exit_code_come_here(tmp_path, script, code):
    printer = Printer()
    ended = follow(queue_of(tmp_path), script, lambda n: tmp_path / f"{n}.log", printer)
    assert (ended.job, ended.exit_code) == ("7", code)
    assert printer.passed_on == ["one", "two", "three"]
    assert printer.said == [f"submitted as job 7; its output is in {tmp_path}/7.log"]


def test_ctrl_c_cancels_the_job(tmp_path):
    printer = Printer()
    printer.on_two = lambda: os.kill(os.getpid(), signal.SIGINT)
    assert threading.current_thread() is threading.main_thread()
    ended = follow(queue_of(tmp_path), "wait", lambda n: tmp_path / f"{n}.log", printer)
    assert ended.exit_code == 130
    assert printer.said[1] == "SIGINT: ending job 7"


def test_a_refusal_says_what_the_cluster_says(tmp_path):
    queue = queue_of(tmp_path, "import sys; sys.exit('invalid partition')")
    queue = Queue(
        submit=queue.submit, number_of=lambda said: "", cancel=queue.cancel, env=os.environ
    )
    with pytest.raises(JobError, match="refuses the job: invalid partition"):
        follow(queue, "", lambda n: tmp_path / n, Printer())
    with pytest.raises(JobError, match="refuses the job: invalid partition"):
        hand_in(queue, "")


def test_handing_in_returns_at_once(tmp_path):
    assert hand_in(queue_of(tmp_path, "print(12)"), "") == "12"


def test_no_such_command():
    queue = Queue(submit=("no-such",), number_of=str, cancel=lambda n: (), env={})
    with pytest.raises(JobError, match="cannot submit"):
        hand_in(queue, "")
    with pytest.raises(JobError, match="cannot submit"):
        follow(queue, "", lambda n: n, Printer())


def test_lines_of_a_file(tmp_path):
    (tmp_path / "log").write_text("one\n")
    assert list(lines_of(str(tmp_path / "log"), "7")) == ["log: one"]
    with pytest.raises(ConfigError, match="no output of job 7"):
        list(lines_of("", "7"))
