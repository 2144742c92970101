"""A real Grid Engine on a stage: the master on the first host, an execution host on each other."""

import re
import shutil
from pathlib import Path

from tests.clusters.stage import HEAD, NICE, NODES, until

SLOTS = 4
_BIN = "/usr/lib/gridengine"
_SHARE = Path("/usr/share/gridengine")
_QUICK = {
    "execd_spool_dir": "{folder}/execd",
    "min_uid": "0",
    "min_gid": "0",
    "load_report_time": "00:00:02",
    "mailer": "/bin/true",
    "reporting_params": "accounting=true reporting=false flush_time=00:00:01 joblog=false "
    "sharelog=00:00:00",
}
_SCHEDULER = {
    "schedule_interval": "0:0:1",
    "flush_submit_sec": "1",
    "flush_finish_sec": "1",
    "job_load_adjustments": "NONE",
}
# The usual threshold of load would keep jobs waiting on a machine that is busy with tests.
_QUEUE = {
    "qname": "all.q",
    "hostlist": "@allhosts",
    "slots": str(SLOTS),
    "pe_list": "mpi",
    "shell": "/bin/bash",
    "load_thresholds": "NONE",
    "rerun": "TRUE",
    "notify": "00:00:02",
    "tmpdir": "{folder}/jobs",
}
_PE = """\
pe_name mpi
slots 999
user_lists NONE
xuser_lists NONE
start_proc_args NONE
stop_proc_args NONE
allocation_rule $round_robin
control_slaves TRUE
job_is_first_task FALSE
urgency_slots min
accounting_summary FALSE
qsort_args NONE
"""


def start_grid_engine(stage):
    """Start the daemons and return when both queues take jobs; they end with the stage.

    The cell is one of its own, below the stage's folder; the machine's own stays as it is.
    """
    folder = stage.folder / "sge"
    root = folder / "root"
    for path in ("root/default/common", "qmaster/job_scripts", "spooldb", "execd", "jobs"):
        (folder / path).mkdir(parents=True)
    for name in ("bin", "lib", "util", "utilbin"):
        shutil.copytree(f"/var/lib/gridengine/{name}", root / name, symlinks=True)
    stage.env |= {
        "SGE_ROOT": str(root),
        "SGE_CELL": "default",
        "SGE_QMASTER_PORT": "6444",
        "SGE_EXECD_PORT": "6445",
        "SGE_CLUSTER_NAME": "stage",
    }
    _make_cell(stage, folder)
    stage.run([*NICE, "sge_qmaster"], check=True)
    until(lambda: stage.run(["qconf", "-sh"]).returncode == 0, "the master answers")
    _make_queue(stage, folder)
    for host in NODES:
        stage.run([*NICE, "sge_execd"], host=host, check=True)
    ready = re.compile(r"all\.q@node-\S+ .* lx-amd64 *$", re.MULTILINE)
    until(
        lambda: len(ready.findall(stage.run(["qstat", "-f"]).stdout)) == len(NODES),
        "both queues take jobs",
        limit_s=40,
    )


def _make_cell(stage, folder):
    common = folder / "root/default/common"
    bootstrap = {
        "admin_user": "root",
        "spooling_params": f"{folder}/spooldb",
        "qmaster_spool_dir": f"{folder}/qmaster",
    }
    (common / "bootstrap").write_text(_changed(_SHARE / "default-bootstrap", bootstrap))
    (common / "act_qmaster").write_text(f"{HEAD}\n")
    quick = {name: value.format(folder=folder) for name, value in _QUICK.items()}
    configuration = folder / "configuration"
    configuration.write_text(_changed(_SHARE / "default-configuration", quick))
    resources = _SHARE / "util/resources"
    for line in (
        ["spoolinit", "berkeleydb", "libspoolb", f"{folder}/spooldb", "init"],
        ["spooldefaults", "configuration", str(configuration)],
        ["spooldefaults", "complexes", str(resources / "centry")],
        ["spooldefaults", "usersets", str(resources / "usersets")],
        ["spooldefaults", "managers", "root"],
    ):
        stage.run([f"{_BIN}/{line[0]}", *line[1:]], check=True)


def _make_queue(stage, folder):
    for host in NODES:
        stage.run(["qconf", "-ah", host], check=True)
    for host in (HEAD, *NODES):
        stage.run(["qconf", "-as", host])
    scheduler = _replaced(stage.run(["qconf", "-ssconf"], check=True).stdout, _SCHEDULER)
    wanted = {name: value.format(folder=folder) for name, value in _QUEUE.items()}
    queue = _replaced(stage.run(["qconf", "-sq"], check=True).stdout, wanted)
    group = f"group_name @allhosts\nhostlist {' '.join(NODES)}\n"
    for flag, text in (("-Msconf", scheduler), ("-Ahgrp", group), ("-Ap", _PE), ("-Aq", queue)):
        path = folder / f"qconf{flag}"
        path.write_text(text)
        stage.run(["qconf", flag, str(path)], check=True)


def _changed(path, values):
    return _replaced(path.read_text(), values)


def _replaced(text, values):
    """Replace the values of lines such as ``slots   1``."""
    for name, value in values.items():
        text, count = re.subn(
            rf"^{name}\s.*(\\\n.*)*$",
            lambda _, n=name, v=value: f"{n} {v}",
            text,
            flags=re.MULTILINE,
        )
        assert count == 1, f"{count} lines say {name}"
    return text
