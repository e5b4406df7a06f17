"""The certificate that page and service share: presented to browsers, and trusted as the service's."""

from __future__ import annotations

import ssl

from hirag_dist.errors import ConfigError


class BrowserTls:
    """TLS settings towards browsers, renewable while the page is served.

    Attributes:
        context: of the listening socket. Each handshake uses the certificate and authorities of the latest renewal.
    """

    def __init__(self, first: ssl.SSLContext) -> None:
        self.context = self._latest = first
        self.context.sni_callback = self._choose  # called for clients without a server name too

    def renew(self, latest: ssl.SSLContext) -> None:
        """Use another context, of the same kind, for handshakes from now on."""
        self._latest = latest

    def _choose(self, end: ssl.SSLObject | ssl.SSLSocket, name: str | None, context: ssl.SSLContext) -> None:
        end.context = self._latest


def server_context(cert: str, key: str, client_ca: str | None) -> ssl.SSLContext:
    """Return TLS settings towards browsers from the current files.

    Raises:
        ConfigError: a file cannot be read or is not PEM, or key and certificate do not belong together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load(context, cert, key)
    if client_ca is not None:
        try:
            context.load_verify_locations(client_ca)
        except OSError as error:
            raise ConfigError(f"TLS cannot be set up from {client_ca}: {error}") from error
        context.verify_mode = ssl.CERT_REQUIRED
        # A resumed session presents no certificate, so a client of a removed authority could stay connected.
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.num_tickets = 0
    return context


def _load(context: ssl.SSLContext, cert: str, key: str) -> None:
    try:
        context.load_cert_chain(cert, key)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(f"TLS cannot be set up from {cert} and {key}: {error}") from error


def names_in(cert: str, key: str) -> tuple[str, ...]:
    """Return the host names and addresses of a certificate.

    The standard library parses a certificate only if a peer presents it, so this makes a handshake in memory.

    Raises:
        ConfigError: as `server_context`, or the certificate has expired or is not valid yet.
    """
    presenting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load(presenting, cert, key)
    verifying = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    verifying.check_hostname = False
    verifying.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the certificate itself is the trust anchor
    verifying.load_verify_locations(cert)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = presenting.wrap_bio(to_server, to_client, server_side=True)
    client = verifying.wrap_bio(to_client, to_server)
    try:
        for end in (client, server, client, server):  # hello, certificate, its acceptance, and the end
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    except ssl.SSLError as error:
        raise ConfigError(f"the certificate {cert} cannot be used: {error}") from error
    found = (client.getpeercert() or {}).get("subjectAltName", ())
    return tuple(str(entry[1]) for entry in found if entry[0] in ("DNS", "IP Address"))


def expected_name(names: tuple[str, ...]) -> str | None:
    """Return a name that a certificate with these names is valid for, None if it has none.

    >>> expected_name(("*.example.org", "127.0.0.1"))
    'page.example.org'
    """
    return next(("page" + name[1:] if name.startswith("*.") else name for name in names), None)
