"""A parser of command lines that end in somebody else's command."""

import argparse
import difflib
from collections.abc import Sequence
from typing import Any

__all__ = ("CommandParser",)


class CommandParser(argparse.ArgumentParser):
    """Takes the options before the command, and does not look at the command's own.

    ``argparse`` looks through the whole line for options first, also where the rest of it is one
    argument, and then takes ``--network`` of a script for an ambiguous abbreviation of ours. So the
    command is fenced off before it looks. Parsers without such an argument are not changed.

    Example:
        >>> parser = CommandParser(prog="run", allow_abbrev=False)
        >>> _ = parser.add_argument("-n", type=int)
        >>> _ = parser.add_argument("--network-interface")
        >>> _ = parser.add_argument("arguments", nargs=argparse.REMAINDER)
        >>> parser.parse_args(["-n", "2", "train.py", "--network", "mlp", "-n", "x"]).arguments[-4:]
        ['--network', 'mlp', '-n', 'x']
    """

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, as `argparse.ArgumentParser` does."""
        has_command = any(action.nargs == argparse.REMAINDER for action in self._actions)
        if args is not None and has_command:
            args = self._fenced(list(args))
        return super().parse_known_args(args, namespace)

    def _fenced(self, args: Sequence[str]) -> list[str]:
        position = 0
        while position < len(args):
            text = args[position]
            if text == "--":
                break
            if not text.startswith("-") or text == "-":
                return [*args[:position], "--", *args[position:]]
            self._check_known(text)
            position += 1 + self._num_values(text)
        return list(args)

    def _check_known(self, text: str) -> None:
        name = text.partition("=")[0]
        if not name.startswith("--") or name in self._option_string_actions:
            return
        close = difflib.get_close_matches(name, self._option_string_actions, n=1)
        hint = f"did you mean {close[0]}?" if close else f"{self.prog} --help lists all"
        self.error(f"there is no option {name}; {hint}")

    def _num_values(self, text: str) -> int:
        """Return how many of the arguments behind an option are its values."""
        # An option with its value in the same word is not found: -n2, --num-workers=2.
        action = self._option_string_actions.get(text)
        if action is None:
            return 0
        return action.nargs if isinstance(action.nargs, int) else 1
