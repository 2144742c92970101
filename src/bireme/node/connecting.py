"""Connections that a role asks for, made by threads of their own: to connect may take seconds.

Called by :class:`~bireme.node.runtime.Runtime`, which hands the outcome to the role in its turn.
"""

import logging
import threading
from collections.abc import Callable, Sequence

from bireme.core import actions as act
from bireme.core import events as ev
from bireme.errors import AuthError, BiremeError
from bireme.transport.base import Link, Transport
from bireme.transport.choose import best_address
from bireme.transport.machine import machine_token
from bireme.types.nodes import NodeId

__all__ = ("Connector", "Report")

_log = logging.getLogger("bireme.node")

# The core asks again for as long as its own limit lasts; one attempt stays short.
_CONNECT_LIMIT_S = 5.0
_EXIT_REFUSED = 3

Report = Callable[[ev.Event | act.EndJob, Link | None], None]
"""Takes how an attempt has ended, and the link if there is one. Called by any thread."""


class Connector:
    """Reaches nodes by the best of their addresses.

    Args:
        transport: Makes the links.
        scheduler: The scheduler's address, for attempts that name none.
        name: Of the role, for the log.
        inproc_names: Names that can be reached within this process.
        report: Told of every attempt once: ``Linked``, ``ConnectFailed``, or the job's end where
            the peer does not take us for one of its job, which no further attempt can change.
    """

    def __init__(
        self,
        transport: Transport,
        scheduler: str,
        name: str,
        inproc_names: Sequence[str],
        report: Report,
    ) -> None:
        self._transport = transport
        self._scheduler = scheduler
        self._name = name
        self._inproc_names = tuple(inproc_names)
        self._report = report

    def begin(self, node: NodeId, number: int, addresses: Sequence[str]) -> None:
        """Begin to connect, and return.

        Args:
            node: Who is to be there.
            number: What the link will be called.
            addresses: Where it is; none for the scheduler's.
        """
        threading.Thread(
            target=self._connect,
            args=(node, number, addresses or (self._scheduler,)),
            name=f"{self._name} connects to {node}",
            daemon=True,
        ).start()

    def _connect(self, node: NodeId, number: int, addresses: Sequence[str]) -> None:
        address = addresses[0]
        if len(addresses) > 1:
            address = best_address(addresses, machine_token(), self._inproc_names)
        _log.info("%s reaches %s by %s", self._name, node, address)
        try:
            link = self._transport.connect(address, _CONNECT_LIMIT_S)
        except AuthError as error:
            # Trying again cannot help, and waiting would hide it.
            self._report(act.EndJob(_EXIT_REFUSED, str(error)), None)
        except BiremeError as error:
            self._report(ev.ConnectFailed(node, str(error)), None)
        else:
            self._report(ev.Linked(number, node), link)
