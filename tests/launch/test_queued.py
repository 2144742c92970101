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


LATE = """
import os, signal, sys, time
os.kill(os.getppid(), signal.SIGINT)
while not os.path.exists(sys.argv[1] + '/said'): time.sleep(0.01)
print(7, flush=True)
while not os.path.exists(sys.argv[1] + '/cancelled'): time.sleep(0.01)
"""


def test_ctrl_c_before_the_job_has_a_number(tmp_path):
    printer = Printer()
    said = printer.said.append
    printer.say = lambda text: (said(text), (tmp_path / "said").touch())
    ended = follow(queue_of(tmp_path, LATE), "", lambda n: tmp_path / f"{n}.log", printer)
    assert (ended.job, ended.exit_code) == ("7", 130)
    assert printer.said[0] == "SIGINT: ending the job as soon as it has a number"
    assert (tmp_path / "cancelled").exists()


def test_a_job_that_cannot_be_ended(tmp_path):
    printer = Printer()
    printer.on_two = lambda: os.kill(os.getpid(), signal.SIGINT)
    fails = ("sh", "-c", f"touch {tmp_path}/cancelled; echo not yours >&2; exit 1")
    queue = replace(queue_of(tmp_path), cancel=lambda number: fails)
    assert follow(queue, "wait", lambda n: tmp_path / f"{n}.log", printer).exit_code == 130
    assert printer.said[2] == "job 7 may go on: sh fails with exit code 1: not yours"


def test_a_cluster_that_does_not_answer_for_a_while_ends_no_job(tmp_path):
    answers = iter([None, JobError("down"), JobError("down"), None, 0])

    def exit_code(_number):
        answer = next(answers)
        if isinstance(answer, JobError):
            raise answer
        return answer

    printer = Printer()
    queue = replace(queue_of(tmp_path, "print(7)"), exit_code=exit_code)
    assert follow(queue, "", lambda n: tmp_path / f"{n}.log", printer).exit_code == 0
    assert printer.said[1:] == ["nothing is known of job 7: down; asking on"]


def test_ctrl_c_while_the_cluster_does_not_answer(tmp_path):
    def exit_code(_number):
        os.kill(os.getpid(), signal.SIGINT)
        raise JobError("down")

    queue = replace(queue_of(tmp_path, "print(7)"), exit_code=exit_code)
    assert follow(queue, "", lambda n: tmp_path / f"{n}.log", Printer()).exit_code == 130


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
