"""The machine's token: the same in every process that local sockets reach."""

import subprocess
import sys

from bireme.transport.machine import machine_token


def test_another_process_has_the_same_token() -> None:
    code = "from bireme.transport.machine import machine_token; print(machine_token())"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == machine_token()
    assert "/" not in machine_token()
