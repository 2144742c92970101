"""Lines about the pairs of nodes."""

from bireme.launch.pairs import describe_pairs


def link(peer, scheme="tcp", sent=0, received=0):
    return {
        "peer": peer,
        "scheme": scheme,
        "address": f"{scheme}://10.0.0.7:9000",
        "sent_bytes": sent,
        "received_bytes": received,
    }


def test_one_line_for_each_pair_whoever_tells_of_it():
    reports = {
        "H": {"links": [link("S[0]", sent=1), link("W[0]", sent=999)]},
        "S[0]": {"links": [link("H"), link("W[0]", "shm+unix", 2_500, 3_400_000_000)]},
    }
    assert describe_pairs(reports) == [
        "S[0] - H by tcp (10.0.0.7:9000), 0 B to H, 1 B to S[0]",
        "W[0] - H by tcp (10.0.0.7:9000), 0 B to H, 999 B to W[0]",
        "W[0] - S[0] by shm+unix, 3.4 GB to S[0], 2.5 kB to W[0]",
    ]


def test_a_large_job_is_summed():
    links = [link(f"W[{rank}]", "tcp" if rank else "unix", 10, 20) for rank in range(100)]
    assert describe_pairs({"S[0]": {"links": links}}) == [
        "99 pairs by tcp, 3.0 kB in all",
        "1 pairs by unix, 30 B in all",
    ]


def test_a_node_of_an_older_version_tells_of_none():
    assert describe_pairs({"H": {}}) == []
