"""What a node's links are and have carried, for its report on itself.

A state machine knows who is at the other end of a link, by number; the transport knows by which
way, and counts. Called by :mod:`bireme.node.runtime` for every report that leaves.
"""

from collections.abc import Iterable, Mapping

from bireme.transport.base import Link

__all__ = ("with_links",)


def with_links(report: Mapping[str, object], links: Mapping[int, Link]) -> dict[str, object]:
    """Return ``report`` with ``links`` in the place of ``peers``.

    Args:
        report: A role's report. Its ``peers`` are pairs of a link's number and a node's name.
        links: The open links by number; what is closed is left out.

    Example:
        >>> with_links({"node": "S[0]", "peers": [[7, "W[0]"]]}, {})
        {'node': 'S[0]', 'links': []}
    """
    told = dict(report)
    peers = told.pop("peers", ())
    told["links"] = [
        _told(name, links[number])
        for number, name in (peers if isinstance(peers, Iterable) else ())
        if number in links
    ]
    return told


def _told(name: str, link: Link) -> dict[str, object]:
    counts = link.statistics()
    return {
        "peer": name,
        "scheme": link.remote.partition("://")[0],
        "address": link.remote,
        "sent_bytes": counts.sent_bytes,
        "received_bytes": counts.received_bytes,
    }
