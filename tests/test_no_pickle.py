"""Nothing that a file or a stranger sends can become code: pickle has one place in the package.

Horovod's users send any object and any function between the processes of one job; the module that
does that is named here (docs/decisions/0015).
"""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "bireme"
MODULES = sorted(PACKAGE.rglob("*.py"))
ALLOWED = {
    # Objects and functions as bytes, and which functions are sent with their code.
    "horovod/objects.py": {"cloudpickle"},
    "horovod/running.py": {"cloudpickle"},
}
FORBIDDEN = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "joblib"}
CODE = {"eval", "exec", "compile", "__import__"}


def faults(source):
    """Return what is wrong in a module's source."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [each.name for each in node.names if each.name.split(".")[0] in FORBIDDEN]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in FORBIDDEN:
            found.append(node.module)
        elif isinstance(node, ast.Call):
            found += call_faults(node)
    return found


def call_faults(call):
    name = ast.unparse(call.func)
    given = {each.arg: ast.unparse(each.value) for each in call.keywords}
    if name in CODE:
        return [name]
    if name == "torch.load" and given.get("weights_only") != "True":
        return [f"{name} without weights_only=True"]
    if given.get("allow_pickle", "False") != "False":
        return [f"{name} with allow_pickle"]
    if name.endswith("import_module") and call.args and isinstance(call.args[0], ast.Constant):
        return [each for each in [call.args[0].value] if each.split(".")[0] in FORBIDDEN]
    return []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_holds_no_pickle(path):
    allowed = ALLOWED.get(path.relative_to(PACKAGE).as_posix(), set())
    assert set(faults(path.read_text())) <= allowed


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import os, dill as d",
        "from pickle import loads",
        "import cloudpickle.compat",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "np.load(path, allow_pickle=True)",
        "eval(text)",
        "importlib.import_module('pickle')",
    ],
)
def test_the_search_finds_what_it_looks_for(source):
    assert faults(source)


def test_the_search_lets_the_rest_pass():
    assert faults("torch.load(p, weights_only=True); np.load(p); re.compile(x); model.eval()") == []
