"""From settings to running roles: opens transports, builds the state machines, drives them.

Called by ``kvstore.create``, by ``bireme.run_role`` and by the embedded cluster.
"""

import dataclasses
import gc
import importlib
import os
import socket
from pathlib import Path

from bireme.core.actions import EndJob
from bireme.core.member import Identity
from bireme.core.scheduler import SchedulerCore
from bireme.core.server import ServerCore
from bireme.core.worker import WorkerCore
from bireme.errors import ConfigError
from bireme.node.express import ServerExpress
from bireme.node.interface import address_of_interface
from bireme.node.parcels import cut_parcel
from bireme.node.relay import Relay
from bireme.node.runtime import Core, Runtime
from bireme.node.tables.values import WithTables
from bireme.node.tls import tls_contexts
from bireme.node.values import TorchSlotValues
from bireme.node.worker import WorkerClient
from bireme.observe.timeline import Timeline, path_of
from bireme.settings import JobSettings, NodeSettings, Security, TransportChoice
from bireme.settings.node import LEAST_SECRET
from bireme.transport.base import TransportOptions
from bireme.transport.tcp import SocketTransport
from bireme.types.choices import DeathPolicy
from bireme.types.nodes import Role
from bireme.version import __version__
from bireme.wire.limits import Limits
from bireme.wire.messages import JobConfig

__all__ = ("connect_worker", "identity_of", "job_config", "run_node")


def run_node(node: NodeSettings, job: JobSettings) -> EndJob:
    """Be a scheduler or a server until the job ends; return how it ended.

    Raises:
        ConfigError: The role is ``worker``, or an address cannot be listened at.
    """
    if node.role is Role.WORKER:
        raise ConfigError("a worker runs the user's script; it has no loop of its own")
    node = _with_host(node)
    if node.role is Role.SERVER:
        _prepare_optimizers()
    with _open_transport(node, job) as transport:
        core: Core
        if node.role is Role.SCHEDULER:
            _listen_as_scheduler(transport, node)
            core = SchedulerCore(job_config(node, job), host=_host(node), software=__version__)
        else:
            addresses = _listen_as_server(transport, node, job)
            allowed = job.importable_optimizers
            values = WithTables(TorchSlotValues(transport.allocate, allowed), allowed)
            core = ServerCore(identity_of(node, job, addresses), values)
        timeline = _timeline(node)
        runtime = Runtime(
            core,
            transport,
            scheduler=node.scheduler_address,
            name=str(node.node or node.role),
            payload_crc=job.payload_crc,
        )
        runtime.timeline = timeline
        if isinstance(core, ServerCore):
            runtime.take_express(ServerExpress(core, runtime))
        try:
            return runtime.run()
        finally:
            if timeline is not None:
                timeline.write()


def _timeline(node: NodeSettings) -> Timeline | None:
    if not node.timeline:
        return None
    rank = "" if node.rank is None else f" {node.rank}"
    return Timeline(path_of(node.timeline, str(node.role), node.rank), f"{node.role}{rank}")


def _prepare_optimizers() -> None:
    """Load what torch loads with its first optimizer, before a job can wait for it."""
    importlib.import_module("torch._dynamo")
    # A server's garbage collector would go through all of torch again and again, in vain.
    gc.freeze()


def connect_worker(node: NodeSettings, job: JobSettings) -> WorkerClient:
    """Return a worker's client; ``ready`` of it joins the job."""
    node = _with_host(node)
    relay = _relay(node, job)
    addresses = () if relay is None else relay.addresses
    core = WorkerCore(identity_of(node, job, addresses), cut=cut_parcel)
    transport = _open_transport(node, job)
    return WorkerClient(
        core,
        transport,
        node.scheduler_address,
        payload_crc=job.payload_crc,
        timeline=_timeline(node),
        relay=relay,
    )


def _relay(node: NodeSettings, job: JobSettings) -> Relay | None:
    """Listen as a relay would, unless it is known that there will be none.

    A job whose scheduler is on loopback has one machine only, and no link to spare.
    """
    if not job.relay or job.death_policy is not DeathPolicy.ABORT or node.is_on_loopback:
        return None
    transport = _open_transport(node, job)
    form = {TransportChoice.UNIX: "unix://", TransportChoice.TCP: _tcp(node)}
    address = transport.listen(form.get(job.transport, "shm+unix://"))
    return Relay(transport, (address,), payload_crc=job.payload_crc)


