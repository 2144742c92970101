"""Starts real jobs for the tests of this folder, and jobs of threads; reads what workers found."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import msgspec

from bireme.kvstore.dist.session import Session
from bireme.node.embedded import EmbeddedCluster, embedded_config
from bireme.settings import JobSettings

ROOT = Path(__file__).resolve().parents[2]


def launch(program, out, *more, num_workers, num_servers, limit_s=120, **env):
    """Run a program of ``programs/`` in processes of this machine; fail unless all end well.

    Args:
        program: Its name.
        out: Folder for what it writes, its first argument.
        more: Further arguments.
        num_workers: Workers.
        num_servers: Servers.
        limit_s: When to give up.
        env: Variables for every process.
    """
    # A check that fails on one worker leaves the others waiting: not for long.
    limits = {f"BIREME_{what}_TIMEOUT": "15" for what in ("PUSH", "PULL", "BARRIER")}
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "bireme", "run"),
            *("-n", str(num_workers), "-s", str(num_servers)),
            *(sys.executable, "-W", "error", "-m", f"tests.integration.programs.{program}"),
            *(str(out), *more),
        ],
        cwd=ROOT,
        env={**os.environ, **limits, **{name.upper(): value for name, value in env.items()}},
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-4000:]


def run_job(program, out, *, num_workers, **options):
    """Launch a program of checks; return what each rank says of each: nothing when it holds."""
    launch(program, out, num_workers=num_workers, **options)
    return [json.loads((out / f"{rank}.json").read_text()) for rank in range(num_workers)]


def run_threads(num_workers, num_servers, work, allowed_optimizers=(), **config):
    """Call ``work(session)`` in one thread for each worker of a job inside this process.

    Args:
        num_workers: Workers.
        num_servers: Servers.
        work: Returns what is wanted of a worker.
        allowed_optimizers: Modules that servers may import.
        config: Fields of ``JobConfig`` to change, such as ``slice_bytes=64``.

    Returns:
        What every rank's call returned.
    """
    plain = embedded_config(
        JobSettings(push_timeout_s=15, pull_timeout_s=15), num_workers, num_servers
    )
    cluster = EmbeddedCluster(msgspec.structs.replace(plain, **config), allowed_optimizers)
    results, errors = [None] * num_workers, []

    def call(rank):
        try:
            session = Session(cluster.client(rank), start_timeout_s=10, exit_timeout_s=5)
            keeper = session.store("dist_sync")
            try:
                results[rank] = work(session)
            finally:
                keeper.close()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=call, args=(rank,)) for rank in range(num_workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if errors:
        raise errors[0]
    cluster.join(5)
    return results
