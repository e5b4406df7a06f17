"""The certificate that the page shares with the service: shown to browsers, and trusted when the service shows it."""

from __future__ import annotations

import ssl

from hirag_dist.errors import ConfigError


class BrowserTls:
    """The TLS settings towards browsers, which can be renewed while the page is served.

    Attributes:
        context: to listen with. Each handshake takes certificate and client authorities of the latest renewal.
    """

    def __init__(self, first: ssl.SSLContext) -> None:
        self.context = self._latest = first
        self.context.sni_callback = self._choose  # called for clients that send no name, too

    def renew(self, latest: ssl.SSLContext) -> None:
        """Let handshakes from now on go by another context, made as this one was."""
        self._latest = latest

    def _choose(self, end: ssl.SSLObject | ssl.SSLSocket, name: str | None, context: ssl.SSLContext) -> None:
        end.context = self._latest


def server_context(cert: str, key: str, client_ca: str | None) -> ssl.SSLContext:
    """Return the TLS settings towards browsers, as the files are now.

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
        # A resumed session shows no certificate: who was let in by an authority that is gone must be asked again.
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.num_tickets = 0
    return context


def _load(context: ssl.SSLContext, cert: str, key: str) -> None:
    try:
        context.load_cert_chain(cert, key)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(f"TLS cannot be set up from {cert} and {key}: {error}") from error


def names_in(cert: str, key: str) -> tuple[str, ...]:
    """Return the host names and addresses that a certificate is for, as they stand in it.

    The standard library tells what is in a certificate only when a peer has shown it, so one end of this process
    shows it to another, without a network.

    Raises:
        ConfigError: as `server_context`, or the certificate has expired or is not valid yet.
    """
    shows = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load(shows, cert, key)
    looks = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    looks.check_hostname = False
    looks.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the certificate itself is the anchor, whoever signed it
    looks.load_verify_locations(cert)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = shows.wrap_bio(to_server, to_client, server_side=True)
    client = looks.wrap_bio(to_client, to_server)
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
    """Return a name under which a certificate with these names is accepted, None where it has none.

    >>> expected_name(("*.example.org", "127.0.0.1"))
    'page.example.org'
    """
    return next(("page" + name[1:] if name.startswith("*.") else name for name in names), None)
