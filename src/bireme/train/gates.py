"""Where a model needs which parameter: before the forward of the module that owns it.

Every module calls its gate before its forward. The first passes show the order in which the
modules are needed, and which of them are never called: their parameters are used by a module
above them, so its gate waits for them. Called by :mod:`bireme.train.overlap`.
"""

import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import nn
from torch.utils.hooks import RemovableHandle

from bireme.train.lineup import Lineup

__all__ = ("Gates",)


class _Gate:
    """A hook of one module. A copy of the module, or a saved one, has a gate that does nothing."""

    __slots__ = ("_gates", "_name")

    def __init__(self, gates: "weakref.ref[Gates] | None", name: str | None) -> None:
        self._gates = gates
        self._name = name

    def __call__(self, *_: object) -> None:
        gates = None if self._gates is None else self._gates()
        if gates is not None:
            _pass(gates, self._name)

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Gate":
        return _inert()

    def __reduce__(self) -> tuple[Callable[[], "_Gate"], tuple[()]]:
        return _inert, ()


def _pass(gates: "Gates", name: str | None) -> None:
    if name is None:
        gates.pass_all()
    else:
        gates.pass_(name)


# What ``torch.compiler.disable`` sets, without loading the compiler: code that is compiled after
# the gates were made stops here and goes on behind.
_pass._torchdynamo_disable = True  # type: ignore[attr-defined]


def _inert() -> _Gate:
    return _Gate(None, None)


class Gates:
    """The gates of all replicas.

    Args:
        lineup: The replicas.
        wanted: Called with positions that are needed now, or ``None`` for all; from the thread
            that runs the module.
    """

    def __init__(self, lineup: Lineup, wanted: Callable[[Iterable[int] | None], None]) -> None:
        self._wanted = wanted
        self._lock = threading.Lock()
        self._owners = _owners(lineup)
        self._order: dict[str, int] = {}
        """The modules that have been called, in order of their first call."""
        self._waits: dict[str, list[int]] = {}
        self._first: dict[int, int] = {}
        self._handles: list[RemovableHandle] = []
        weakref.finalize(self, _remove, self._handles)
        this = weakref.ref(self)
        for replica in lineup.modules:
            for name, module in _hooked(replica):
                gate, everything = _Gate(this, name), _Gate(this, None)
                # torch annotates the last two without types.
                owner: Any = module
                self._handles += [
                    module.register_forward_pre_hook(gate),
                    owner.register_state_dict_pre_hook(everything),
                    owner.register_load_state_dict_pre_hook(everything),
                ]

    def priority(self, index: int) -> int:
        """Return how urgent parameter ``index`` is: below 0, and higher if it is needed earlier."""
        return -1 - self._first.get(index, len(self._order))

    def without(self) -> list[int]:
        """Return the positions that no module that has been called would wait for."""
        return [index for index in self._owners if index not in self._first]

    def pass_(self, name: str) -> None:
        """Wait for what the module ``name`` needs."""
        if name not in self._order:
            with self._lock:
                self._order.setdefault(name, len(self._order))
                self._arrange()
        positions = self._waits.get(name)
        if positions:
            self._wanted(positions)

    def pass_all(self) -> None:
        """Wait for everything: somebody reads or writes the whole model."""
        self._wanted(None)

    def close(self) -> None:
        """Remove every gate."""
        _remove(self._handles)

    def _arrange(self) -> None:
        """Find out anew which gate waits for what. The lock is held."""
        waits: dict[str, list[int]] = {}
        first: dict[int, int] = {}
        for index, owners in self._owners.items():
            names = {_called(owner, self._order) for owner in owners} - {None}
            for name in names:
                assert name is not None
                waits.setdefault(name, []).append(index)
            if names:
                first[index] = min(self._order[name] for name in names if name is not None)
        self._waits, self._first = waits, first


def _called(name: str, order: dict[str, int]) -> str | None:
    """Return the module itself if it has been called, else the nearest one above it that has."""
    while name not in order:
        if not name:
            return None
        name = name.rpartition(".")[0]
    return name


def _hooked(replica: nn.Module) -> Sequence[tuple[str, nn.Module]]:
    """Return the modules that get a gate: none at or below a compiled one but its wrapper.

    Hooks inside compiled code would be compiled with it, or cut it to pieces.
    """
    found: list[tuple[str, nn.Module]] = []
    closed: list[str] = []
    for name, module in replica.named_modules():
        if any(not above or name.startswith(f"{above}.") for above in closed):
            continue
        if getattr(module, "_compiled_call_impl", None) is not None:
            closed.append(name)
            continue
        if hasattr(module, "_orig_mod"):
            closed.append(name)
        found.append((name, module))
    return found


def _owners(lineup: Lineup) -> dict[int, list[str]]:
    """Return the modules that hold each parameter, by position; several if it is tied."""
    positions = {id(param): index for index, param in enumerate(lineup.params[0])}
    owners: dict[int, list[str]] = {index: [] for index in range(len(lineup.names))}
    for name, module in lineup.modules[0].named_modules():
        for param in module._parameters.values():
            if param is not None:
                owners[positions[id(param)]].append(name)
    return owners


def _remove(handles: list[RemovableHandle]) -> None:
    while handles:
        handles.pop().remove()
