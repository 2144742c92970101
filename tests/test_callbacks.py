import subprocess
import sys

import pytest

SCRIPT = """
import sys
import bireme
assert "torch" not in sys.modules
{use}
assert bireme.callbacks is sys.modules["bireme.callbacks"] is sys.modules["bireme.train.callbacks"]
assert bireme.callbacks.Speedometer is Speedometer
"""


@pytest.mark.parametrize(
    "use",
    [
        "from bireme.callbacks import Speedometer",
        "from bireme.train.callbacks import Speedometer",
    ],
)
def test_it_is_a_module_under_both_names(use):
    subprocess.run([sys.executable, "-c", SCRIPT.format(use=use)], check=True)
