import json
import platform
import socket
import subprocess
import sys

from bireme.launch import probe
from bireme.launch.probe import connections, facts, interfaces, serve_token
from bireme.version import __version__

TOKEN = "0123456789abcdef" * 2
NOBODY = "fedcba9876543210" * 2


def test_facts(tmp_path):
    found = facts(
        {"packages": ["bireme", "pytest", "no-such"], "path": [], "folder": str(tmp_path)}
    )
    assert found["python"] == platform.python_version()
    assert found["packages"]["bireme"] == __version__
    assert found["packages"]["pytest"]
    assert found["packages"]["no-such"] == ""
    assert found["has_folder"]
    assert not facts({"packages": [], "path": [], "folder": f"{tmp_path}/no"})["has_folder"]


def test_interfaces_have_addresses_that_others_can_use():
    for name, address in interfaces():
        assert name
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        socket.inet_pton(family, address)
        assert address not in ("127.0.0.1", "::1")


def test_it_is_known_who_was_reached():
    port = serve_token(TOKEN)
    right = {"names": ["127.0.0.1"], "port": port, "token": TOKEN}
    wrong = {**right, "token": NOBODY}
    second = {**right, "names": ["no-such.invalid", "127.0.0.1"]}
    found = connections([right, wrong, second])
    assert found[0] == {"from": "127.0.0.1", "to": "127.0.0.1", "error": ""}
    assert found[1] == {"error": "127.0.0.1: 127.0.0.1 is another host"}
    assert found[2]["to"] == "127.0.0.1"
    assert found[2]["error"].startswith("no-such.invalid: ")


def test_a_closed_port_is_an_error():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    found = connections([{"names": ["127.0.0.1"], "port": port, "token": TOKEN}])
    assert "refused" in found[0]["error"]


def test_the_program_answers_line_by_line_and_ends_with_its_input():
    requests = [{"facts": {"packages": [], "path": [], "folder": "/"}}, {"token": TOKEN}]
    ended = subprocess.run(
        [sys.executable, "-I", "-S", probe.__file__],
        input="".join(json.dumps(each) + "\n" for each in requests),
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    first, second = map(json.loads, ended.stdout.splitlines())
    assert first["executable"] == sys.executable
    assert second["port"] > 0
