import subprocess
import sys
import tomllib
from pathlib import Path

import torch.distributed as dist

from bireme.collective.backend import BACKEND, autoload, register_backend

_ALONE = """
import tempfile, torch, torch.distributed as dist
from bireme.collective.backend import autoload
autoload()
for number in range(3):
    store = dist.HashStore()
    dist.init_process_group("bireme", store=store, rank=0, world_size=1)
    tensor = torch.ones(3)
    dist.all_reduce(tensor, op=dist.ReduceOp.AVG)
    found = [None]
    dist.all_gather_object(found, {"a": number})
    assert found == [{"a": number}] and tensor.tolist() == [1.0] * 3
    assert dist.get_backend() == "bireme"
    dist.destroy_process_group()
print("done")
"""


def test_registering_twice_is_registering_once():
    register_backend()
    plugin = dist.Backend._plugins[BACKEND.upper()]
    register_backend()
    autoload()
    assert dist.Backend._plugins[BACKEND.upper()] is plugin
    assert dist.is_backend_available("bireme")
    assert dist.Backend.default_device_backend_map["cpu"] == "gloo"


def test_a_plain_program_uses_it_by_name():
    found = subprocess.run(
        [sys.executable, "-W", "error", "-c", _ALONE],
        capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    assert found.stdout == "done\n", found.stderr
    assert found.stderr == ""


def test_torch_finds_it_by_itself_where_the_package_is_installed(tmp_path):
    """What an installer writes for the package, as far as torch reads it."""
    pyproject = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    points = pyproject["project"]["entry-points"]["torch.backends"]
    metadata = tmp_path / "stand_in-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: stand-in\nVersion: 1.0\n")
    lines = [f"{name} = {target}" for name, target in points.items()]
    (metadata / "entry_points.txt").write_text("[torch.backends]\n" + "\n".join(lines) + "\n")
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import torch.distributed as dist;"
        "print(dist.is_backend_available('bireme'), 'numpy' in sys.modules and 'bireme.collective."
        "process_group' in sys.modules)"
    )
    found = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    assert found.stdout == "True False\n", found.stderr
