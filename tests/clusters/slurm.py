"""A real Slurm on a stage: the controller on the first host, one node on each other."""

import os

from tests.clusters.stage import HEAD, NICE, NODES, until

_CONF = """\
ClusterName=stage
SlurmctldHost={head}({head_address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2
ReturnToService=2
MpiDefault=none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmdParameters=config_overrides
SlurmctldTimeout=10
SlurmdTimeout=10
KillWait=2
PropagateResourceLimits=NONE
{nodes}
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=gpu Nodes=ALL MaxTime=INFINITE State=UP
"""
_NODE = "NodeName={name} NodeAddr={address} CPUs=8 RealMemory=2000 State=UNKNOWN"


def start_slurm(stage):
    """Start the daemons and return when both nodes are idle; they end with the stage.

    Nothing below ``/etc`` is used: ``SLURM_CONF`` names the configuration.
    """
    folder = stage.folder / "slurm"
    (folder / "state").mkdir(parents=True)
    (folder / "spool").mkdir()
    for path in (folder, *folder.parents):
        if stage.folder in (path, *path.parents):
            path.chmod(0o755)
    nodes = [_NODE.format(name=name, address=stage.addresses[name]) for name in NODES]
    conf = folder / "slurm.conf"
    conf.write_text(
        _CONF.format(
            head=HEAD,
            head_address=stage.addresses[HEAD],
            folder=folder,
            nodes="\n".join(nodes),
        )
    )
    stage.env["SLURM_CONF"] = str(conf)
    _start_munged(stage, folder)
    stage.run([*NICE, "slurmctld", "-c"], check=True)
    for host in NODES:
        stage.run([*NICE, "slurmd"], host=host, check=True)
    until(
        lambda: (
            stage.run(["sinfo", "-h", "-N", "-p", "debug", "-o", "%T"]).stdout.split()
            == ["idle"] * 2
        ),
        "both nodes are idle",
    )


def _start_munged(stage, folder):
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    files = {name: folder / f"munge.{name}" for name in ("socket", "pid", "log", "seed")}
    options = [f"--{name}-file={files[name]}" for name in ("pid", "log", "seed")]
    line = [
        *NICE,
        "munged",
        "--force",
        f"--key-file={key}",
        f"--socket={files['socket']}",
        *options,
    ]
    stage.run(line, check=True)
