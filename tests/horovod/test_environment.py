import os

from bireme.horovod import environment


def test_variables_are_set_for_the_length_of_a_with(monkeypatch):
    monkeypatch.setenv("HOROVOD_A", "before")
    monkeypatch.delenv("HOROVOD_B", raising=False)
    with environment.temporarily({"HOROVOD_A": "1", "HOROVOD_B": "2", "HOROVOD_C": None}):
        assert environment.read()["HOROVOD_A"] == "1"
        assert os.environ["HOROVOD_B"] == "2"
        assert "HOROVOD_C" not in os.environ
    assert os.environ["HOROVOD_A"] == "before"
    assert "HOROVOD_B" not in os.environ


def test_a_machine_has_a_name():
    assert environment.host_name()
