"""What the compiler must not look into."""

import inspect
import subprocess
import sys

import torch

from bireme.horovod.torch.untraced import untraced


def seen(number):
    """Make a function that tells whether it is being traced, and calls one that does."""

    def inner(x):
        return torch.compiler.is_compiling() or torch._dynamo.is_compiling()

    @untraced
    def function(x, *, name="n"):
        return x + number, (inner(x), name)

    return function


def test_a_compiled_function_calls_it_as_it_is():
    functions = [seen(number) for number in range(20)]

    @torch.compile(backend="eager")
    def compiled(x):
        found = []
        for function in functions:
            x, told = function(x * 2, name="m")
            found.append(told)
        return x, found

    for _ in range(2):
        result, found = compiled(torch.zeros(1))
        assert found == [(False, "m")] * 20
        assert result.item() == sum(number * 2 ** (19 - number) for number in range(20))


def test_it_looks_like_the_function_and_keeps_the_compiler_out_of_the_process():
    function = seen(1)
    assert function.__name__ == "function"
    assert list(inspect.signature(function).parameters) == ["x", "name"]
    code = (
        "import sys, torch, bireme.horovod.torch as hvd; hvd.init();"
        "hvd.allreduce(torch.ones(1)); print('torch._dynamo' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "False\n"
