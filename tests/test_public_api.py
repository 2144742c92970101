"""The public face: every ``__all__`` is true, and every public signature is pinned.

A change of a pinned signature is a change of contract. Look at it, then run
``python tests/test_public_api.py`` to write the new list.
"""

import importlib
import inspect
import pkgutil
from pathlib import Path

import pytest

import bireme

PINNED = Path(__file__).with_name("public_api.txt")
MODULES = [
    module.name
    for module in pkgutil.walk_packages(bireme.__path__, "bireme.")
    if not module.name.endswith("__main__")
]


def own_public_names(name):
    module = importlib.import_module(name)
    return {
        key
        for key, value in vars(module).items()
        if not key.startswith("_")
        and (inspect.isclass(value) or inspect.isfunction(value))
        and value.__module__ == name
    }


@pytest.mark.parametrize("name", MODULES)
def test_all_is_true(name):
    module = importlib.import_module(name)
    exported = getattr(module, "__all__", ())
    assert isinstance(exported, tuple)
    assert len(set(exported)) == len(exported)
    assert all(hasattr(module, key) for key in exported)
    assert set(exported) >= own_public_names(name)


def test_every_name_of_the_package_resolves():
    for name in bireme.__all__:
        assert getattr(bireme, name) is not None
    assert bireme.kv is bireme.kvstore
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = bireme.nothing


def signatures():
    """Return one line for each public callable of the package and of its public modules."""
    lines = []
    for place in ("bireme", *(f"bireme.{name}" for name in sorted(bireme.__all__))):
        value = bireme if place == "bireme" else getattr(bireme, place.removeprefix("bireme."))
        names = getattr(value, "__all__", ()) if inspect.ismodule(value) else ()
        for name in names:
            lines += describe(f"{place}.{name}", getattr(value, name))
    return sorted(set(lines))


def describe(path, value):
    if inspect.isclass(value):
        yield f"{path}{signature(value)}"
        for name, member in sorted(vars(value).items()):
            if name.startswith("_"):
                continue
            if isinstance(member, property):
                yield f"{path}.{name}: property"
            elif isinstance(member, staticmethod | classmethod):
                yield f"{path}.{name}{signature(member.__func__)}"
            elif inspect.isfunction(member):
                yield f"{path}.{name}{signature(member)}"
    elif callable(value):
        yield f"{path}{signature(value)}"


def signature(value):
    try:
        parameters = inspect.signature(value).parameters.values()
    except ValueError:
        return "(...)"
    # Annotations are the type checker's matter; names, order and defaults are the contract.
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in parameters]
    return str(inspect.Signature(bare)) if not _long_default(bare) else "(...)"


def _long_default(parameters):
    return any(" at 0x" in repr(p.default) for p in parameters)


def test_signatures_are_pinned():
    assert signatures() == PINNED.read_text().splitlines()


if __name__ == "__main__":
    PINNED.write_text("\n".join(signatures()) + "\n")
