"""``import horovod`` means Bireme: an import hook that gives our modules Horovod's names.

Called by ``bootstrap/sitecustomize.py`` in the processes of ``bireme run --as-horovod``, and by
scripts that want it: ``bireme.horovod.alias.install()`` before the first ``import horovod``.
Both names lead to the same module objects, so that they share one state.
"""

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ("install", "is_installed", "uninstall")

_THEIRS = "horovod"
_OURS = "bireme.horovod"


class _Finder(MetaPathFinder):
    """Finds ``horovod`` and what is below it in ``bireme.horovod``, and nothing else."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where ``name`` is found, or ``None`` when it is none of Horovod's names."""
        if name != _THEIRS and not name.startswith(_THEIRS + "."):
            return None
        ours = _OURS + name[len(_THEIRS) :]
        if importlib.util.find_spec(ours) is None:
            raise ModuleNotFoundError(
                f"No module named {name!r} (horovod means bireme.horovod in this process, and that "
                f"has no {ours}; it has horovod.torch, horovod.run and what they need)",
                name=name,
            )
        return ModuleSpec(name, _Loader(ours), is_package=_is_package(ours))


class _Loader(Loader):
    def __init__(self, ours: str) -> None:
        self._ours = ours
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return our own module; the import system then enters it under the other name too."""
        module = importlib.import_module(self._ours)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing but keep the module's own spec: it has run already."""
        module.__spec__ = self._spec


def install() -> None:
    """Make ``import horovod`` mean :mod:`bireme.horovod` in this process; twice changes nothing.

    An installed Horovod is left alone and is found again after :func:`uninstall`.
    """
    if not is_installed():
        sys.meta_path.insert(0, _Finder())


def uninstall() -> None:
    """Undo :func:`install`, and forget what was imported under Horovod's names."""
    sys.meta_path[:] = [each for each in sys.meta_path if not isinstance(each, _Finder)]
    for name, module in list(sys.modules.items()):
        if (name == _THEIRS or name.startswith(_THEIRS + ".")) and _is_ours(module):
            del sys.modules[name]


def is_installed() -> bool:
    """Return whether the hook is in place."""
    return any(isinstance(each, _Finder) for each in sys.meta_path)


def _is_package(name: str) -> bool:
    spec = importlib.util.find_spec(name)
    return spec is not None and spec.submodule_search_locations is not None


def _is_ours(module: ModuleType) -> bool:
    return getattr(module, "__name__", "").startswith(_OURS)
