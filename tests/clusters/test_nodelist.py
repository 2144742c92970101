"""Slurm's own reading of lists of hosts, beside ours."""

import pytest
from tests.launch.test_nodelist import KNOWN


@pytest.mark.parametrize("text", KNOWN)
def test_slurm_itself_agrees(slurm, text):
    told = slurm.run(["scontrol", "show", "hostnames", text], check=True)
    assert tuple(told.stdout.split()) == KNOWN[text]
