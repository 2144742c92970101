"""A job ends for every reason and in every order, in bounded time, with the right exit code."""

import signal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bireme.launch.exits import Exit
from bireme.launch.supervise import (
    Exited,
    Finish,
    Interrupted,
    Limits,
    Report,
    Restart,
    Say,
    Send,
    Silent,
    Supervisor,
    Tick,
)
from bireme.types import SCHEDULER, DeathPolicy, server, worker

NODES = (SCHEDULER, server(0), worker(0), worker(1))
LIMITS = Limits(settle_s=1.0)
GOOD, BAD, KILLED = Exit(0), Exit(3), Exit(-9)


def job(policy=DeathPolicy.ABORT, **options):
    return Supervisor(NODES, policy, limits=LIMITS, **options)


def sent(actions):
    return [(action.nodes, action.signum) for action in actions if isinstance(action, Send)]


def reports(actions):
    return [action.node for action in actions if isinstance(action, Report)]


def finish(actions):
    codes = [action.exit_code for action in actions if isinstance(action, Finish)]
    assert len(codes) <= 1
    return codes[0] if codes else None


def end_all(supervisor, now_s, exit_=GOOD):
    actions = []
    for node in sorted(supervisor.alive):
        actions += supervisor.handle(Exited(node, exit_), now_s)
    return actions


def test_a_host_that_does_not_answer_is_given_up():
    run = job()
    run.handle(Interrupted(signal.SIGTERM), 1.0)
    run.handle(Interrupted(signal.SIGINT), 2.0)
    assert run.next_deadline_s() == 2.0 + Limits().kill_s
    run.handle(Exited(SCHEDULER, KILLED), 2.1)
    actions = run.handle(Tick(), 2.0 + Limits().kill_s)
    assert actions[0] == Say("giving up S[0], W[0], W[1]: not heard of 15 s later")
    assert finish(actions) == 143


def test_a_good_job_says_nothing():
    assert end_all(job(), 1.0) == [Finish(0)]


def test_the_first_failure_ends_the_others_after_they_could_notice():
    run = job()
    assert run.handle(Exited(worker(1), BAD), 1.0) == []
    assert run.next_deadline_s() == 1.0 + LIMITS.settle_s
    actions = run.handle(Tick(), 2.0)
    assert reports(actions) == [worker(1)]
    assert sent(actions) == [((SCHEDULER, server(0), worker(0)), signal.SIGTERM)]
    assert finish(end_all(run, 2.1, Exit(-15))) == 3


def test_nothing_is_sent_when_all_end_by_themselves():
    run = job()
    run.handle(Exited(worker(1), KILLED), 1.0)
    actions = end_all(run, 1.1, BAD)
    assert sent(actions) == []
    assert reports(actions) == [worker(1)]
    assert finish(actions) == 137


def test_who_does_not_end_is_killed():
    run = job()
    run.handle(Exited(worker(1), BAD), 1.0)
    run.handle(Tick(), 2.0)
    run.handle(Exited(worker(0), Exit(-15)), 2.1)
    assert run.handle(Tick(), 6.9) == []
    actions = run.handle(Tick(), 7.0)
    assert sent(actions) == [((SCHEDULER, server(0)), signal.SIGKILL)]
    assert any("killing H, S[0]" in action.text for action in actions if isinstance(action, Say))
    assert finish(end_all(run, 7.1, KILLED)) == 3


def test_one_that_followed_is_not_blamed():
    run = job()
    run.handle(Exited(worker(0), Exit(1), follows=True), 1.0)
    assert run.next_deadline_s() == 1.0 + LIMITS.culprit_s
    run.handle(Exited(worker(1), Exit(5)), 2.0)
    assert run.next_deadline_s() == 2.0 + LIMITS.settle_s
    actions = run.handle(Tick(), 3.0)
    assert reports(actions) == [worker(1)]
    assert finish(end_all(run, 3.1)) == 5


def test_if_all_followed_the_first_is_named():
    run = job()
    run.handle(Exited(worker(0), Exit(1), follows=True), 1.0)
    assert reports(run.handle(Tick(), 6.0)) == [worker(0)]


def test_a_server_that_fails_ends_the_job_under_every_policy():
    for policy in DeathPolicy:
        run = job(policy)
        run.handle(Exited(server(0), BAD), 1.0)
        assert reports(run.handle(Tick(), 2.0)) == [server(0)]
        assert finish(end_all(run, 2.1)) == 3


