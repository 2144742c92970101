"""What an installation can do, as horovodrun's users are used to read it."""

from bireme import cli
from bireme.launch.buildcheck import describe_build, find_features


def test_ticks():
    text = describe_build({"Available Controllers": {"MPI": False, "Gloo": True}, "More": {}})
    assert text.splitlines()[1:] == [
        "",
        "Available Controllers:",
        "    [ ] MPI",
        "    [X] Gloo",
        "",
        "More:",
    ]


def test_this_installation(capsys):
    features = find_features()
    assert features["Available Frameworks"]["PyTorch"]
    assert features["Available Controllers"]["Gloo"]
    assert cli.main(["run", "--check-build"]) == 0
    assert "    [X] PyTorch" in capsys.readouterr().out
