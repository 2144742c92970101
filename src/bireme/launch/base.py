"""What a launcher is: it runs a job somewhere and returns the job's exit code.

A new one is one file: a class with these members, and a line in ``launch.registry``.
"""

import argparse
from collections.abc import Mapping
from typing import ClassVar, Protocol

from bireme.launch.console import Printer
from bireme.launch.job import JobSpec

__all__ = ("Launcher",)


class Launcher(Protocol):
    """Runs jobs.

    Guarantees:
        ``run`` returns when no process of the job is left, or raises with none left. It returns
        the exit code of the first process that failed, 0 when none did, and 128 and the signal's
        number when the launcher was told to stop.
    """

    name: ClassVar[str]
    """What ``--launcher`` calls it."""

    summary: ClassVar[str]
    """Where it runs jobs, in a few words for the help."""

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        """Add the options that only this launcher has."""

    @classmethod
    def from_options(cls, options: argparse.Namespace) -> "Launcher":
        """Return a launcher as the command line describes it."""

    def run(self, spec: JobSpec, printer: Printer, env: Mapping[str, str]) -> int:
        """Run the job to its end.

        Args:
            spec: What to run.
            printer: Where the output goes.
            env: The environment that the processes inherit.

        Raises:
            ConfigError: The job cannot be run here.
        """
