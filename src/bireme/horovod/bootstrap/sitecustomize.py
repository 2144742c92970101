"""Runs when a process of ``bireme run --as-horovod`` starts, and installs the alias.

The launcher puts this folder first on ``PYTHONPATH``, so that Python's ``site`` finds this file.
It steps aside at once: the folder leaves ``sys.path``, and a ``sitecustomize`` that the user or the
system has runs as if this one were not there. Children inherit ``PYTHONPATH`` and do the same.
"""

import importlib
import importlib.util
import sys
from importlib.machinery import PathFinder
from pathlib import Path

__all__ = ("chain", "start")

_HERE = Path(__file__).resolve().parent


def start() -> None:
    """Install the alias, then run the ``sitecustomize`` that this one hides."""
    sys.path[:] = [each for each in sys.path if not each or Path(each).resolve() != _HERE]
    if importlib.util.find_spec("bireme") is None:
        # The launcher's interpreter has bireme and this one has not: tell, do not break python.
        sys.stderr.write(f"bireme run --as-horovod: {sys.executable} has no bireme installed\n")
    else:
        importlib.import_module("bireme.horovod.alias").install()
    chain()


def chain() -> None:
    """Run the next ``sitecustomize`` on the path, if there is one, under its own name."""
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    start()
