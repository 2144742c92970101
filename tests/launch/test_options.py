"""The flags of ``bireme run`` are a contract: a change here is a change for every user."""

import argparse

import pytest

from bireme.launch.horovodrun import FLAGS
from bireme.launch.options import add_options, duration_s, size_bytes


def flags():
    parser = argparse.ArgumentParser()
    add_options(parser)
    return sorted(flag for action in parser._actions for flag in action.option_strings)


def test_the_flags_are_pinned():
    tuning = {name for flag in FLAGS for name in flag.names}
    assert [flag for flag in flags() if flag not in tuning] == sorted(PINNED.split())


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (size_bytes, "8X"),
        (size_bytes, ""),
        (size_bytes, "-1"),
        (duration_s, "1:2"),
        (duration_s, "x"),
    ],
)
def test_what_is_no_size_and_no_time(read, text):
    with pytest.raises(ValueError):
        read(text)


PINNED = """
-H --hosts -h --help -hostfile --hostfile -i --ssh-identity-file -n --num-workers -np --num-proc
-p --ssh-port -s --num-servers --allow-optimizer --dry-run --env --env-server --env-worker
--as-horovod --kv-store --launcher --max-restarts --on-worker-death --output-dir --scheduler-host
--secret-file
--mpi-args --mpi-flavour --mpi-program --mpi-python --sge-args --sge-array --sge-detach --sge-pe
--sge-python --slurm-args --slurm-detach --slurm-nodes --slurm-python
--ssh-args --ssh-program --ssh-python --staleness --start-timeout --workdir
-cb --check-build --config --config-file --cores --gpus --grace-period --job-name --log-level
--memory --mpi
--network-interface --network-interfaces --output-filename --prefix-output-with-timestamp
-prefix-timestamp --queue --sync-dir --time -v --version --verbose
"""
