"""The files of TLS are read once, and their faults named. Links under TLS: see test_tcp."""

import ssl
import subprocess

import pytest

from bireme.errors import ConfigError
from bireme.transport.tls import tls_contexts


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    key, cert = str(folder / "key.pem"), str(folder / "cert.pem")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-keyout", key, "-out", cert, "-days", "2", "-subj", "/CN=job"]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key


def test_both_sides_ask_for_certificates(files):
    cert, key = files
    server, client = tls_contexts(cert, key, cert)
    assert server.verify_mode == client.verify_mode == ssl.CERT_REQUIRED


def test_faulty_files_are_named(files, tmp_path):
    cert, key = files
    with pytest.raises(ConfigError, match="nowhere.pem"):
        tls_contexts(str(tmp_path / "nowhere.pem"), key, cert)
    with pytest.raises(ConfigError, match="TLS files"):
        tls_contexts(cert, cert, cert)
    with pytest.raises(ConfigError, match="TLS files"):
        tls_contexts(cert, key, key)
