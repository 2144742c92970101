import json

import pytest

from bireme.data.course import Course, GlobalBatch
from bireme.errors import ConfigError


def course_of(n=10, **options):
    course = Course(n, **{"seed": 0, "shuffle": False, **options})
    course.begin()
    return course


def dealt(course, total):
    place = slice(course.dealt, course.dealt + total)
    course.deal(total)
    return course.samples(place)


def test_portions_lie_side_by_side():
    batch = GlobalBatch(10, 6, [3, 0, 2, 1])
    assert [batch.place(part) for part in range(4)] == [
        slice(10, 13),
        slice(13, 13),
        slice(13, 15),
        slice(15, 16),
    ]
    assert batch.end == 16


def test_a_batch_that_is_too_small_is_whole_everywhere():
    batch = GlobalBatch(10, 1, [1, 1])
    assert batch.is_whole_everywhere
    assert batch.place(0) == batch.place(1) == slice(10, 11)


def test_an_epoch_has_each_sample_once_and_each_its_own_order():
    course = course_of(100, shuffle=True)
    first = dealt(course, 100)
    assert course.rest == 0
    assert sorted(first) == list(range(100))
    course.begin()
    assert dealt(course, 100) == first
    assert course.go_to(1)
    course.begin()
    assert dealt(course, 100) != first


def test_going_to_the_same_epoch_changes_nothing():
    course = course_of()
    course.deal(4)
    assert not course.go_to(0)
    assert (course.rest, course.length) == (6, 10)


@pytest.mark.parametrize("is_over", [False, True])
def test_what_a_worker_lost_comes_again_at_the_end(is_over):
    course = course_of()
    batch = GlobalBatch(0, 4, [2, 2])
    course.deal(10 if is_over else 4)
    course.keep_lost(batch, [False, True], is_over=is_over)
    if is_over:
        course.go_to(1)
        course.begin()
    assert course.length == 12
    assert dealt(course, course.rest)[-2:] == [0, 1]
    course.begin()
    assert course.length == 10


@pytest.mark.parametrize(
    ("batch", "present"),
    [(GlobalBatch(0, 4, [2, 2]), [True, True]), (GlobalBatch(0, 1, [1, 1]), [True, False])],
)
def test_nothing_is_lost_that_another_worker_has(batch, present):
    course = course_of()
    course.deal(4)
    course.keep_lost(batch, present, is_over=False)
    assert course.length == 10


def test_it_goes_on_where_it_was_saved():
    course = course_of(10, shuffle=True)
    course.go_to(3)
    course.begin()
    before = dealt(course, 4)
    course.keep_lost(GlobalBatch(0, 4, [2, 2]), [False, True], is_over=False)
    state = json.loads(json.dumps(course.state(4)))
    assert state["extra"] == before[:2]
    resumed = course.resumed(state)
    assert (resumed.epoch, resumed.length) == (3, 8)
    resumed.begin()
    assert dealt(resumed, 8) == dealt(course, 8)
    resumed.begin()
    assert resumed.length == 10


@pytest.mark.parametrize(
    "change",
    [{"epoch": -1}, {"used": 13}, {"used": 1.5}, {"extra": [10]}, {"again": [-1]}],
)
def test_a_place_that_is_none_is_refused(change):
    course = course_of()
    state = {"epoch": 0, "used": 0, "extra": [1, 2], "again": []}
    course.resumed(state)
    with pytest.raises(ConfigError):
        course.resumed({**state, **change})


def test_what_is_used_cannot_be_more_than_was_handed_out():
    course = course_of()
    course.deal(6)
    assert [course.used_after(consumed, 4) for consumed in range(3)] == [0, 4, 6]
    with pytest.raises(ConfigError, match="handed out only 6 samples"):
        course.used_after(3, 4)
