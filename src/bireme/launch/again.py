"""The command by which a job's script starts the same job where its hosts are known. Pure.

What the user may have meant to keep to himself, values of variables, is in the environment that
the script gets, and not in the script.
"""

from collections.abc import Iterator, Mapping

from bireme.errors import ConfigError
from bireme.launch.environment import forwarded
from bireme.launch.job import GRACE_S, LAUNCH_TIMEOUT_S, JobSpec
from bireme.settings import NodeSettings
from bireme.settings.variables import variables

__all__ = ("run_again", "variables_again")

_MADE_ANEW = ("job", "secret")


def run_again(spec: JobSpec, launcher: str, python: str) -> tuple[str, ...]:
    """Return the words of ``bireme run`` for a job, without its hosts.

    Args:
        spec: The job.
        launcher: Which backend goes on with it.
        python: The interpreter there.

    Example:
        >>> spec = JobSpec(command=("train", "-x"), num_workers=2, num_servers=0)
        >>> " ".join(run_again(spec, "slurm", "python"))
        'python -m bireme run --launcher slurm -np 2 -- train -x'
    """
    run = (python, "-m", "bireme", "run", "--launcher", launcher)
    return (*run, *_flags(spec), "--", *spec.command)


def _flags(spec: JobSpec) -> Iterator[str]:
    if spec.num_servers:
        yield from ("-n", str(spec.num_workers), "-s", str(spec.num_servers))
    else:
        yield from ("-np", str(spec.num_workers))
    for flag, text in (
        ("--scheduler-host", spec.scheduler_host),
        ("--workdir", spec.workdir),
        ("--sync-dir", spec.sync_dir),
        ("--output-filename" if spec.output_by_rank else "--output-dir", spec.output_dir),
    ):
        if text:
            yield from (flag, text)
    if spec.max_restarts != 3:
        yield from ("--max-restarts", str(spec.max_restarts))
    if spec.grace_s != GRACE_S:
        yield from ("--grace-period", f"{spec.grace_s:g}")
    if spec.launch_timeout_s != LAUNCH_TIMEOUT_S:
        yield from ("--start-timeout", f"{spec.launch_timeout_s:g}")
    for flag, env in (
        ("--env", spec.env),
        ("--env-server", spec.server_env),
        ("--env-worker", spec.worker_env),
    ):
        for name in sorted(env):
            yield from (flag, name)


def variables_again(spec: JobSpec) -> dict[str, str]:
    """Return the environment that ``run_again`` needs: the launcher's, and what flags have set.

    Raises:
        ConfigError: One variable has two values, for servers and for workers.
    """
    names = variables(NodeSettings)
    fields: Mapping[str, object] = spec.node_fields
    env = forwarded(spec.inherited, elsewhere=True)
    env |= spec.settings.to_env()
    env |= {names[key].name: str(fields[key]) for key in fields if key not in _MADE_ANEW}
    for more in (spec.env, spec.server_env, spec.worker_env):
        for name, text in more.items():
            if more is not spec.env and _differs(spec, name):
                raise ConfigError(
                    f"{name} has several values, and a script carries one; set it in the command"
                )
            env[name] = text
    return env


def _differs(spec: JobSpec, name: str) -> bool:
    every = (spec.env, spec.server_env, spec.worker_env)
    return len({env[name] for env in every if name in env}) > 1
