"""A whole job inside one process: scheduler and servers in threads, one worker.

For scripts that are started by plain ``python`` and ask for a distributed store all the same.
"""

import logging
import os
import threading
from collections.abc import Collection

from bireme.core.member import Identity
from bireme.core.scheduler import SchedulerCore
from bireme.core.server import ServerCore
from bireme.core.worker import WorkerCore
from bireme.errors import JobError
from bireme.node.parcels import cut_parcel
from bireme.node.runtime import Runtime
from bireme.node.tables.values import WithTables
from bireme.node.values import TorchSlotValues
from bireme.node.worker import WorkerClient
from bireme.settings import JobSettings
from bireme.transport.inproc import InprocHub, InprocTransport
from bireme.types.nodes import Role
from bireme.wire.messages import JobConfig

__all__ = ("EmbeddedCluster", "embedded_config")

_SCHEDULER = "inproc://scheduler"
_log = logging.getLogger("bireme.node")


class EmbeddedCluster:
    """Starts a scheduler and servers in threads of this process.

    Args:
        config: The job; its ``num_workers`` clients come from :meth:`client`.
        allowed_optimizers: As for :class:`~bireme.node.values.TorchSlotValues`.

    Guarantees:
        Nothing but threads: no socket, file or process. The threads end when every client has
        left, or when the process ends.
    """

    def __init__(self, config: JobConfig, allowed_optimizers: Collection[str] = ()) -> None:
        self._config = config
        self._allowed = allowed_optimizers
        self._hub = InprocHub()
        self._threads: list[threading.Thread] = []
        self._names = ("scheduler", *(f"server{rank}" for rank in range(config.num_servers)))
        self._start_scheduler()
        for rank in range(config.num_servers):
            self._start_server(rank)

    def client(self, rank: int) -> WorkerClient:
        """Return the client of worker ``rank``; ``ready`` of it joins the job."""
        core = WorkerCore(self._identity(Role.WORKER, rank), cut=cut_parcel)
        return WorkerClient(core, InprocTransport(self._hub), _SCHEDULER, inproc_names=self._names)

    def join(self, timeout_s: float) -> None:
        """Wait until scheduler and servers have ended.

        Raises:
            JobError: One of them goes on; names it.
        """
        for thread in self._threads:
            thread.join(timeout_s)
            if thread.is_alive():
                raise JobError(f"the embedded {thread.name} did not end within {timeout_s:g} s")

    def _start_scheduler(self) -> None:
        transport = InprocTransport(self._hub)
        transport.listen(_SCHEDULER)
        core = SchedulerCore(self._config, host="localhost")
        runtime = Runtime(core, transport, scheduler=_SCHEDULER, name="H")
        self._run("scheduler", runtime, transport)

    def _start_server(self, rank: int) -> None:
        transport = InprocTransport(self._hub)
        address = transport.listen(f"inproc://server{rank}")
        values = WithTables(TorchSlotValues(transport.allocate, self._allowed), self._allowed)
        core = ServerCore(self._identity(Role.SERVER, rank, (address,)), values)
        runtime = Runtime(
            core, transport, scheduler=_SCHEDULER, name=f"S[{rank}]", inproc_names=self._names
        )
        self._run(f"server {rank}", runtime, transport)

    def _identity(self, role: Role, rank: int, addresses: tuple[str, ...] = ()) -> Identity:
        return Identity(
            role=role,
            rank=rank,
            host="localhost",
            pid=os.getpid(),
            num_workers=self._config.num_workers,
            num_servers=self._config.num_servers,
            addresses=addresses,
            start_timeout_s=self._config.start_timeout_s,
        )

    def _run(self, name: str, runtime: Runtime, transport: InprocTransport) -> None:
        def main() -> None:
            with transport:
                ended = runtime.run()
            if ended.exit_code:
                _log.error("the embedded %s ended: %s", name, ended.text)

        thread = threading.Thread(target=main, name=f"bireme {name}", daemon=True)
        self._threads.append(thread)
        thread.start()


def embedded_config(job: JobSettings, num_workers: int = 1, num_servers: int = 1) -> JobConfig:
    """Return the configuration of an embedded job with the limits of ``job``."""
    return JobConfig(
        num_workers=num_workers,
        num_servers=num_servers,
        num_shards=job.num_shards or num_workers,
        slice_bytes=job.slice_bytes,
        barrier_timeout_s=job.barrier_timeout_s,
        push_timeout_s=job.push_timeout_s,
        pull_timeout_s=job.pull_timeout_s,
        exit_timeout_s=job.exit_timeout_s,
        max_payload_bytes=job.max_payload_bytes,
        bundle_bytes=job.bundle_bytes,
    )
