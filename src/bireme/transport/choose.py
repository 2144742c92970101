"""The best way from one node to another. Pure.

Called by the node room when a node has learned the addresses of a peer, and by ``bireme doctor``.
"""

from collections.abc import Iterable

from bireme.errors import ConfigError
from bireme.transport.address import SCHEMES, Address, parse_address

__all__ = ("best_address",)


def best_address(addresses: Iterable[str], machine: str, inproc_names: Iterable[str] = ()) -> str:
    """Return the fastest of a peer's addresses that reaches it from here.

    Args:
        addresses: What the peer listens at, in any order.
        machine: This process's `machine_token`; a local address of another machine is passed over,
            and so is one that does not say where it belongs.
        inproc_names: Names listening in this very process.

    Raises:
        ConfigError: None of them reaches the peer.

    Example:
        >>> peer = ["tcp://10.0.0.7:9000", "shm+unix://@bireme-7?machine=5f"]
        >>> best_address(peer, machine="5f"), best_address(peer, machine="aa")
        ('shm+unix://@bireme-7?machine=5f', 'tcp://10.0.0.7:9000')
    """
    parsed = [parse_address(text) for text in addresses]
    names = frozenset(inproc_names)
    usable = [address for address in parsed if _reaches(address, machine, names)]
    if not usable:
        listed = ", ".join(map(str, parsed)) or "none"
        raise ConfigError(
            f"no address of the peer reaches it from here (machine {machine}): {listed}; "
            "let it listen at a tcp:// address too"
        )
    return str(min(usable, key=lambda address: SCHEMES.index(address.scheme)))


def _reaches(address: Address, machine: str, inproc_names: frozenset[str]) -> bool:
    if address.scheme == "tcp":
        return True
    if address.scheme == "inproc":
        return address.name in inproc_names
    return bool(machine) and address.machine == machine
