"""Says what a host offers to a job. Sent to each host by ``launch.survey`` and run there.

Imports nothing but the standard library, and nothing of the package's at the start: it must be
able to say that the package is not there. Reads requests from standard input, one JSON object in
a line, and answers each with one line. Ends when standard input does.
"""

import contextlib
import importlib
import importlib.metadata
import json
import os
import platform
import socket
import struct
import sys
import threading
import time
from typing import Any

__all__ = ("connections", "facts", "interfaces", "main", "serve_token")

_CONNECT_S = 3.0
_TOKEN_BYTES = 32
_SIOCGIFADDR = 0x8915


def facts(request: dict[str, Any]) -> dict[str, Any]:
    """Return what this host is and has.

    Args:
        request: ``packages`` to look for, ``path`` to look in as well, ``folder`` of the job, and
            the ``program`` that it runs.
    """
    sys.path[:0] = [entry for entry in request["path"] if entry not in sys.path]
    return {
        "host": socket.gethostname(),
        "python": platform.python_version(),
        "executable": sys.executable,
        "packages": {name: _version(name) for name in request["packages"]},
        "has_folder": os.path.isdir(request["folder"]),
        "interfaces": interfaces(),
        "now_s": time.time(),
    }


def _version(package: str) -> str:
    """Return a package's version, or nothing when it is not there."""
    if package == "bireme":
        # A checkout on PYTHONPATH has no metadata.
        try:
            return str(importlib.import_module("bireme.version").__version__)
        except (ImportError, AttributeError):
            return ""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def interfaces() -> list[list[str]]:
    """Return each address of this host behind the name of its interface, loopback left out."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                found.append([name, _address(asker, name)])
    with contextlib.suppress(OSError), open("/proc/net/if_inet6") as lines:
        for line in lines:
            digits, *_, name = line.split()
            found.append([name, socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits))])
    return [
        each for each in found if not each[1].startswith(("127.", "fe80:")) and each[1] != "::1"
    ]


def _address(asker: socket.socket, name: str) -> str:
    import fcntl

    request = struct.pack("256s", name.encode()[:15])
    return socket.inet_ntoa(fcntl.ioctl(asker, _SIOCGIFADDR, request)[20:24])


def serve_token(token: str) -> int:
    """Tell everybody who connects the token, and return the port to connect to.

    Raises:
        OSError: No port is free.
    """
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    server = socket.create_server(("", 0), family=family, backlog=1024, dualstack_ipv6=both)

    def answer() -> None:
        while True:
            with contextlib.suppress(OSError):
                peer, _ = server.accept()
                with peer:
                    peer.sendall(token.encode())

    threading.Thread(target=answer, daemon=True).start()
    return int(server.getsockname()[1])


def connections(targets: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Try to reach each target; return for each how it went.

    Args:
        targets: For each its ``names``, the first of which the user wrote, its ``port``, and the
            ``token`` by which it is told from others with the same address.
    """
    found: list[dict[str, str]] = [{} for _ in targets]

    def visit(index: int) -> None:
        found[index] = _connection(targets[index])

    visitors = [threading.Thread(target=visit, args=(index,)) for index in range(len(targets))]
    for visitor in visitors:
        visitor.start()
    for visitor in visitors:
        visitor.join()
    return found


def _connection(target: dict[str, Any]) -> dict[str, str]:
    first = ""
    for name in target["names"]:
        try:
            with socket.create_connection((name, target["port"]), _CONNECT_S) as link:
                mine, theirs = link.getsockname()[0], link.getpeername()[0]
                if _received(link) == target["token"]:
                    return {"from": _plain(mine), "to": _plain(theirs), "error": first}
                reason = f"{_plain(theirs)} is another host"
        except OSError as error:
            reason = str(error)
        first = first or f"{name}: {reason}"
    return {"error": first}


def _received(link: socket.socket) -> str:
    data = b""
    while len(data) < _TOKEN_BYTES and (more := link.recv(_TOKEN_BYTES)):
        data += more
    return data.decode(errors="replace")


def _plain(address: str) -> str:
    return address.removeprefix("::ffff:")


def _answer(request: dict[str, Any]) -> Any:
    if "facts" in request:
        return facts(request["facts"])
    if "token" in request:
        try:
            return {"port": serve_token(request["token"])}
        except OSError as error:
            return {"error": str(error)}
    return connections(request["connect"])


def main() -> None:
    """Answer until nobody asks any more."""
    for line in sys.stdin:
        sys.stdout.write(json.dumps(_answer(json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
