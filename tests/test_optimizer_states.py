import subprocess
import sys

import pytest

SCRIPT = """
import sys
import bireme
assert "torch" not in sys.modules
{use}
module = sys.modules["bireme.update.state_dicts"]
assert bireme.optimizer_states is sys.modules["bireme.optimizer_states"] is module
assert bireme.optimizer_states.to_state_dict is to_state_dict
"""


@pytest.mark.parametrize(
    "use",
    [
        "from bireme.optimizer_states import to_state_dict",
        "from bireme.update.state_dicts import to_state_dict",
    ],
)
def test_it_is_a_module_under_both_names(use):
    subprocess.run([sys.executable, "-c", SCRIPT.format(use=use)], check=True)
