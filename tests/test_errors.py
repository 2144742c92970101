"""The error tree is what the module's header says."""

import inspect

from bireme import errors


def test_every_error_has_one_root():
    classes = [c for _, c in inspect.getmembers(errors, inspect.isclass)]
    assert all(issubclass(c, errors.BiremeError) for c in classes)
    assert {c.__name__ for c in classes} == set(errors.__all__)


def test_the_header_lists_every_error():
    assert errors.__doc__ is not None
    for name in errors.__all__:
        assert name in errors.__doc__


def test_callers_may_catch_the_builtin_kin():
    assert issubclass(errors.ConfigError, ValueError)
    assert issubclass(errors.UnsupportedError, NotImplementedError)
    assert issubclass(errors.StateError, RuntimeError)