def test_a_worker_is_blamed_before_the_scheduler_that_tells_of_it():
    run = job()
    run.handle(Exited(SCHEDULER, Exit(1)), 1.0)
    run.handle(Exited(worker(1), KILLED), 1.1)
    run.handle(Exited(worker(0), BAD), 1.2)
    assert reports(run.handle(Tick(), 2.2)) == [worker(1)]


def test_continue_goes_on_and_ends_well():
    run = job(DeathPolicy.CONTINUE)
    actions = run.handle(Exited(worker(1), KILLED), 1.0)
    assert reports(actions) == [worker(1)]
    assert run.handle(Tick(), 100.0) == []
    assert finish(end_all(run, 101.0)) == 0


def test_continue_with_nobody_left_fails():
    run = job(DeathPolicy.CONTINUE)
    run.handle(Exited(worker(1), KILLED), 1.0)
    run.handle(Exited(worker(0), BAD), 2.0)
    assert finish(end_all(run, 2.1)) == 3


def test_wait_restarts_so_often_and_no_more():
    run = job(DeathPolicy.WAIT, max_restarts=2)
    for now_s in (1.0, 2.0):
        actions = run.handle(Exited(worker(1), KILLED), now_s)
        assert Restart(worker(1)) in actions
        assert worker(1) in run.alive
    actions = run.handle(Exited(worker(1), KILLED), 3.0)
    assert not any(isinstance(action, Restart) for action in actions)
    assert reports(run.handle(Tick(), 4.0)) == [worker(1)]
    assert finish(end_all(run, 4.1)) == 137


def test_wait_does_not_restart_one_that_followed():
    run = job(DeathPolicy.WAIT)
    actions = run.handle(Exited(worker(1), Exit(1), follows=True), 1.0)
    assert not any(isinstance(action, Restart) for action in actions)


def test_servers_get_a_limit_after_the_last_worker():
    run = job()
    run.handle(Exited(worker(0), GOOD), 1.0)
    assert run.next_deadline_s() is None
    run.handle(Exited(worker(1), GOOD), 2.0)
    assert run.handle(Tick(), 31.9) == []
    actions = run.handle(Tick(), 32.0)
    assert sent(actions) == [((SCHEDULER, server(0)), signal.SIGTERM)]
    assert finish(end_all(run, 32.1, Exit(-15))) == 0


def test_a_server_that_crashes_at_the_end_counts():
    run = job()
    run.handle(Exited(worker(0), GOOD), 1.0)
    run.handle(Exited(worker(1), GOOD), 1.0)
    run.handle(Exited(server(0), Exit(-11)), 1.5)
    assert finish(end_all(run, 1.6)) == 139


def test_ctrl_c_once_is_graceful():
    run = job()
    actions = run.handle(Interrupted(signal.SIGINT), 1.0)
    assert sent(actions) == [(NODES, signal.SIGINT)]
    assert finish(end_all(run, 1.1, Exit(1))) == 130


def test_ctrl_c_escalates_by_itself():
    run = job()
    run.handle(Interrupted(signal.SIGINT), 1.0)
    assert sent(run.handle(Tick(), 11.0)) == [(NODES, signal.SIGTERM)]
    assert sent(run.handle(Tick(), 16.0)) == [(NODES, signal.SIGKILL)]
    assert finish(end_all(run, 16.1, KILLED)) == 130


def test_ctrl_c_twice_kills():
    run = job()
    run.handle(Interrupted(signal.SIGINT), 1.0)
    assert sent(run.handle(Interrupted(signal.SIGINT), 1.2)) == [(NODES, signal.SIGKILL)]
    assert finish(end_all(run, 1.3, KILLED)) == 130


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP])
def test_other_signals_are_passed_on(signum):
    run = job()
    assert sent(run.handle(Interrupted(signum), 1.0)) == [(NODES, signum)]
    assert sent(run.handle(Tick(), 6.0)) == [(NODES, signal.SIGKILL)]
    assert finish(end_all(run, 6.1, KILLED)) == 128 + signum


def test_ctrl_c_while_a_failure_settles_hurries_it():
    run = job()
    run.handle(Exited(worker(1), BAD), 1.0)
    actions = run.handle(Interrupted(signal.SIGINT), 1.1)
    assert reports(actions) == [worker(1)]
    assert sent(actions) == [((SCHEDULER, server(0), worker(0)), signal.SIGTERM)]
    assert sent(run.handle(Interrupted(signal.SIGINT), 1.2))[0][1] == signal.SIGKILL
    assert finish(end_all(run, 1.3, KILLED)) == 3


