import subprocess
import sys

import pytest

SCRIPT = """
import sys
import bireme
assert "torch" not in sys.modules
{use}
assert bireme.metrics is sys.modules["bireme.metrics"] is sys.modules["bireme.train.metrics"]
assert bireme.metrics.Accuracy is Accuracy
"""


@pytest.mark.parametrize(
    "use",
    [
        "from bireme.metrics import Accuracy",
        "from bireme.train.metrics import Accuracy",
    ],
)
def test_it_is_a_module_under_both_names(use):
    subprocess.run([sys.executable, "-c", SCRIPT.format(use=use)], check=True)
