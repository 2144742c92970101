"""Process sets remember groups that failed in part."""

from tests.core.negotiation.world import allreduce

from bireme.core.negotiation.sets import ProcessSet


def test_a_group_is_doomed_until_its_last_member_has_failed():
    group = ProcessSet(0, (0, 1))
    group.doom_of(allreduce("alone"), "wrong")
    assert not group.doomed
    member = allreduce("g.0", group="g", group_size=3)
    group.doom_of(member, "wrong")
    assert (group.doomed["g"].message, group.doomed["g"].num_left) == ("wrong", 2)
    group.doom_of(member, "wrong")
    group.doom("g", "wrong", group.doomed["g"].num_left - 1)
    assert not group.doomed
    group.doom("g", "wrong", -1)
    assert not group.doomed