def test_a_cluster_that_tells_each_of_its_machines_cuts_no_grace_short():
    run = job()
    run.handle(Interrupted(signal.SIGTERM), 1.0)
    assert run.handle(Interrupted(signal.SIGTERM), 1.1) == []
    assert run.next_deadline_s() == 1.0 + LIMITS.grace_s
    assert sent(run.handle(Interrupted(signal.SIGINT), 1.2)) == [(NODES, signal.SIGKILL)]


TAKEN = [Exit(-signal.SIGTERM), Exit(143), Exit(255, "was lost with its host: cancelled")]


@pytest.mark.parametrize("first", TAKEN)
def test_processes_that_a_cluster_tells_before_the_launcher_did_not_fail(first):
    run = job()
    run.handle(Exited(worker(1), first), 1.0)
    actions = run.handle(Exited(worker(0), BAD, follows=True), 1.1)
    actions += run.handle(Interrupted(signal.SIGTERM), 1.2)
    assert reports(actions) == []
    assert [action.text for action in actions if isinstance(action, Say)] == [
        "SIGTERM: ending the job; Ctrl-C ends it at once"
    ]
    assert sent(actions) == [((SCHEDULER, server(0)), signal.SIGTERM)]
    assert finish(end_all(run, 1.3)) == 143


def test_a_lost_host_is_a_failure_although_mpirun_ends_the_others():
    run = job()
    run.handle(Exited(worker(1), TAKEN[2]), 1.0)
    assert run.handle(Interrupted(signal.SIGTERM, by_host=True), 1.1) == []
    actions = run.handle(Tick(), 1.0 + LIMITS.settle_s)
    assert reports(actions) == [worker(1)]
    assert finish(end_all(run, 2.1, TAKEN[0])) == 255


def test_what_only_follows_says_not_yet_whether_a_host_was_lost_or_the_job_is_ended():
    run = job()
    run.handle(Exited(worker(0), BAD, follows=True), 1.0)
    assert run.handle(Interrupted(signal.SIGTERM, by_host=True), 1.1) == []
    run.handle(Exited(worker(1), TAKEN[2]), 1.2)
    actions = run.handle(Tick(), 1.2 + LIMITS.settle_s)
    assert reports(actions) == [worker(1)]
    assert finish(end_all(run, 2.3, TAKEN[0])) == 255


def test_a_host_of_which_a_process_was_ended_tells_of_a_request():
    run = job()
    run.handle(Exited(worker(1), TAKEN[0]), 1.0)
    actions = run.handle(Interrupted(signal.SIGTERM, by_host=True), 1.1)
    assert reports(actions) == []
    assert finish(end_all(run, 1.2, TAKEN[0])) == 143


def test_a_cluster_may_tell_a_host_then_take_another_then_tell_the_launcher():
    run = job()
    run.handle(Exited(worker(1), TAKEN[2]), 1.0)
    run.handle(Interrupted(signal.SIGTERM, by_host=True), 1.1)
    run.handle(Interrupted(signal.SIGTERM), 1.2)
    assert finish(end_all(run, 1.3, TAKEN[0])) == 143


@pytest.mark.parametrize(("first", "signum"), [(BAD, signal.SIGTERM), (TAKEN[0], signal.SIGINT)])
def test_what_failed_by_itself_is_told_although_the_job_is_ended(first, signum):
    run = job()
    run.handle(Exited(worker(1), first), 1.0)
    actions = run.handle(Interrupted(signum), 1.2)
    assert reports(actions) == [worker(1)]
    assert finish(end_all(run, 1.3)) == first.code


@pytest.mark.parametrize("is_interrupted", [True, False])
def test_the_last_end_at_the_limit_leaves_nobody_to_kill(is_interrupted):
    run = job()
    if is_interrupted:
        run.handle(Interrupted(signal.SIGTERM), 1.0)
    for node in NODES[1:]:
        run.handle(Exited(node, GOOD), 1.0)
    limit_s = run.next_deadline_s()
    assert limit_s is not None
    actions = run.handle(Exited(SCHEDULER, GOOD), limit_s)
    assert [type(action) for action in actions] == [Finish]


