"""A plan as text, for ``--dry-run`` and for scripts: who runs where, with which variables. Pure."""

import dataclasses
import shlex
from collections.abc import Iterator, Mapping

from bireme.launch.environment import is_secret
from bireme.launch.plan import HostPlan, Plan
from bireme.settings import JobSettings, NodeSettings
from bireme.settings.variables import variables

__all__ = ("Listing", "assignments")

_PLACE = ("local_rank", "local_size")
"""What is worth saying although it may be what it is without being said."""


class Listing:
    """Lines on a plan.

    Example:
        >>> from bireme.launch.job import JobSpec
        >>> from bireme.launch.plan import THIS_MACHINE, plan_on
        >>> spec = JobSpec(command=("train",), num_workers=1, num_servers=0, name="job-1",
        ...     node_fields={"secret": "0123456789abcdef"})
        >>> next(Listing(plan_on(spec, [THIS_MACHINE])).job())
        '# job-1: 1 workers on 1 hosts'
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._shared = _shared(plan)
        self._defaults = _defaults()

    def whole(self) -> Iterator[str]:
        """Yield comment lines on the job, and on every host."""
        yield from self.job()
        for host in self._plan.hosts:
            yield f"# {host.host}:"
            yield from self.host(host)

    def job(self) -> Iterator[str]:
        """Yield comment lines on the whole job: its size, and what all its processes are told."""
        plan, spec = self._plan, self._plan.spec
        counts = [f"{spec.num_workers} workers"]
        if spec.num_servers:
            counts += [f"{spec.num_servers} servers", "1 scheduler"]
        yield f"# {spec.name or 'job'}: {', '.join(counts)} on {len(plan.hosts)} hosts"
        yield f"# in {spec.workdir or 'the current folder'}: {shlex.join(spec.command)}"
        if spec.sync_dir:
            yield f"# after the current folder has been copied to {spec.sync_dir}"
        said = {k: text for k, text in self._shared.items() if self._defaults.get(k) != text}
        yield f"# every process: {' '.join(assignments(said))}"

    def host(self, host: HostPlan) -> Iterator[str]:
        """Yield a comment line for each process of a host: its name, and what it alone is told."""
        known = {**self._defaults, **self._shared}
        for process in host.processes:
            own = {name: text for name, text in process.env.items() if known.get(name) != text}
            yield f"#   {process.node}: {' '.join(assignments(own))}"


def assignments(env: Mapping[str, str]) -> list[str]:
    """Return ``NAME=value`` for each variable, quoted for a shell; secrets are only named.

    Example:
        >>> assignments({"B": "two words", "A": "1", "BIREME_SECRET": "0123456789abcdef"})
        ['A=1', "B='two words'", 'BIREME_SECRET=(kept)']
    """
    return [
        f"{name}={'(kept)' if is_secret(name) else shlex.quote(env[name])}" for name in sorted(env)
    ]


def _defaults() -> dict[str, str]:
    """Return the settings that hold where nobody sets them."""
    names = variables(NodeSettings)
    defaults = {
        names[field.name].name: str(field.default)
        for field in dataclasses.fields(NodeSettings)
        if field.default is not dataclasses.MISSING and field.name not in _PLACE
    }
    return defaults | JobSettings().to_env()


def _shared(plan: Plan) -> dict[str, str]:
    """Return the variables that all processes are told alike."""
    first, *others = (process.env for host in plan.hosts for process in host.processes)
    shared = dict(first)
    for env in others:
        for name in [name for name, text in shared.items() if env.get(name) != text]:
            del shared[name]
    return shared
