"""The meter counts what goes by."""

from bireme.transport.base import Arrived, Frame, TransportOptions
from bireme.transport.inproc import InprocHub, InprocTransport
from bireme.transport.metered import MeteredTransport
from bireme.wire.header import HEADER_BYTES, write_header


def test_reports_tell_bytes_frames_and_the_deepest_queue() -> None:
    hub = InprocHub()
    now_s = [10.0]
    server = InprocTransport(hub, TransportOptions(window_bytes=1000, identity={"rank": 4}))
    metered = MeteredTransport(InprocTransport(hub), clock=lambda: now_s[0])
    link = metered.connect(server.listen("inproc://server"), 1)
    metered.poll(0)
    for size_bytes in (600, 600, 300, 0):
        link.send(Frame(write_header(1, b"", size_bytes), [bytes(size_bytes)]))
    now_s[0] = 12.5
    (report,) = metered.report()
    assert (report.age_s, report.peer) == (2.5, {"rank": 4})
    assert report.deepest_queue_frames == 3
    assert report.largest_frame_bytes == 600
    assert report.statistics.frames_sent == 1
    assert report.statistics.sent_bytes == HEADER_BYTES + 600
    for event in server.poll(0):
        if isinstance(event, Arrived):
            event.frame.release()
    assert metered.report()[0].statistics.queued_frames == 0
    link.close()
    metered.poll(0)
    assert metered.report() == []
    metered.close()
    server.close()
