"""Contexts are read, printed and compared as users write them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import bireme
from bireme.errors import ConfigError
from bireme.types import Context, cpu, gpu, parse_contexts


def test_contexts_print_as_they_are_written():
    assert repr(cpu()) == "cpu(0)"
    assert repr(gpu(2)) == "gpu(2)"
    assert bireme.gpu(2) == gpu(2) != cpu(2)


@given(st.sampled_from(["cpu", "gpu"]), st.integers(0, 1000))
def test_repr_reads_back(kind, index):
    context = Context(kind, index)
    assert Context.parse(repr(context)) == context


@pytest.mark.parametrize(
    ("text", "expected"),
    [("cpu", cpu(0)), ("cuda:3", gpu(3)), ("gpu:1", gpu(1)), (" gpu(4) ", gpu(4))],
)
def test_parse(text, expected):
    assert Context.parse(text) == expected


@pytest.mark.parametrize("text", ["", "tpu(0)", "gpu(-1)", "gpu(1", "gpu 1", "0"])
def test_parse_refuses(text):
    with pytest.raises(ConfigError, match="cannot read"):
        Context.parse(text)


@pytest.mark.parametrize(("kind", "index"), [("tpu", 0), ("cpu", -1), ("gpu", 1.5), ("gpu", True)])
def test_bad_contexts_are_refused(kind, index):
    with pytest.raises(ConfigError):
        Context(kind, index)


@pytest.mark.parametrize(("context", "name"), [(cpu(3), "cpu"), (gpu(2), "cuda:2")])
def test_torch_reads_the_name(context, name):
    assert context.torch_name == name
    assert torch.device(context.torch_name).type in ("cpu", "cuda")


def test_the_gpus_option():
    assert parse_contexts("0,2") == [gpu(0), gpu(2)]
    assert parse_contexts(" 1 ") == [gpu(1)]
    assert parse_contexts("") == [cpu(0)]
    assert parse_contexts(None, num_cpus=3) == [cpu(0), cpu(1), cpu(2)]


@pytest.mark.parametrize("text", ["0;2", "a", "0,,1", "-1", "0,0"])
def test_the_gpus_option_refuses(text):
    with pytest.raises(ConfigError):
        parse_contexts(text)


@pytest.mark.parametrize("num_cpus", [0, -1, 1.5, True, "2", None])
def test_at_least_one_cpu_context(num_cpus):
    with pytest.raises(ConfigError, match="num_cpus must be an integer >= 1"):
        parse_contexts(None, num_cpus=num_cpus)


def test_a_number_is_no_list_of_gpus():
    with pytest.raises(ConfigError, match="gpus is text"):
        parse_contexts(0)
