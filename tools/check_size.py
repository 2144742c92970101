"""Fail when a module or a function is too large, or a module has no test of its own.

Usage: ``python tools/check_size.py src/bireme tests``.

The limits are gates, not targets: modules aim at 80 to 250 lines, functions at under 20.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

MODULE_LINES = 500
FUNCTION_LINES = 50

# "path" or "path:function"; every entry says why it is right.
ALLOWED: frozenset[str] = frozenset()


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return how many lines ``function`` spans after its docstring."""
    has_docstring = ast.get_docstring(function) is not None
    body = function.body[1:] if has_docstring else function.body
    return (function.end_lineno or 0) - body[0].lineno + 1 if body else 0


def has_code(text: str) -> bool:
    """Return whether a function of ``text`` does anything: plain data and interfaces do not."""
    functions = (
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return any(code_lines(function) > 0 for function in functions)


def oversized(name: str, text: str) -> Iterator[str]:
    """Yield a line for each function of ``text`` that spans too many lines."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        size = code_lines(node)
        if size > FUNCTION_LINES and f"{name}:{node.name}" not in ALLOWED:
            yield f"{name}:{node.lineno} {node.name}: {size} lines > {FUNCTION_LINES}"


def problems(source: Path, tests: Path) -> Iterator[str]:
    """Yield a line for each rule that a file below ``source`` breaks."""
    for path in sorted(source.rglob("*.py")):
        name = path.relative_to(source).as_posix()
        text = path.read_text()
        lines = text.count("\n")
        if lines > MODULE_LINES and name not in ALLOWED:
            yield f"{name}: {lines} lines > {MODULE_LINES}"
        test = tests / path.relative_to(source).with_name(f"test_{path.stem}.py")
        if has_code(text) and not path.name.startswith("__") and not test.exists():
            yield f"{name}: no test {test}"
        yield from oversized(name, text)


def main(argv: list[str]) -> int:
    """Print every broken rule and return the exit status."""
    if len(argv) != 2:
        print("usage: check_size.py SOURCE TESTS", file=sys.stderr)
        return 2
    broken = list(problems(Path(argv[0]), Path(argv[1])))
    print("\n".join(broken) if broken else "sizes: every module and function is within its gate")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
