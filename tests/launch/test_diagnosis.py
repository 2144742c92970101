"""From reports to words."""

from bireme.launch.diagnosis import describe_job, is_well


def node(name, **changes):
    return {
        "node": name,
        "pid": 7,
        "host": "leda",
        "silent_s": 0.1,
        "linked": True,
        "addresses": [],
    } | changes


def scheduler(**changes):
    return {
        "phase": "running",
        "view": 3,
        "nodes": [node("S[0]"), node("W[0]"), node("W[1]")],
        "missing": [],
        "lost": [],
        "left": [],
        "barriers": [],
        "num_keys": 2,
        "keys": [[0, "w"], [1, 5]],
    } | changes


def server(*opened, bare=()):
    return {
        "num_slots": 4,
        "not_initialised": [list(each) for each in bare],
        "open": [
            {"key_id": key, "index": index, "round": 7, "missing": missing, "waiting_s": waiting_s}
            for key, index, missing, waiting_s in opened
        ],
    }


def test_nobody_waits():
    lines = describe_job(scheduler(), {"S[0]": server()}, {})
    assert lines == [
        "running, view 3, 2 keys",
        "S[0]   process 7 on leda, heard 0.1 s ago, 4 slices",
        "W[0]   process 7 on leda, heard 0.1 s ago",
        "W[1]   process 7 on leda, heard 0.1 s ago",
        "nobody waits for anybody",
    ]
    assert is_well(scheduler(), {})


def test_who_waits_for_whom_is_said_once_for_each_key():
    opened = [(0, 0, [1], 30.04), (0, 1, [1], 31.0), (1, 0, [0, 1], 2.0), (1, 1, [1], 0.01)]
    lines = describe_job(scheduler(), {"S[0]": server(*opened)}, {})
    assert lines[4:] == [
        "S[0]: round 7 of key 'w' waits for W[1] for 31.0 s",
        "S[0]: round 7 of key 5 waits for W[0], W[1] for 2.0 s",
    ]


def test_barriers_and_keys_without_a_value():
    barrier = {"name": "epoch", "number": 2, "missing": list(range(20)), "waiting_s": 3.0}
    lines = describe_job(
        scheduler(barriers=[barrier]), {"S[0]": server(bare=[(0, 0), (0, 1), (9, 0)])}, {}
    )
    assert lines[4].startswith("barrier 'epoch' waits for W[0], W[1]")
    assert lines[4].endswith("W[15] and 4 more for 3.0 s")
    assert lines[5] == "S[0]: nobody has initialised 9, 'w'"


def test_who_is_not_well():
    sick = scheduler(
        nodes=[node("S[0]", linked=False)],
        missing=["W[0]"],
        lost=["W[1] on leda: killed"],
        left=["W[2]"],
    )
    text = "\n".join(describe_job(sick, {}, {"S[0]": "no answer"}))
    for part in (
        "its link is down",
        "does not answer: no answer",
        "not there: W[0]",
        "dead: W[1] on leda: killed",
        "done: W[2]",
    ):
        assert part in text
    assert not is_well(sick, {})
    assert not is_well(scheduler(missing=["W[0]"]), {})
    assert is_well(scheduler(phase="forming", missing=["W[0]"]), {})
    assert not is_well(scheduler(), {"S[0]": "no answer"})
    assert not is_well(scheduler(nodes=[node("W[0]", silent_s=4.0)]), {})


def test_tables_are_counted_over_all_servers():
    scheduler = {
        "phase": "running",
        "view": 1,
        "num_keys": 1,
        "keys": [[3, "user"]],
        "nodes": [],
        "missing": [],
        "lost": [],
        "left": [],
        "barriers": [],
    }
    servers = {
        f"S[{rank}]": {
            "num_slots": 1,
            "open": [],
            "not_initialised": [],
            "tables": [
                {"key_id": 3, "rows": 10 + rank, "bytes": 500_000, "evictions": 2, "max_rows": 0}
            ],
        }
        for rank in range(2)
    }
    lines = describe_job(scheduler, servers, {})
    assert "table 'user': 21 rows in 1.0 MB, 10 to 11 on a server, 4 evicted" in lines


def test_links_and_what_shares_follow_are_told():
    speeds = [["leda", 50.4, "measured", 0.25], ["castor", 0.0, "unknown", 0.75]]
    lines = describe_job(scheduler(speeds=speeds), {"S[0]": server()}, {})
    assert lines[4:6] == [
        "link of leda: 50 Mbit/s, measured; servers there hold 25% of all bytes",
        "link of castor: speed unknown; servers there hold 75% of all bytes",
    ]
    # One machine has no links to speak of.
    assert len(describe_job(scheduler(speeds=speeds[:1]), {"S[0]": server()}, {})) == 5
