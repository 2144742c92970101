import os

from bireme.collective.bank import trial
from bireme.collective.bank.trial import try_bank


def test_two_processes_meet():
    before = len(os.listdir("/proc/self/fd"))
    assert try_bank().startswith("works: processes here share memory, ")
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_second_process_that_ends_is_told(monkeypatch):
    monkeypatch.setattr(trial, "_CODE", "raise SystemExit(1)")
    assert "the second process of the trial ended with 1; use Gloo" in try_bank()


def test_memory_that_cannot_be_shared_is_told(monkeypatch):
    def fail(_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(trial, "make_file", fail)
    assert "Operation not permitted" in try_bank()


def test_a_system_without_futexes_is_told(monkeypatch):
    monkeypatch.setattr(trial, "futex_number", lambda: None)
    assert "no futexes" in try_bank()
