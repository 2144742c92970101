"""Every flag of horovodrun's is taken: it does what it says, says that it does nothing, or errs."""

import argparse

import pytest

from bireme.errors import ConfigError, UnsupportedError
from bireme.launch.horovodrun import FLAGS, add_horovodrun_options, flags_variables, notices_of
from bireme.launch.options import add_options


def parsed(*arguments):
    parser = argparse.ArgumentParser()
    add_horovodrun_options(parser)
    return parser.parse_args(arguments)


@pytest.mark.parametrize(
    ("arguments", "variables"),
    [
        ((), {}),
        (("--fusion-threshold-mb", "32"), {"HOROVOD_FUSION_THRESHOLD": str(32 << 20)}),
        (("--fusion-threshold-mb", "0"), {"HOROVOD_FUSION_THRESHOLD": "0"}),
        (("--cycle-time-ms", "2.5"), {"HOROVOD_CYCLE_TIME": "2.5"}),
        (("--cache-capacity", "0"), {"HOROVOD_CACHE_CAPACITY": "0"}),
        (("--hierarchical-allreduce",), {"HOROVOD_HIERARCHICAL_ALLREDUCE": "1"}),
        (("--no-hierarchical-allreduce",), {"HOROVOD_HIERARCHICAL_ALLREDUCE": "0"}),
        (
            ("--autotune", "--autotune-log-file", "a.csv"),
            {
                "HOROVOD_AUTOTUNE": "1",
                "HOROVOD_AUTOTUNE_LOG": "a.csv",
            },
        ),
        (
            ("--timeline-filename", "t.json", "--timeline-mark-cycles"),
            {
                "HOROVOD_TIMELINE": "t.json",
                "HOROVOD_TIMELINE_MARK_CYCLES": "1",
            },
        ),
        (("--no-stall-check",), {"HOROVOD_STALL_CHECK_DISABLE": "1"}),
        (("--stall-check-warning-time-seconds", "5"), {"HOROVOD_STALL_CHECK_TIME_SECONDS": "5"}),
        (("--gloo-timeout-seconds", "9"), {"HOROVOD_GLOO_TIMEOUT_SECONDS": "9"}),
        (("--log-without-timestamp",), {"HOROVOD_LOG_HIDE_TIME": "1"}),
        (("--log-with-timestamp",), {"HOROVOD_LOG_HIDE_TIME": "0"}),
    ],
)
def test_what_becomes_a_variable(arguments, variables):
    assert flags_variables(parsed(*arguments)) == variables
    assert notices_of(parsed(*arguments)) == []


ELASTIC = (
    "elastic jobs, whose number of processes changes, come with fault tolerance, which this "
    "version does not have"
)


def test_what_means_nothing_says_so():
    options = parsed("--gloo", "--disable-cache", "--blacklist-cooldown-range", "1", "2")
    assert flags_variables(options) == {}
    assert notices_of(options) == [
        "--disable-cache has no effect: hosts are asked anew for every job",
        "--gloo has no effect: Gloo is what there is",
        f"--blacklist-cooldown-range has no effect: {ELASTIC}; start a fixed number with -np",
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--autotune", "--no-autotune"), "--autotune and --no-autotune contradict"),
        (("--stall-check-shutdown-time-seconds", "60"), "must be more than the 60 s"),
    ],
)
def test_what_contradicts_itself(arguments, words):
    with pytest.raises(ConfigError, match=words):
        flags_variables(parsed(*arguments))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--min-np", "2"), ELASTIC),
        (("--host-discovery-script", "x"), ELASTIC),
        (("--jsrun",), "--launcher"),
    ],
)
def test_what_cannot_be_given_yet(arguments, words):
    with pytest.raises(UnsupportedError, match=f"{arguments[0]}: .*{words}"):
        flags_variables(parsed(*arguments))


@pytest.mark.parametrize(
    "arguments", [("--autotune-gaussian-process-noise", "1.5"), ("--cache-capacity", "x")]
)
def test_values_are_checked(arguments, capsys):
    with pytest.raises(SystemExit):
        parsed(*arguments)
    assert arguments[0] in capsys.readouterr().err


HOROVODRUN = """
-v --version -np --num-proc -cb --check-build --disable-cache --start-timeout --network-interfaces
--network-interface --output-filename --verbose --config-file -p --ssh-port -i --ssh-identity-file
--fusion-threshold-mb --cycle-time-ms --cache-capacity --hierarchical-allreduce
--no-hierarchical-allreduce --hierarchical-allgather --no-hierarchical-allgather --torus-allreduce
--no-torus-allreduce --autotune --no-autotune --autotune-log-file --autotune-warmup-samples
--autotune-steps-per-sample --autotune-bayes-opt-max-samples --autotune-gaussian-process-noise
--min-np --min-num-proc --max-np --max-num-proc --slots-per-host --slots --elastic-timeout
--reset-limit --blacklist-cooldown-range --timeline-filename --timeline-mark-cycles
--no-timeline-mark-cycles --no-stall-check --stall-check --stall-check-warning-time-seconds
--stall-check-shutdown-time-seconds --mpi-threads-disable --no-mpi-threads-disable --tcp
--binding-args --num-nccl-streams --thread-affinity --gloo-timeout-seconds --log-level
--log-with-timestamp --log-without-timestamp -prefix-timestamp --prefix-output-with-timestamp
--log-hide-timestamp --no-log-hide-timestamp -H --hosts -hostfile --hostfile
--host-discovery-script --gloo --mpi --jsrun
"""


def test_every_flag_is_taken():
    parser = argparse.ArgumentParser()
    add_options(parser)
    known = {name for action in parser._actions for name in action.option_strings}
    assert set(HOROVODRUN.split()) <= known


def test_flags_do_one_thing():
    for flag in FLAGS:
        assert [bool(flag.variable), bool(flag.nothing), bool(flag.unsupported)].count(True) == 1
