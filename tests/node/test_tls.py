"""With ``security=tls`` both ends of a TCP link show a certificate of the job's authority."""

import socket
import ssl
import subprocess
import threading

import pytest

from bireme.errors import ConfigError
from bireme.node.tls import tls_contexts
from bireme.settings import NodeSettings, Security
from bireme.types.nodes import Role


def openssl(folder, *arguments):
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def make_authority(folder, name="ca"):
    openssl(
        folder, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
        "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.pem", "-days", "1", "-subj", "/CN=job",
    )  # fmt: skip


def make_certificate(folder, name, authority="ca"):
    openssl(
        folder, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
        "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}",
    )  # fmt: skip
    openssl(
        folder, "x509", "-req", "-in", f"{name}.csr", "-CA", f"{authority}.pem", "-CAkey",
        f"{authority}.key", "-CAcreateserial", "-out", f"{name}.pem", "-days", "1",
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    make_authority(folder)
    make_authority(folder, "other")
    make_certificate(folder, "node")
    make_certificate(folder, "stranger", "other")
    return folder


def settings(folder, name="node", **changes):
    fields = {
        "role": Role.WORKER,
        "num_workers": 1,
        "num_servers": 1,
        "scheduler_host": "127.0.0.1",
        "scheduler_port": 9091,
        "secret": "0123456789abcdef",
        "security": Security.TLS,
        "tls_cert": str(folder / f"{name}.pem"),
        "tls_key": str(folder / f"{name}.key"),
        "tls_ca": str(folder / "ca.pem"),
    }
    return NodeSettings(**(fields | changes))


def shake(server_context, client_context):
    """Return what each side of one connection came to: a TLS version or an error."""
    ours, theirs = socket.socketpair()
    outcome = {}

    def side(name, plain, context, *, server_side):
        try:
            with context.wrap_socket(plain, server_side=server_side) as wrapped:
                wrapped.send(b"x")
                wrapped.recv(1)
                outcome[name] = wrapped.version()
        except (ssl.SSLError, OSError) as error:
            outcome[name] = error
            plain.close()

    arguments = ("server", ours, server_context)
    thread = threading.Thread(target=side, args=arguments, kwargs={"server_side": True})
    thread.start()
    side("client", theirs, client_context, server_side=False)
    thread.join(10)
    return outcome


def test_nodes_of_a_job_trust_each_other(folder):
    server_context, client_context = tls_contexts(settings(folder))
    assert shake(server_context, client_context) == {"server": "TLSv1.3", "client": "TLSv1.3"}


def test_a_certificate_of_another_authority_is_refused(folder):
    server_context, _ = tls_contexts(settings(folder))
    _, client_context = tls_contexts(settings(folder, "stranger"))
    outcome = shake(server_context, client_context)
    assert isinstance(outcome["server"], ssl.SSLError)


def test_a_peer_without_a_certificate_is_refused(folder):
    server_context, _ = tls_contexts(settings(folder))
    bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    bare.check_hostname = False
    bare.load_verify_locations(folder / "ca.pem")
    assert isinstance(shake(server_context, bare)["server"], ssl.SSLError)


def test_without_tls_there_are_no_contexts(folder):
    assert tls_contexts(settings(folder, security=Security.AUTH)) == (None, None)


@pytest.mark.parametrize(
    "changes", [{"tls_ca": "/nowhere/ca.pem"}, {"tls_cert": "/nowhere/node.pem"}]
)
def test_a_missing_file_is_named(folder, changes):
    with pytest.raises(ConfigError, match="/nowhere/"):
        tls_contexts(settings(folder, **changes))


def test_a_key_of_another_certificate_is_refused(folder):
    with pytest.raises(ConfigError, match="cannot use tls_cert"):
        tls_contexts(settings(folder, tls_key=str(folder / "stranger.key")))
