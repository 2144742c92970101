"""The life of a process between ``hvd.init()`` and ``hvd.shutdown()``.

Horovod's interface is one per process: every function finds its job without being told, so there
is one `Session`, in ``CURRENT``. Tests make their own.
"""

import atexit
import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import get_ident
from time import perf_counter
from typing import Any, NamedTuple

from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from bireme.collective import Collectives, Handle, Topology
from bireme.collective.assembly import Assembly
from bireme.collective.base import How
from bireme.core.negotiation.messages import Key
from bireme.errors import BiremeError, ConfigError, EngineClosed, RankLost
from bireme.horovod import environment
from bireme.horovod.common.exceptions import HorovodInternalError, NotInitialized
from bireme.settings.ranks import RankSettings

__all__ = ("CURRENT", "Pending", "Repeat", "Session")

_CYCLE_S = 0.001
"""Of the submitting thread's own time."""
_TICK_S = 0.0001
"""How exactly that is known: to ask for it takes as long as half a submission."""

_MOST_REPEATS = 4096
"""More than a model has parameters; names that are used once do not gather without end."""

_NOTHING = ((-1, ""), -1, 0.0)
"""What `Session` keeps of the latest submission, where there is none that counts."""

Pending = tuple[Handle, Callable[[Any], Any], object]
"""An operation that has been submitted and not yet synchronised: its handle, what makes the result
of ``synchronize`` from the engine's, and what is kept alive until then."""

Arguments = tuple[bool | None, int | None, float, float]
"""How a call says to reduce: ``average``, ``op``, and the factors before and after."""


Call = tuple[str | None, int | None, Arguments]
"""What a call says: the user's name, the number of the set, and the arguments."""


class Repeat(NamedTuple):
    """What a call came to: by what the engine knows the operation."""

    key: Key
    how: How


