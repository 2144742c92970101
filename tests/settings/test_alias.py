import pytest

from bireme.settings.alias import with_alias


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, "/b"),
        ({"PYTHONPATH": ""}, "/b"),
        ({"PYTHONPATH": "/a:/c"}, "/b:/a:/c"),
        ({"PYTHONPATH": "/a:/b:/c"}, "/b:/a:/c"),
    ],
)
def test_the_folder_comes_first_and_once(before, after):
    env = {"HOME": "/h", **before}
    assert with_alias(env, "/b") == {"HOME": "/h", "PYTHONPATH": after}
    assert with_alias(with_alias(env, "/b"), "/b") == with_alias(env, "/b")
    assert env == {"HOME": "/h", **before}