def identity_of(node: NodeSettings, job: JobSettings, addresses: tuple[str, ...]) -> Identity:
    """Return what a node tells the scheduler about itself."""
    return Identity(
        role=node.role,
        rank=node.rank,
        host=_host(node),
        pid=os.getpid(),
        num_workers=node.num_workers,
        num_servers=node.num_servers,
        addresses=addresses,
        software=__version__,
        bandwidth=node.bandwidth,
        link_mbps=node.link_mbps,
        start_timeout_s=job.start_timeout_s,
    )


def job_config(node: NodeSettings, job: JobSettings) -> JobConfig:
    """Return what the scheduler settles for everyone."""
    return JobConfig(
        num_workers=node.num_workers,
        num_servers=node.num_servers,
        num_shards=job.num_shards or node.num_workers,
        death_policy=job.death_policy,
        slice_bytes=job.slice_bytes,
        start_timeout_s=job.start_timeout_s,
        barrier_timeout_s=job.barrier_timeout_s,
        push_timeout_s=job.push_timeout_s,
        pull_timeout_s=job.pull_timeout_s,
        exit_timeout_s=job.exit_timeout_s,
        replace_timeout_s=job.replace_timeout_s,
        resend_timeout_s=job.resend_timeout_s,
        heartbeat_interval_s=job.heartbeat_interval_s,
        heartbeat_timeout_s=job.heartbeat_timeout_s,
        max_payload_bytes=job.max_payload_bytes,
        bundle_bytes=job.bundle_bytes,
        relay=job.relay,
        link_probe=job.link_probe,
    )


def _open_transport(node: NodeSettings, job: JobSettings) -> SocketTransport:
    tls_server, tls_client = tls_contexts(node)
    return SocketTransport(
        TransportOptions(
            secret=_secret(node),
            is_open=node.security is Security.OFF,
            job=node.job,
            identity={"role": str(node.role), "rank": -1 if node.rank is None else node.rank},
            window_bytes=job.window_bytes,
            limits=Limits(max_payload_bytes=job.max_payload_bytes),
            tls_server=tls_server,
            tls_client=tls_client,
        )
    )


def _secret(node: NodeSettings) -> bytes:
    if node.security is Security.OFF:
        return b""
    if node.secret:
        return node.secret.encode()
    path = Path(node.secret_file)
    try:
        mode = path.stat().st_mode & 0o777
        secret = path.read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"cannot read the job's secret: {error}") from error
    if mode & 0o077:
        raise ConfigError(
            f"others can read the secret in {path} (mode {mode:03o}); try: chmod 600 {path}"
        )
    if len(secret) < LEAST_SECRET:
        raise ConfigError(
            f"the secret in {path} must have at least {LEAST_SECRET} characters, got {len(secret)}"
        )
    return secret


def _with_host(node: NodeSettings) -> NodeSettings:
    if node.host or not node.interface:
        return node
    return dataclasses.replace(node, host=address_of_interface(node.interface))


def _host(node: NodeSettings) -> str:
    return node.host or socket.gethostname()


def _listen_as_scheduler(transport: SocketTransport, node: NodeSettings) -> None:
    if node.listen_fd is not None:
        listener = socket.socket(fileno=node.listen_fd)
        port = listener.getsockname()[1]
        if port != node.scheduler_port:
            listener.close()
            raise ConfigError(
                f"the inherited socket listens on port {port}, but nodes look for the scheduler "
                f"on port {node.scheduler_port}; unset BIREME_LISTEN_FD"
            )
        transport.adopt(listener)
        return
    transport.listen(f"tcp://{_bracketed(node.listen_host or '0.0.0.0')}:{node.scheduler_port}")


def _listen_as_server(
    transport: SocketTransport, node: NodeSettings, job: JobSettings
) -> tuple[str, ...]:
    forms = {
        TransportChoice.SHM: ("shm+unix://",),
        TransportChoice.UNIX: ("unix://",),
        TransportChoice.TCP: (_tcp(node),),
        TransportChoice.AUTO: ("shm+unix://", _tcp(node)),
    }
    return tuple(transport.listen(form) for form in forms[job.transport])


def _tcp(node: NodeSettings) -> str:
    return f"tcp://{_bracketed(node.listen_host or _outward_address(node))}:0"


def _outward_address(node: NodeSettings) -> str:
    """Return the address of this machine from which packets to the scheduler leave."""
    host, port = node.scheduler_host, node.scheduler_port
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise ConfigError(
            f"there is no way from here to the scheduler's host {host!r}: {error}; "
            "BIREME_SCHEDULER_HOST must be a name or address that every host knows"
        ) from error


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
