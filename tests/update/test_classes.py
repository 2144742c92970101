"""Names of optimizers: torch's, and import paths that must be allowed before they are imported."""

import sys

import pytest
import torch
from tests.update import custom

from bireme.errors import BiremeError, ConfigError, UnsupportedError
from bireme.kvstore import LocalStore, OptimizerSpec
from bireme.update.classes import (
    arguments_of,
    canonical_name,
    check_allowed,
    class_named,
    is_of_torch,
    name_of,
)

HERE = custom.__name__


def test_a_class_by_import_path():
    assert class_named(f"{HERE}:Lion") is custom.Lion
    assert name_of(custom.Lion) == f"{HERE}:Lion"
    assert not is_of_torch(name_of(custom.Lion))
    assert canonical_name(f"{HERE}:Lion") == f"{HERE}:Lion"
    spec = OptimizerSpec(f"{HERE}:Lion", {"lr": 0.5}, lr_mult={"b": 2.0})
    assert spec.title == f"{HERE}:Lion"
    assert spec.arguments("b") == {"lr": 1.0, "betas": (0.9, 0.99), "weight_decay": 0.0}


@pytest.mark.parametrize(
    "name",
    [
        f"{HERE}:function",
        f"{HERE}:NoOptimizer",
        f"{HERE}:torch",
        f"{HERE}:_Simple",
        f"{HERE}:__getattr__",
        f"{HERE}:Missing",
        f"{HERE}:Secret",
        f"{HERE}:Lion.change",
        f"{HERE}:Lion:Lion",
        f"{HERE}.Lion",
        "torch.optim:Optimizer",
        "builtins:eval",
        "os:system",
        ":Lion",
        "mypkg:",
        "..:Lion",
        "a b:Lion",
        "no.such.module:Lion",
        "x" * 300 + ":Lion",
        "__builtins__",
        "Optimizer",
        b"SGD",
        None,
    ],
)
def test_what_names_no_optimizer(name):
    with pytest.raises(ConfigError):
        class_named(name)


def test_allowed_are_torchs_and_what_the_job_says():
    check_allowed("SGD", ())
    check_allowed("mypkg.optim:Lion", {"mypkg.optim"})
    check_allowed("mypkg.optim:Lion", {"mypkg.optim:Lion"})
    for allowed in ((), {"mypkg"}, {"mypkg.optim:Tiger"}, {"Lion"}):
        with pytest.raises(ConfigError, match=r"--allow-optimizer mypkg\.optim .*BIREME_ALLOWED"):
            check_allowed("mypkg.optim:Lion", allowed)
    assert "mypkg" not in sys.modules


def test_a_module_that_fails_to_load(tmp_path, monkeypatch):
    (tmp_path / "bireme_test_broken.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="division by zero"):
        class_named("bireme_test_broken:Lion")


def test_closures_are_refused_under_any_name():
    for name in ("lbfgs", "torch.optim:LBFGS", "torch.optim.lbfgs:LBFGS"):
        with pytest.raises(UnsupportedError, match="closure"):
            class_named(name)


def test_arguments_without_a_default_must_be_given():
    assert arguments_of(custom.Clipped).names == ("limit", "lr")
    assert arguments_of(custom.Clipped).defaults == {"lr": 0.1}
    with pytest.raises(ConfigError, match="limit"):
        OptimizerSpec(f"{HERE}:Clipped")
    with pytest.raises(ConfigError, match="no weight_decay"):
        OptimizerSpec(f"{HERE}:Clipped", {"limit": 1.0}, wd_mult={"a": 0.0})


def test_an_optimizer_around_another_cannot_be_described():
    inner = torch.optim.SGD([torch.zeros(2)], lr=0.1)
    with pytest.raises(BiremeError):
        OptimizerSpec.from_optimizer(custom.Wrapper(inner))


def test_a_store_in_the_process_runs_it_without_leave():
    store = LocalStore()
    store.init("w", torch.zeros(2))
    store.set_optimizer(custom.Lion([torch.zeros(2)], lr=0.5))
    store.push("w", torch.ones(2))
    assert store.pull("w").tolist() == [-0.5, -0.5]
