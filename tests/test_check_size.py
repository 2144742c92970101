"""The size gate sees what it is there to see."""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "tools" / "check_size.py"


@pytest.fixture
def gate():
    spec = importlib.util.spec_from_file_location("check_size", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "tests").mkdir()
    return tmp_path


def check(gate, tree):
    return gate.main([str(tree / "src"), str(tree / "tests")])


def test_a_tested_small_module_passes(gate, tree):
    (tree / "src" / "oar.py").write_text("def pull():\n    return 1\n")
    (tree / "tests" / "test_oar.py").write_text("")
    assert check(gate, tree) == 0


def test_a_module_without_a_test_fails(gate, tree, capsys):
    (tree / "src" / "oar.py").write_text("def pull():\n    return 1\n")
    assert check(gate, tree) == 1
    assert "oar.py: no test" in capsys.readouterr().out


def test_plain_data_and_interfaces_need_no_test(gate, tree):
    interface = 'class Oar:\n    length: int\n    def pull(self):\n        """Pull."""\n'
    (tree / "src" / "oar.py").write_text(interface)
    assert check(gate, tree) == 0


def test_a_long_module_fails(gate, tree):
    (tree / "src" / "__init__.py").write_text("x = 1\n" * 501)
    assert check(gate, tree) == 1


def test_a_long_function_fails_and_its_docstring_does_not_count(gate, tree):
    docstring = '    """' + "words\n" * 60 + '    """\n'
    short = "def pull():\n" + docstring + "    return 1\n"
    (tree / "src" / "__init__.py").write_text(short)
    assert check(gate, tree) == 0
    (tree / "src" / "__init__.py").write_text("def pull():\n" + "    x = 1\n" * 51)
    assert check(gate, tree) == 1


def test_usage(gate):
    assert gate.main([]) == 2
