import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.placement.speeds import FAST_MBPS, agreed, doubtful, turns

HOSTS = [f"h{i}" for i in range(40)]


@given(st.integers(1, 20), st.integers(0, 20), st.data())
def test_no_machine_has_two_parts_at_once_and_flows_end_at_servers(num_serving, num_others, data):
    serving, others = HOSTS[:num_serving], HOSTS[20 : 20 + num_others]
    wanted = set(data.draw(st.lists(st.sampled_from([*serving, *others]))))
    rounds = turns(serving, others, wanted)
    assert len(rounds) <= 10
    measured = []
    for each in rounds:
        parts = [host for turn in each for host in (turn.hub, *turn.spokes)]
        assert len(parts) == len(set(parts))
        for turn in each:
            assert turn.hub in wanted
            assert turn.spokes
            assert turn.hub in serving or set(turn.spokes) <= set(serving)
            measured.append(turn.hub)
    assert len(measured) == len(set(measured))
    if 1 < num_serving + num_others <= 8:
        assert set(measured) == wanted


def test_a_fast_server_is_filled_by_several_workers():
    (only,) = turns(["fast", "slow"], ["a", "b"], {"fast"})
    assert only[0].spokes == ("slow", "a", "b")


@pytest.mark.parametrize("noise", [0.9, 1.0])
def test_equal_links_that_were_measured_a_little_apart_are_equal(noise):
    found = agreed({"a": 100.0, "b": 100.0 * noise, "c": 50.0, "d": 50.0 * noise})
    assert found["a"] == found["b"]
    assert found["c"] == found["d"]
    assert found["a"] / found["c"] == pytest.approx(2.0)


@given(st.dictionaries(st.sampled_from(HOSTS), st.floats(0, 1e5), max_size=8))
def test_what_counts_is_near_what_was_measured(measured):
    found = agreed(measured)
    assert set(found) == {host for host, speed in measured.items() if speed > 0}
    for host, speed in found.items():
        true = min(measured[host], FAST_MBPS)
        assert 0.85 * true <= speed * 1.0001
        assert speed * 0.85 <= true * 1.0001


def test_fast_links_are_no_doubt():
    assert not doubtful({"a": 40_000.0, "b": 2_500.0})
    assert doubtful({"a": 40_000.0, "b": 1_000.0}) == {"b"}
    assert not doubtful({})
    assert agreed({}) == {}