@pytest.mark.parametrize("policy", DeathPolicy)
def test_what_the_job_has_given_up_is_killed_if_it_does_not_end(policy):
    run = job(policy)
    assert run.handle(Silent(worker(1)), 1.0) == []
    assert run.next_deadline_s() == 6.0
    assert run.handle(Silent(worker(1)), 2.0) == []
    actions = run.handle(Tick(), 6.0)
    assert sent(actions) == [((worker(1),), signal.SIGKILL)]
    actions = run.handle(Exited(worker(1), KILLED), 6.1)
    assert (Restart(worker(1)) in actions) == (policy is DeathPolicy.WAIT)
    assert (Say("the job goes on without it") in actions) == (policy is DeathPolicy.CONTINUE)
    if policy is DeathPolicy.ABORT:
        assert reports(run.handle(Tick(), 7.1)) == [worker(1)]
    else:
        assert run.next_deadline_s() is None
        assert finish(end_all(run, 8.0)) == 0


def test_what_the_job_has_given_up_may_end_by_itself_and_last():
    run = job(DeathPolicy.CONTINUE)
    for node in (worker(0), SCHEDULER, server(0)):
        run.handle(Silent(worker(1)), 1.0)
        run.handle(Exited(node, GOOD), 1.1)
    assert finish(run.handle(Exited(worker(1), Exit(1), follows=True), 2.0)) == 0


def test_one_given_up_on_a_host_that_does_not_answer_is_waited_for_no_longer():
    run = job(DeathPolicy.CONTINUE)
    run.handle(Silent(worker(1)), 1.0)
    run.handle(Tick(), 6.0)
    actions = run.handle(Tick(), 21.0)
    assert reports(actions) == [worker(1)]
    assert worker(1) not in run.alive
    assert run.handle(Exited(worker(1), KILLED), 21.5) == []
    assert finish(end_all(run, 22.0)) == 0


def test_what_is_said_of_a_process_does_not_end_the_next_one():
    run = job(DeathPolicy.WAIT)
    run.handle(Exited(worker(1), KILLED), 1.0)
    run.handle(Silent(worker(1)), 1.1)
    assert run.next_deadline_s() is None
    run.handle(Silent(worker(1)), 9.0)
    assert sent(run.handle(Tick(), 14.0)) == [((worker(1),), signal.SIGKILL)]


def test_nothing_is_given_up_twice_once_the_job_ends():
    run = job(DeathPolicy.CONTINUE)
    run.handle(Silent(worker(1)), 1.0)
    run.handle(Interrupted(signal.SIGTERM), 2.0)
    assert run.next_deadline_s() == 2.0 + LIMITS.grace_s


EVENTS = st.one_of(
    st.builds(
        Exited,
        st.sampled_from(NODES),
        st.sampled_from([GOOD, BAD, KILLED]),
        st.booleans(),
    ),
    st.builds(Silent, st.sampled_from(NODES[1:])),
    st.builds(Interrupted, st.sampled_from([signal.SIGINT, signal.SIGTERM])),
    st.just(Tick()),
)


@settings(max_examples=300)
@given(
    st.sampled_from(DeathPolicy),
    st.integers(0, 2),
    st.lists(st.tuples(EVENTS, st.floats(0, 8)), max_size=20),
)
def test_every_job_ends_once_and_in_time(policy, max_restarts, story):
    run = job(policy, max_restarts=max_restarts)
    now_s, finished, hurried = 0.0, [], False
    for event, step_s in story:
        now_s += step_s
        if finished or (isinstance(event, Exited) and event.node not in run.alive):
            continue
        hurried = hurried or isinstance(event, Interrupted)
        actions = run.handle(event, now_s)
        finished += [action.exit_code for action in actions if isinstance(action, Finish)]
        for nodes, _ in sent(actions):
            assert nodes
            assert set(nodes) <= run.alive
    if hurried and not finished:
        # From an interruption on, deadlines alone lead to SIGKILL, which every process obeys.
        for _ in range(10):
            deadline_s = run.next_deadline_s()
            if deadline_s is None:
                break
            assert deadline_s <= now_s + 15
            now_s = max(now_s, deadline_s)
            if signal.SIGKILL in [signum for _, signum in sent(run.handle(Tick(), now_s))]:
                break
        if run.alive:
            finished += [finish(end_all(run, now_s, KILLED))]
        else:
            # The last story sent SIGKILL, and nobody was heard of since.
            finished.append(None)
    assert len(finished) <= 1
    assert (not run.alive) == bool(finished)
