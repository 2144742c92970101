import pytest

from bireme.horovod.runner import _HorovodArgs, run
from bireme.horovod.runner.launch import flags


def test_arguments_become_flags(tmp_path):
    given = _HorovodArgs(
        hosts="localhost:2,leda:4",
        ssh_port=2222,
        ssh_identity_file="key",
        output_filename="logs",
        start_timeout=9,
    )
    assert flags(given) == [
        *("-H", "localhost:2,leda:4", "-p", "2222", "-i", "key"),
        *("--output-filename", "logs", "--start-timeout", "9"),
    ]
    assert flags(_HorovodArgs()) == []
    assert flags(_HorovodArgs(hostfile="h")) == ["--hostfile", "h"]
    assert _HorovodArgs().command is None


def test_discovered_hosts(tmp_path):
    script = tmp_path / "find"
    script.write_text('echo "localhost:2"\necho leda\n')
    script.chmod(0o700)
    given = _HorovodArgs(host_discovery_script=str(script), slots=3)
    assert flags(given) == ["-H", "localhost:2,leda:3"]
    script.write_text("echo nobody >&2; exit 3")
    with pytest.raises(ValueError, match=r"exit code 3 and found .*nobody"):
        flags(given)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"hosts": "a:1", "hostfile": "h"}, "only allow one provided"),
        ({"use_gloo": True, "use_mpi": True}, "only allow one set True"),
        ({"use_mpi": True}, "mpirun"),
        ({"num_proc": 0}, "integer >= 1, got 0"),
    ],
)
def test_arguments_that_contradict_each_other(arguments, match):
    with pytest.raises(ValueError, match=match):
        run(print, **arguments)


def test_older_words_are_told_about():
    with (
        pytest.warns(DeprecationWarning, match="np is deprecated, use num_proc"),
        pytest.raises(ValueError, match="integer >= 1, got -1"),
    ):
        run(print, np=-1)
