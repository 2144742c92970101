"""From a node's settings to the contexts of its TCP links. Called by ``boot``."""

import ssl

from bireme.errors import ConfigError
from bireme.settings import NodeSettings, Security

__all__ = ("tls_contexts",)


def tls_contexts(node: NodeSettings) -> tuple[ssl.SSLContext | None, ssl.SSLContext | None]:
    """Return the contexts for links that peers open and for links that this node opens.

    Both ends show a certificate that the job's authority has signed. Names in certificates are
    not compared with hosts: nodes move, and the authority is the job's own.

    Returns:
        Two contexts with ``security=tls``, else ``(None, None)``.

    Raises:
        ConfigError: A file cannot be read, or certificate and key do not belong together.
    """
    if node.security is not Security.TLS:
        return None, None
    return _context(node, ssl.PROTOCOL_TLS_SERVER), _context(node, ssl.PROTOCOL_TLS_CLIENT)


def _context(node: NodeSettings, protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_verify_locations(node.tls_ca)
        context.load_cert_chain(node.tls_cert, node.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"cannot use tls_cert={node.tls_cert!r}, tls_key={node.tls_key!r}, "
            f"tls_ca={node.tls_ca!r}: {error}"
        ) from error
    return context
