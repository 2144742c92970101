import subprocess
import sys

import pytest

SCRIPT = """
import sys
import bireme
assert "torch" not in sys.modules
{use}
assert bireme.kv is sys.modules["bireme.kv"] is sys.modules["bireme.kvstore"]
assert bireme.kv.create is create
"""


@pytest.mark.parametrize(
    "use",
    [
        "from bireme.kv import create",
        "from bireme.kvstore import create",
    ],
)
def test_it_is_a_module_under_both_names(use):
    subprocess.run([sys.executable, "-c", SCRIPT.format(use=use)], check=True)
