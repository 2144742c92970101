import pytest

from bireme.horovod.runner.common.util.env import get_env_rank_and_size


def test_what_the_launcher_said(monkeypatch):
    assert get_env_rank_and_size() == (0, 1)
    monkeypatch.setenv("HOROVOD_RANK", "1")
    with pytest.raises(ValueError, match="HOROVOD_SIZE is not"):
        get_env_rank_and_size()
    monkeypatch.setenv("HOROVOD_SIZE", "3")
    assert get_env_rank_and_size() == (1, 3)
