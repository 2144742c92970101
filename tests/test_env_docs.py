"""``docs/env.md`` says what the settings classes do; run tools/make_env_docs.py to renew it."""

import importlib.util
from pathlib import Path

import pytest

from bireme.settings import JobSettings, NodeSettings
from bireme.settings.variables import variables

SCRIPT = Path(__file__).parent.parent / "tools" / "make_env_docs.py"


@pytest.fixture(scope="module")
def maker():
    spec = importlib.util.spec_from_file_location("make_env_docs", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date(maker):
    assert maker.TARGET.read_text() == maker.page()
    assert maker.main(["--check"]) == 0


@pytest.mark.parametrize("cls", [NodeSettings, JobSettings])
def test_every_variable_is_explained(maker, cls):
    page = maker.page()
    for field, variable in variables(cls).items():
        assert f"| `{variable.name}` |" in page
        assert len(maker.docstrings(cls)[field]) > 15


def test_an_old_page_is_noticed(maker, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(maker, "TARGET", tmp_path / "env.md")
    assert maker.main(["--check"]) == 1
    assert maker.main([]) == 0
    assert maker.main(["--check"]) == 0
    assert maker.main(["--what"]) == 2
    assert "usage" in capsys.readouterr().err
