"""TLS for a job's TCP links, from the files that its settings name.

Called by ``node.boot`` and by ``bireme doctor``.
"""

import ssl

from bireme.errors import ConfigError

__all__ = ("tls_contexts",)


def tls_contexts(cert: str, key: str, ca: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the contexts of the side that accepts and of the side that connects.

    Args:
        cert: This node's certificate, a PEM file.
        key: Its private key, a PEM file.
        ca: The certificates that vouch for the job's nodes, a PEM file.

    Raises:
        ConfigError: A file cannot be read, or holds something else.

    Guarantees:
        Both sides ask for a certificate and accept only what ``ca`` vouches for. Names in
        certificates are not compared: nodes reach each other by addresses that change from job to
        job, so whoever ``ca`` vouches for may be any node; the job's secret is asked for besides.
    """
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    for context in (server, client):
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_cert_chain(cert, key)
            context.load_verify_locations(ca)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"cannot use the TLS files {cert}, {key} and {ca}: {error}"
            ) from error
    return server, client
