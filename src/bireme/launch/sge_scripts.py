"""The scripts that Grid Engine is given. Pure; called by its backend.

Everybody can read them: values of variables are in a file of the owner's, which a script reads and
takes away.
"""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from bireme.launch.job import JobSpec

__all__ = ("array_script", "output_of", "pe_script", "private_file")

_TRAPS = """\
# qdel sends SIGUSR2 to every process, some time before SIGKILL: the launcher is to hear SIGTERM.
trap "" USR1 USR2
{command} &
job=$!
told=
trap 'told=yes; kill -TERM $job' TERM USR1 USR2
wait $job
code=$?
# A wait that a signal has cut short says so, and not how the job ended; 127: that is known already.
while [ "$told" ]; do
  told=
  wait $job
  again=$?
  [ $again = 127 ] || code=$again
done
# 99 and 100 have a meaning of their own for Grid Engine.
case $code in 99 | 100) code=1 ;; esac
exit $code
"""


def output_of(spec: JobSpec) -> Path:
    """Return the file that a job writes to."""
    return _folder(spec) / f"{spec.name}.log"


def private_file(spec: JobSpec) -> Path:
    """Return the file in which a job's environment is kept until it starts."""
    return _folder(spec) / f".{spec.name}.env"


def pe_script(spec: JobSpec, pe: str, args: Sequence[str], again: Sequence[str]) -> str:
    """Return the script of a parallel job.

    Args:
        spec: The job.
        pe: The parallel environment.
        args: More lines of the user's.
        again: What to run on the first host.
    """
    file = shlex.quote(str(private_file(spec)))
    return "\n".join(
        [
            "#!/bin/sh",
            *(f"#$ {wish}" for wish in (f"-pe {pe} {spec.num_workers}", *_wishes(spec, args))),
            f"#$ -o {shlex.quote(str(output_of(spec)))}",
            f". {file} && rm -f {file} || exit 1",
            _TRAPS.format(command=shlex.join(again)),
        ]
    )


def array_script(spec: JobSpec, args: Sequence[str], agent: Sequence[str]) -> str:
    """Return the script of an array job, each task of which is an agent.

    Args:
        spec: The job.
        args: More lines of the user's.
        agent: What to run in each task.
    """
    return "\n".join(
        [
            "#!/bin/sh",
            *(f"#$ {wish}" for wish in (f"-t 1-{spec.num_workers}", *_wishes(spec, args))),
            "#$ -o /dev/null",
            f". {shlex.quote(str(private_file(spec)))} || exit 1",
            _TRAPS.format(command=shlex.join(agent)),
        ]
    )


def _wishes(spec: JobSpec, args: Sequence[str]) -> Iterator[str]:
    resources = spec.resources
    yield "-S /bin/sh"
    yield f"-N {spec.name}"
    yield f"-wd {shlex.quote(spec.workdir or '.')}"
    yield "-j y"
    yield "-r n"
    yield "-notify"
    if resources.memory_bytes:
        yield f"-l h_vmem={-(-resources.memory_bytes // (1 << 20))}M"
    if resources.time_s:
        yield f"-l h_rt={resources.time_s}"
    if resources.queue:
        yield f"-q {resources.queue}"
    if args:
        yield shlex.join(args)


def _folder(spec: JobSpec) -> Path:
    return Path(spec.output_dir or spec.workdir or ".")
