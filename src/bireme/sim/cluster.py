"""A whole job in one process: scheduler, servers and workers under virtual time.

Runs the product's own state machines, so that what holds here holds there. Used by the scenario
tests and by tools that ask what a job would do.
"""

import random
from collections.abc import Callable

import msgspec

from bireme.core.actions import OpenRelay
from bireme.core.member import Identity
from bireme.core.relay import RelayCore
from bireme.core.scheduler import SchedulerCore
from bireme.core.server import ServerCore
from bireme.core.worker import WorkerCore
from bireme.sim.clock import Clock
from bireme.sim.network import Faults, Network
from bireme.sim.process import Process, Script, User
from bireme.sim.relaying import FloatSums
from bireme.sim.values import FloatValues, cut_payload
from bireme.types.nodes import SCHEDULER, NodeId, Role, server, worker
from bireme.wire.messages import JobConfig

__all__ = ("Cluster",)

_RESTART_S = 0.3


class Cluster:
    """A job and the network between its processes.

    Args:
        config: As the launcher would settle it.
        script: Makes each worker's user; called with the user and the rank.
        seed: Of all that is left to chance.
        faults: Of the network, from the beginning.
        check_codec: Send every message through the wire's codec.
        keep_history: Have the servers keep the total of every round.
        supervised: Start a worker again that has failed while the job goes on, as a launcher may.
        workers_per_host: So many share a machine, with a server as long as there are; 0: every
            process has one of its own.

    Example:
        >>> from bireme.core.calls import LeaveCall, ReadyCall
        >>> def script(user, rank):
        ...     yield [ReadyCall(user.number(), 10.0)]
        ...     yield [LeaveCall(user.number(), 10.0)]
        >>> cluster = Cluster(JobConfig(2, 1, 2), script)
        >>> cluster.run(until_s=10.0); cluster.exit_codes()
        {H: 0, S[0]: 0, W[0]: 0, W[1]: 0}
    """

    values_class: type[FloatValues] = FloatValues
    """What servers compute with."""

    def __init__(
        self,
        config: JobConfig,
        script: Callable[[User, int], Script],
        *,
        seed: int = 0,
        faults: Faults | None = None,
        check_codec: bool = True,
        keep_history: bool = False,
        supervised: bool = False,
        workers_per_host: int = 0,
    ) -> None:
        self._supervised = supervised
        self._workers_per_host = workers_per_host
        self.relays: list[RelayCore] = []
        """All that were opened."""
        self._keep_history = keep_history
        tosses = random.Random(seed)
        self.haste = 0.5
        """Part of the events that are offered to the short way of what repeats."""
        self._hastens = lambda: tosses.random() < self.haste
        # Without limits there is nothing to measure.
        measures = config.link_probe and faults is not None and faults.link_mbps is not None
        self.config = msgspec.structs.replace(config, link_probe=measures)
        self.clock = Clock()
        self.network = Network(self.clock, seed=seed, faults=faults, check_codec=check_codec)
        self.values: list[FloatValues] = []
        self.processes: dict[NodeId, Process] = {}
        """The newest process of each node."""
        self.gone: list[tuple[NodeId, Process]] = []
        """Processes that were replaced."""
        self._script = script
        self._num_processes = 0
        self._check_every = 4 * (config.num_workers + config.num_servers)
        self._start_scheduler()
        for rank in range(config.num_servers):
            self._start_server(rank)
        for rank in range(config.num_workers):
            self.start_worker(rank)

    def run(self, until_s: float) -> None:
        """Run until every process has ended, at most until ``until_s``."""
        self.clock.run(until_s, done=self.over, check_every=self._check_every)

    def over(self) -> bool:
        """Return whether every process has ended."""
        return not any(process.alive for process in self.processes.values())

    def start_worker(self, rank: int, script: Callable[[User, int], Script] | None = None) -> None:
        """Start a worker's process; one of the same rank that is there is replaced."""
        make = script or self._script
        core = WorkerCore(self._identity(Role.WORKER, rank), cut=cut_payload)
        self._begin(worker(rank), core, User(lambda user: make(user, rank)))

    def user(self, rank: int) -> User:
        """Return the user of a worker's newest process."""
        user = self.processes[worker(rank)].user
        assert user is not None
        return user

    def exit_codes(self) -> dict[NodeId, int | None]:
        """Return how the newest process of each node ended; ``None`` while or if it did not."""
        return {
            node: None if process.exit is None else process.exit.exit_code
            for node, process in sorted(self.processes.items())
        }

    def _start_scheduler(self) -> None:
        core = SchedulerCore(self.config, host="host-h")
        self._begin(SCHEDULER, core)

    def _start_server(self, rank: int) -> None:
        values = self.values_class()
        values.keep_history = self._keep_history
        self.values.append(values)
        core = ServerCore(self._identity(Role.SERVER, rank), values)
        self._begin(server(rank), core)

    def _begin(
        self,
        node: NodeId,
        core: SchedulerCore | ServerCore | WorkerCore,
        user: User | None = None,
    ) -> None:
        if node in self.processes:
            self.gone.append((node, self.processes[node]))
        process = Process(
            core,
            self.clock,
            self.network,
            self._find,
            user,
            self._ended,
            self._open_relay,
            self._hastens,
        )
        process.host = self._host(node.role, node.rank)
        self.processes[node] = process
        self.clock.after(0.0, process.start)

    def _find(self, node: NodeId) -> Process | None:
        """Return what a connection to ``node`` reaches: with a worker it is its relay."""
        process = self.processes.get(node)
        return process.relay if process is not None and node.role is Role.WORKER else process

    def _open_relay(self, process: Process, action: OpenRelay) -> None:
        core = RelayCore(
            action.neighbours, action.config, action.incarnation, action.view, FloatSums()
        )
        self.relays.append(core)
        process.relay = Process(core, self.clock, self.network, self.processes.get)
        process.relay.host = process.host
        self.clock.after(0.0, process.relay.start)

    def _ended(self, process: Process) -> None:
        if not self._supervised or process.exit is None or process.exit.exit_code == 0:
            return
        for node, newest in self.processes.items():
            if newest is process and node.role is Role.WORKER:
                self.clock.after(_RESTART_S, self._start_again, node.rank)

    def _start_again(self, rank: int) -> None:
        if self.processes[SCHEDULER].alive and not self.processes[worker(rank)].alive:
            self.start_worker(rank)

    def _identity(self, role: Role, rank: int) -> Identity:
        self._num_processes += 1
        return Identity(
            role=role,
            rank=rank,
            host=self._host(role, rank),
            addresses=("relay",) if role is Role.WORKER else ("server",),
            pid=self._num_processes,
            num_workers=self.config.num_workers,
            num_servers=self.config.num_servers,
            start_timeout_s=self.config.start_timeout_s,
        )

    def _host(self, role: Role, rank: int) -> str:
        if role is Role.SCHEDULER:
            return "host-h"
        if not self._workers_per_host:
            return f"host-{role.letter.lower()}{rank}"
        return f"host-{rank // self._workers_per_host if role is Role.WORKER else rank}"
