"""Credit windows: how much payload one side of a link may have under way. Pure.

The receiver bounds its memory by a window. It reports released payload in portions of a quarter
window, not one by one; `SendWindow` knows that and so never waits for a report that will not come.
Called by every link.
"""

from bireme.errors import RemoteProtocolError

__all__ = ("ReceiveWindow", "SendWindow")


def _fits(size_bytes: int, under_way_bytes: int, window_bytes: int) -> bool:
    """Whether a payload may leave: it fits, or it is large and next to nothing is under way.

    Up to a quarter window may be released and unreported. So a payload above three quarters would
    wait for ever for an empty window; it goes when less than a quarter is under way.
    """
    if under_way_bytes + size_bytes <= window_bytes:
        return True
    return 4 * size_bytes > 3 * window_bytes and 4 * under_way_bytes < window_bytes


class SendWindow:
    """The sender's account.

    Args:
        window_bytes: What the peer allows, > 0.

    Example:
        >>> window = SendWindow(100)
        >>> window.allows(60)
        True
        >>> window.sent(60); window.allows(60)
        False
        >>> window.returned(60); window.allows(60)
        True
    """

    __slots__ = ("outstanding_bytes", "window_bytes")

    def __init__(self, window_bytes: int) -> None:
        self.window_bytes = window_bytes
        self.outstanding_bytes = 0

    def allows(self, size_bytes: int) -> bool:
        """Return whether a payload of this size may leave now; an empty one always may."""
        return not size_bytes or _fits(size_bytes, self.outstanding_bytes, self.window_bytes)

    def sent(self, size_bytes: int) -> None:
        """Count a payload that leaves."""
        self.outstanding_bytes += size_bytes

    def returned(self, size_bytes: int) -> None:
        """Count credit that came back.

        Raises:
            RemoteProtocolError: More came back than was sent.
        """
        if size_bytes > self.outstanding_bytes:
            raise RemoteProtocolError(
                f"the peer returned credit for {size_bytes} bytes, "
                f"but only {self.outstanding_bytes} are under way"
            )
        self.outstanding_bytes -= size_bytes


class ReceiveWindow:
    """The receiver's account.

    Args:
        window_bytes: What this side allows, > 0.

    Example:
        >>> window = ReceiveWindow(100)
        >>> window.received(20); window.received(10)
        >>> window.released(20), window.released(10)
        (0, 30)
    """

    __slots__ = ("_unreported_bytes", "unreleased_bytes", "window_bytes")

    def __init__(self, window_bytes: int) -> None:
        self.window_bytes = window_bytes
        self.unreleased_bytes = 0
        self._unreported_bytes = 0

    def received(self, size_bytes: int) -> None:
        """Count a payload that arrives, before memory is taken for it.

        Raises:
            RemoteProtocolError: The peer sent more than its window.
        """
        under_way_bytes = self.unreleased_bytes + self._unreported_bytes
        if size_bytes > self.window_bytes - under_way_bytes and not _fits(
            size_bytes, under_way_bytes, self.window_bytes
        ):
            raise RemoteProtocolError(
                f"the peer sent {size_bytes} bytes with {under_way_bytes} under way, "
                f"above its window of {self.window_bytes}"
            )
        self.unreleased_bytes += size_bytes

    def passed(self, size_bytes: int) -> int:
        """Count a payload that arrived and was given back at once; return as `released` does.

        Raises:
            RemoteProtocolError: As `received`.
        """
        under_way_bytes = self.unreleased_bytes + self._unreported_bytes
        if size_bytes > self.window_bytes - under_way_bytes:
            self.received(size_bytes)
            return self.released(size_bytes)
        self._unreported_bytes += size_bytes
        if 4 * self._unreported_bytes < self.window_bytes:
            return 0
        report_bytes, self._unreported_bytes = self._unreported_bytes, 0
        return report_bytes

    def released(self, size_bytes: int) -> int:
        """Count a payload given back and return the bytes to report to the sender now, or 0."""
        self.unreleased_bytes -= size_bytes
        self._unreported_bytes += size_bytes
        if 4 * self._unreported_bytes < self.window_bytes:
            return 0
        report_bytes, self._unreported_bytes = self._unreported_bytes, 0
        return report_bytes