class Session:
    """One process's job.

    Args:
        read_env: Returns the environment of now.
    """

    def __init__(self, read_env: Callable[[], Mapping[str, str]] = environment.read) -> None:
        self._read_env = read_env
        self._engine: Collectives | None = None
        self._room = Assembly()
        self._unnamed: dict[tuple[str, int], Iterator[int]] = defaultdict(itertools.count)
        self._numbers = itertools.count()
        self._is_registered = False
        self._repeats: dict[Call, Repeat] = {}
        self._latest = _NOTHING
        self._read_again_s = float("-inf")
        self._read_by = 0
        self._thread_s = 0.0
        self._is_broken = False
        self.pending: dict[int, Pending] = {}
        """Operations by the number that the user holds."""
        self.owners: Any = WeakTensorKeyDictionary()
        """Which optimizer, weakly, reduces a parameter's gradient."""
        self.env: Mapping[str, str] = {}
        """The environment as it was at ``init``."""

    @property
    def engine(self) -> Collectives:
        """The engine.

        Raises:
            NotInitialized: ``init`` has not been called, or ``shutdown`` has.
        """
        if self._engine is None:
            raise NotInitialized
        return self._engine

    @property
    def is_up(self) -> bool:
        """Whether ``init`` has been called."""
        return self._engine is not None

    @property
    def topology(self) -> Topology:
        """This process's place in the job; raises as ``engine``."""
        return self.engine.topology

    def note(self, error: BaseException) -> None:
        """Take note of an operation's error: after some, the next ``start`` begins a new job."""
        self._is_broken = self._is_broken or isinstance(error, EngineClosed | RankLost)

    def start(self, ranks: Sequence[int] | None = None) -> bool:
        """Meet the other processes and start the engine.

        Args:
            ranks: Which ranks of the job take part, all that call this alike; None: all.

        Returns:
            Whether anything was done; False when it is up already, and no process of it has left.

        Raises:
            ConfigError: The environment contradicts itself, or this rank is not among ``ranks``.
            HorovodInternalError: The other processes did not come, or were lost.
        """
        if self._is_broken:
            self.stop()
        if self._engine is not None:
            return False
        env = self._read_env()
        place = RankSettings.from_env(env)
        try:
            self._engine = self._room.start(place, env, environment.host_name(), ranks)
        except ConfigError:
            raise
        except (BiremeError, RuntimeError) as error:
            raise HorovodInternalError(f"Horovod initialization failed: {error}") from error
        self.env = env
        self._forget()
        if not self._is_registered:
            self._is_registered = True
            atexit.register(self.stop)
        return True

    def stop(self) -> None:
        """Shut the engine down; operations under way end with an error. Idempotent."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()
        self._forget()

    def number_of(self, key: Key, pending: Pending) -> int:
        """Return the number under which the user finds an operation again.

        Args:
            key: Its set, and its name there.
            pending: The operation.
        """
        number = next(self._numbers)
        now_s = perf_counter()
        if now_s > self._read_again_s or get_ident() != self._read_by:
            self._read_again_s, self._read_by = now_s + _TICK_S, get_ident()
            self._thread_s = time.thread_time()
        # In one piece: other threads submit too.
        self._latest = (key, number, self._thread_s)
        self.pending[number] = pending
        return number

    def submit_again(self, call: Call, tensor: Tensor) -> int | None:
        """Submit an all-reduce in place as it has been submitted before, and return its number.

        Args:
            call: What the call says.
            tensor: Without a graph.

        Returns:
            None if nothing has been done, as this call is not known to be like that one.

        Raises:
            ConfigError: The name is under way already.
        """
        try:
            repeat, engine = self._repeats.get(call), self._engine
        except TypeError:
            # It says something that cannot be remembered either.
            return None
        if repeat is None or engine is None:
            return None
        key, how = repeat
        if self._latest[0] == key:
            return None
        handle = engine.allreduce_again(key, tensor, tensor, how)
        return None if handle is None else self.number_of(key, (handle, _first, tensor))

    def remember(self, call: Call, repeat: Repeat) -> None:
        """Know an all-reduce that has been submitted, for `submit_again`."""
        if len(self._repeats) >= _MOST_REPEATS:
            self._repeats.clear()
        self._repeats[call] = repeat

    def forget_latest(self) -> None:
        """Take note that somebody knows the operation that was submitted last to be done."""
        self._latest = _NOTHING

    def name_of(self, kind: str, name: str | None, process_set: int) -> str:
        """Return what an operation is called among ranks; unnamed ones are counted.

        The count is of this kind in this set alone, so that ranks outside of the set, which make
        fewer calls, do not count differently.

        Raises:
            ConfigError: One of that name has only just been submitted, and nobody has asked for it
                since.
        """
        if name is None:
            return f"{kind}.noname.{next(self._unnamed[kind, process_set])}"
        whole = f"{kind}.{name}"
        latest = self._latest
        if latest[0] == (process_set, whole) and self._is_new(*latest[1:]):
            raise ConfigError(
                f"{whole} is under way already: synchronize it first, or use another name"
            )
        return whole

    def _is_new(self, number: int, submitted_s: float) -> bool:
        """Return whether an operation is of this moment.

        It may be done already. Horovod starts operations up to a millisecond later, and so tells
        a name that is used twice by mistake; that does not depend on the machine's load here.
        """
        return number in self.pending and time.thread_time() - submitted_s < _CYCLE_S

    def uncount(self, kind: str, name: str | None, process_set: int) -> None:
        """Take back the name that `name_of` gave last: the operation was refused.

        The other ranks may have done nothing wrong, and go on to count without it.
        """
        if name is None:
            counted = next(self._unnamed[kind, process_set])
            self._unnamed[kind, process_set] = itertools.count(counted - 1)

    def count_anew(self) -> None:
        """Count unnamed operations from 0 again; all processes do at the same time."""
        self._unnamed.clear()

    def _forget(self) -> None:
        self.pending.clear()
        self._repeats.clear()
        self.count_anew()
        self._latest = _NOTHING
        self._is_broken = False


def _first(results: list[Tensor]) -> Tensor:
    return results[0]


CURRENT = Session()
"""The job of this process."""
