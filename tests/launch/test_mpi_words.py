import pytest

from bireme.errors import ConfigError
from bireme.launch.mpi_words import asked_flavour, flavour_of, mpi_words

VERSIONS = {
    "mpirun (Open MPI) 4.1.4\n\nReport bugs to ...": "openmpi",
    "mpirun (OpenRTE) 3.1.3": "openmpi",
    "prterun (PRRTE) 3.0.2": "openmpi",
    "HYDRA build details:\n    Version: 4.0.2": "mpich",
    "MVAPICH2 Version: 2.3": "mpich",
    "Intel(R) MPI Library for Linux* OS, Version 2021.11 Build 20231005 (id: 74c4a23)": "intel",
}


@pytest.mark.parametrize("version", VERSIONS)
def test_families_by_what_they_say(version):
    assert flavour_of(version) == VERSIONS[version]


def test_an_unknown_one_is_an_error():
    with pytest.raises(ConfigError, match="cannot tell whose mpirun this is"):
        flavour_of("LAM 7.1\nmore")


def test_asking(tmp_path):
    program = tmp_path / "mpirun"
    program.write_text("#!/bin/sh\necho 'HYDRA build details:'\n")
    program.chmod(0o755)
    assert asked_flavour(str(program), {"PATH": "/usr/bin:/bin"}) == "mpich"


def test_nobody_to_ask(tmp_path):
    assert asked_flavour("mpirun", {"PATH": str(tmp_path)}) == "openmpi"


@pytest.mark.parametrize("flavour", ["openmpi", "mpich", "intel"])
def test_every_family_passes_on_what_agents_read(flavour):
    words = " ".join(mpi_words(flavour, ["a", "b"]))
    for name in ("BIREME_CALL_AT", "BIREME_CALL_KEY", "BIREME_CALL_FOR", "PYTHONPATH"):
        assert name in words
    assert "=" not in words
