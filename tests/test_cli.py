"""The command line starts without torch and answers wrong input in one line."""

import subprocess
import sys

from bireme import __version__, cli


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "bireme", *arguments], capture_output=True, text=True, timeout=60
    )


def test_version():
    assert run("--version").stdout == f"bireme {__version__}\n"


def test_no_command_prints_the_help():
    result = run()
    assert result.returncode == 0
    assert "doctor" in result.stdout


def test_unknown_command_is_refused():
    result = run("docter")
    assert result.returncode == 2
    assert "docter" in result.stderr
    assert "Traceback" not in result.stderr


def test_help_imports_no_torch():
    code = (
        "import sys\n"
        "from bireme import cli\n"
        "try:\n"
        "    cli.main(['--help'])\n"
        "except SystemExit:\n"
        "    pass\n"
        "sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_doctor_reports_the_installed_packages(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert cli.main(["doctor"]) == 0
    printed = capsys.readouterr().out
    for name in ("bireme", "torch", "numpy", "gpus", "msgspec", "shm", "jobs"):
        assert any(line.startswith(name) for line in printed.splitlines())


def test_errors_of_ours_are_one_line(capsys, monkeypatch):
    from bireme.errors import ConfigError

    def fail(_options):
        raise ConfigError("port must be in 1..65535, got 0")

    monkeypatch.setattr(cli, "_doctor", fail)
    assert cli.main(["doctor"]) == 2
    assert capsys.readouterr().err == "bireme: port must be in 1..65535, got 0\n"
