"""A port scan fills no log."""

from bireme.transport.refusals import RefusalLog


def test_few_are_told_one_by_one(caplog):
    refusals = RefusalLog()
    refusals.add("no proof")
    assert caplog.messages == ["refused a connection: no proof"]


def test_many_are_counted(caplog):
    now_s = [0.0]
    refusals = RefusalLog(lambda: now_s[0])
    for _ in range(1000):
        refusals.add("no proof")
    assert len(caplog.messages) == 11
    assert "are counted for 10 s" in caplog.messages[-1]
    now_s[0] = 11.0
    refusals.add("no proof")
    assert caplog.messages[-2:] == [
        "refused 990 more connections",
        "refused a connection: no proof",
    ]
