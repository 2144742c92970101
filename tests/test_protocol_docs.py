"""``docs/protocol.md`` says what the code does; run tools/make_protocol_docs.py to renew it."""

import importlib.util
from pathlib import Path

import pytest

from bireme.wire.messages import MESSAGES

SCRIPT = Path(__file__).parent.parent / "tools" / "make_protocol_docs.py"


@pytest.fixture(scope="module")
def maker():
    spec = importlib.util.spec_from_file_location("make_protocol_docs", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date(maker):
    assert maker.TARGET.read_text() == maker.page()
    assert maker.main(["--check"]) == 0


def test_every_message_is_there_and_somebody_takes_it(maker):
    page, takers = maker.page(), maker.takers()
    for kind, cls in MESSAGES.items():
        assert f"| {int(kind)} | `{cls.__name__}` | {', '.join(takers[cls])} |" in page


def test_a_death_ends_the_job_under_abort_only(maker):
    row = next(line for line in maker.death_table().splitlines() if "W[1] breaks" in line)
    assert [("ended" in cell) for cell in row.split("|")[2:5]] == [True, False, False]


def test_an_old_page_is_noticed(maker, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(maker, "TARGET", tmp_path / "protocol.md")
    assert maker.main(["--check"]) == 1
    assert maker.main([]) == 0
    assert maker.main(["--check"]) == 0
    assert maker.main(["--what"]) == 2
    assert "usage" in capsys.readouterr().err
