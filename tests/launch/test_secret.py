"""A job's secret is random and its file is its owner's."""

import pytest

from bireme.errors import ConfigError
from bireme.launch.secret import keep_secret, new_secret


def test_no_two_jobs_have_the_same():
    assert new_secret() != new_secret()
    assert len(new_secret()) == 64


def test_a_file_is_made_for_its_owner_only_and_kept(tmp_path):
    path = keep_secret(tmp_path / "secret")
    assert path.stat().st_mode & 0o777 == 0o600
    text = path.read_text()
    assert len(text.strip()) == 64
    assert keep_secret(path) == path
    assert path.read_text() == text


def test_a_file_that_others_can_read_is_refused(tmp_path):
    path = tmp_path / "secret"
    path.write_text("0123456789abcdef")
    path.chmod(0o644)
    with pytest.raises(ConfigError, match=r"\(mode 644\); try: chmod 600"):
        keep_secret(path)


def test_a_place_that_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot keep the job's secret"):
        keep_secret(tmp_path / "missing" / "secret")
