"""The flags of ``bireme run`` are a contract: a change here is a change for every user."""

import argparse

from bireme.launch.options import add_options


def flags():
    parser = argparse.ArgumentParser()
    add_options(parser)
    return sorted(flag for action in parser._actions for flag in action.option_strings)


def test_the_flags_are_pinned():
    assert flags() == sorted(PINNED.split())


PINNED = """
-H --hosts -h --help -hostfile --hostfile -i --ssh-identity-file -n --num-workers -np --num-proc
-p --ssh-port -s --num-servers --allow-optimizer --dry-run --env --env-server --env-worker
--kv-store --launcher --max-restarts --on-worker-death --output-dir --scheduler-host --secret-file
--ssh-args --ssh-program --ssh-python --staleness --start-timeout --workdir
"""
