"""What this machine offers: packages, devices, addresses, transports, a free port.

Called by ``bireme doctor``. Nothing is taken on trust: a transport works when a frame has gone
through it.
"""

import importlib
import importlib.metadata
import importlib.util
import os
import platform
import socket
import threading
from collections.abc import Mapping

from bireme.errors import BiremeError, TransportError
from bireme.transport.base import Arrived, Frame, Transport, TransportOptions
from bireme.transport.inproc import InprocHub, InprocTransport
from bireme.transport.tcp import SocketTransport
from bireme.version import __version__
from bireme.wire.codec import encode
from bireme.wire.messages import StatusRequest

__all__ = ("TRANSPORTS", "facts", "try_shared_collectives", "try_transport")

_PACKAGES = ("torch", "numpy", "numba", "msgspec", "safetensors", "rich")
_STEP_S = 0.1
_LIMIT_S = 5.0

TRANSPORTS: Mapping[str, str] = {
    "inproc": "inproc://doctor",
    "shm": "shm+unix://",
    "unix": "unix://",
    "tcp": "tcp://127.0.0.1:0",
}
"""The transports, fastest first, and where each is tried."""


def facts(env: Mapping[str, str]) -> dict[str, str]:
    """Return what a report of a problem needs to say about this machine.

    Args:
        env: Such as ``os.environ``.
    """
    found = {
        "bireme": __version__,
        "python": f"{platform.python_version()} on {platform.platform()}",
        "cpu cores": str(_num_cores()),
    }
    for package in _PACKAGES:
        found[package] = _package_version(package)
    found["gpus"] = _gpus()
    found["threads"] = f"OMP_NUM_THREADS={env.get('OMP_NUM_THREADS', 'unset')}"
    found["host"] = socket.gethostname()
    found["addresses"] = ", ".join(_addresses())
    found["port"] = f"{_free_port()} is free, for a scheduler of your own"
    return found


def try_transport(name: str) -> str:
    """Return ``"works"``, or why the transport does not.

    Args:
        name: One of ``TRANSPORTS``.

    Example:
        >>> try_transport("inproc")
        'works'
    """
    try:
        _send_a_frame(name, TRANSPORTS[name])
    except (BiremeError, OSError) as error:
        return f"does not work: {error}"
    return "works"


def try_shared_collectives() -> str:
    """Return ``"works: ..."``, or why processes here cannot exchange tensors in shared memory."""
    if importlib.util.find_spec("numpy") is None:
        return "does not work: numpy is not installed"
    # With numpy, which the launcher does without.
    verdict: str = importlib.import_module("bireme.collective.bank.trial").try_bank()
    return verdict


def _send_a_frame(name: str, address: str) -> None:
    server, client = _pair(name)
    with server, client:
        arrived = threading.Event()
        reader = threading.Thread(target=_read, args=(server, arrived), daemon=True)
        bound = server.listen(address)
        reader.start()
        link = client.connect(bound, _LIMIT_S)
        link.send(Frame(encode(StatusRequest(0))))
        client.poll(0.0)
        works = arrived.wait(_LIMIT_S)
        arrived.set()
        server.wake()
        reader.join()
    if not works:
        raise TransportError(f"no frame arrived within {_LIMIT_S:g} s")


def _read(server: Transport, arrived: threading.Event) -> None:
    """Drive the listening side until a frame has come, or nobody waits for one any more."""
    while not arrived.is_set():
        for event in server.poll(_STEP_S):
            if isinstance(event, Arrived):
                event.frame.release()
                arrived.set()


def _pair(name: str) -> tuple[Transport, Transport]:
    if name == "inproc":
        hub = InprocHub()
        return InprocTransport(hub), InprocTransport(hub)
    options = TransportOptions(secret=os.urandom(32), job="doctor")
    return SocketTransport(options), SocketTransport(options)


def _package_version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed; try: pip install bireme"


def _gpus() -> str:
    if importlib.util.find_spec("torch") is None:
        return "unknown without torch"
    cuda = importlib.import_module("torch.cuda")
    names = [f"gpu({i}) {cuda.get_device_name(i)}" for i in range(cuda.device_count())]
    return ", ".join(names) or "none; cpu(0), cpu(1), ... work everywhere"


def _num_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _addresses() -> list[str]:
    """Return this machine's addresses: what its name stands for, and what packets leave from."""
    found = {"127.0.0.1": None}
    try:
        for *_, sockaddr in socket.getaddrinfo(socket.gethostname(), None):
            found[str(sockaddr[0])] = None
    except OSError:
        found["(the host's name has no address)"] = None
    try:
        # No packet is sent: connecting a datagram socket only chooses the way out.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))
            found[str(probe.getsockname()[0])] = None
    except OSError:
        found["(no way out of this machine)"] = None
    return list(found)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])
