"""Init, shutdown, and who am I: what ``horovod.common.basics`` answers."""

from collections.abc import Iterable, Mapping, Sequence

import torch

from bireme.collective import ReduceOp, Topology
from bireme.errors import ConfigError
from bireme.horovod.common.exceptions import NotInitialized
from bireme.horovod.common.process_sets import ProcessSet, check_sets, prepare
from bireme.horovod.session import CURRENT, Session

__all__ = ("HorovodBasics",)

_DYNAMIC = "DYNAMIC"


class HorovodBasics:
    """The functions of a job as a whole.

    Args:
        session: Whose job it is.
    """

    Average = int(ReduceOp.AVERAGE)
    Sum = int(ReduceOp.SUM)
    Adasum = int(ReduceOp.ADASUM)
    Min = int(ReduceOp.MIN)
    Max = int(ReduceOp.MAX)
    Product = int(ReduceOp.PRODUCT)

    def __init__(self, session: Session = CURRENT) -> None:
        self._session = session

    def init(
        self,
        comm: Sequence[int] | None = None,
        process_sets: Iterable[ProcessSet] | str | None = None,
    ) -> None:
        """Start: meet the other processes of the job. A second call while it is up does nothing.

        Args:
            comm: Ranks that form a job of their own; None: all.
            process_sets: Sets to make known; ``"dynamic"``, as None, makes none. Sets may be added
                later either way.

        Raises:
            ConfigError: A ValueError; the environment or an argument is wrong.
            FileError: The timeline that the environment asks for cannot be written.
            HorovodInternalError: The other processes did not come.

        Guarantees:
            After an error this process is in no job.
        """
        if isinstance(process_sets, str) and process_sets.lower() != "dynamic":
            raise ConfigError(
                f"process_sets is a list of ProcessSet or 'dynamic', got {process_sets!r}"
            )
        if comm is not None and not isinstance(comm, Iterable):
            raise ConfigError(f"comm is a list of ranks; this is not an MPI build, got {comm!r}")
        sets = check_sets(() if isinstance(process_sets, str) else process_sets or ())
        if not self._session.start(comm or None):
            return
        try:
            prepare(sets)
            self._start_timeline_of(self._session.env)
        except BaseException:
            self._session.stop()
            raise

    def _start_timeline_of(self, env: Mapping[str, str]) -> None:
        timeline = env.get("HOROVOD_TIMELINE", "")
        if timeline and timeline.upper() != _DYNAMIC:
            self.start_timeline(timeline, env.get("HOROVOD_TIMELINE_MARK_CYCLES", "0") != "0")

    def shutdown(self) -> None:
        """Leave the job. Operations under way end with an error; ``init`` may be called again."""
        self._session.stop()

    def is_initialized(self) -> bool:
        """Return whether ``init`` has been called, and ``shutdown`` not since."""
        return self._session.is_up

    def start_timeline(self, file_path: str, mark_cycles: bool = False) -> None:
        """Record what happens to operations, in a file that chrome://tracing and Perfetto open.

        Args:
            file_path: Rank 0 writes it; with ``{rank}`` in its name every rank writes one. Whole
                JSON at any time.
            mark_cycles: Also mark the engine's rounds of work.

        Raises:
            NotInitialized: Before ``init``; a ValueError.
            FileError: The file cannot be written.
        """
        self._session.engine.start_timeline(file_path, mark_cycles)

    def stop_timeline(self) -> None:
        """End the recording; without one, do nothing."""
        self._session.engine.stop_timeline()

    def size(self) -> int:
        """Return the number of processes."""
        return self._place().size

    def local_size(self) -> int:
        """Return the number of processes on this machine."""
        return self._place().local_size

    def cross_size(self) -> int:
        """Return the number of machines that have a process of this local rank."""
        return self._place().cross_size

    def rank(self) -> int:
        """Return this process's number in the job."""
        return self._place().rank

    def local_rank(self) -> int:
        """Return this process's number on its machine, by which scripts choose a GPU."""
        return self._place().local_rank

    def cross_rank(self) -> int:
        """Return this machine's number among those that have a process of this local rank."""
        return self._place().cross_rank

    def is_homogeneous(self) -> bool:
        """Return whether every machine has as many processes."""
        return self._place().is_homogeneous

    def mpi_threads_supported(self) -> bool:
        """Raise: there is no MPI.

        Raises:
            ConfigError: Always, once initialised; a ValueError.
        """
        self._place()
        raise ConfigError("mpi_threads_supported: MPI is not enabled; Bireme does not use it")

    def mpi_enabled(self) -> bool:
        """Return False: MPI may start the processes, and does not carry their tensors."""
        return False

    def mpi_built(self) -> bool:
        """Return False."""
        return False

    def gloo_enabled(self) -> bool:
        """Return True: this is how scripts ask whether CPU operations work without MPI."""
        return True

    def gloo_built(self) -> bool:
        """Return True."""
        return True

    def nccl_built(self) -> int:
        """Return the version of NCCL that torch brings, as 21803 for 2.18.3; 0: none."""
        if not (torch.cuda.is_available() and torch.distributed.is_nccl_available()):
            return 0
        major, minor, patch = torch.cuda.nccl.version()[:3]
        return int(major) * 10000 + int(minor) * 100 + int(patch)

    def ddl_built(self) -> bool:
        """Return False."""
        return False

    def ccl_built(self) -> bool:
        """Return False."""
        return False

    def cuda_built(self) -> bool:
        """Return whether torch was built with CUDA."""
        return torch.version.cuda is not None

    def rocm_built(self) -> bool:
        """Return whether torch was built with ROCm."""
        return torch.version.hip is not None

    def _get_process_set_ids_and_ranks(self) -> dict[int, list[int]]:
        sets = self._session.engine.process_sets()
        return {number: list(ranks) for number, ranks in sets.items()}

    def _place(self) -> Topology:
        if not self._session.is_up:
            raise NotInitialized
        return self._session.topology
