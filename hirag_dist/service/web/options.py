"""Options of the browser page, checked when they are made."""

from __future__ import annotations

from dataclasses import dataclass

from hirag_dist.errors import ConfigError
from hirag_dist.wire.addresses import is_loopback, join_address, split_address

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class PageOptions:
    """Address, host names, security and limits of the page.

    Attributes:
        listen: HOST:PORT; port 0 takes a free one. Beyond loopback it needs TLS and callers.
        names: host names of the page in addition to those of its certificate and of loopback, for a proxy in front of
            it.
        tls_cert, tls_key: PEM files of the service's own certificate chain and key. With them the page is served over
            HTTPS, and the page connects to the service over TLS.
        tls_client_ca: PEM file of the authority that signs clients' certificates; with it browsers need one, as callers
            of the service do.
        client_cert, client_key: PEM files of the certificate that the page itself shows to the service; needed with
            `tls_client_ca`.
        callers: whether the service has a callers file; then the page rejects a question without a token, which would
            otherwise be asked with the page's own certificate.
        page: whether the page is served.
        origins: origins whose pages may call the APIs, such as https://chat.example.com; "*" is any, and needs callers.
        max_api_body_bytes: of a request to the APIs.
        max_api_requests: requests to the APIs at a time; more are rejected with 429.
        timeout_s: seconds that a question may take where its client does not say.
        body_s: seconds that a request may take to arrive.
        drain_s: seconds that questions have to finish when the page stops.
        reuse_port: whether another process reserves the address for the page.
        poll_s: seconds between two checks of the certificates.

    Raises:
        ConfigError: the address is malformed, TLS is half configured, or the address is open to the network without
            TLS and callers.
    """

    listen: str
    names: tuple[str, ...] = ()
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_client_ca: str | None = None
    client_cert: str | None = None
    client_key: str | None = None
    callers: bool = False
    page: bool = True
    origins: tuple[str, ...] = ()
    max_api_body_bytes: int = 1024 * 1024
    max_api_requests: int = 320
    timeout_s: float = 120.0
    body_s: float = 10.0
    drain_s: float = 5.0
    reuse_port: bool = False
    poll_s: float = 2.0

    def __post_init__(self) -> None:
        host, _ = split_address(self.listen)
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ConfigError("TLS needs both tls_cert and tls_key")
        if (self.client_cert is None) != (self.client_key is None):
            raise ConfigError("the page's own certificate needs both http_client_cert and http_client_key")
        if self.tls_client_ca is not None and self.client_cert is None:
            raise ConfigError(
                "the service asks its clients for a certificate (tls_client_ca), and the page is one of them: give "
                "http_client_cert and http_client_key"
            )
        if "*" in self.origins and not self.callers:
            raise ConfigError(
                "http_origins: * lets every web page ask where no token is needed; name the origins, or give a "
                "callers_file"
            )
        if not is_loopback(host) and (self.tls_cert is None or not self.callers):
            raise ConfigError(
                f"a page at {self.listen} opens the index to the network: give tls_cert and tls_key and a "
                f"callers_file, or let it listen on 127.0.0.1"
            )


def reached_at(address: str) -> str:
    """Return the address under which a process of this machine reaches a service.

    >>> reached_at("0.0.0.0:50051"), reached_at("[::]:50051"), reached_at("10.0.0.7:50051")
    ('127.0.0.1:50051', '[::1]:50051', '10.0.0.7:50051')
    """
    host, port = split_address(address)
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return join_address(host, port)


def url_of(options: PageOptions, port: int | None = None) -> str:
    """Return the page's address for a browser.

    Args:
        port: the real one, if that of the options is 0.

    >>> url_of(PageOptions("[::1]:8080"))
    'http://[::1]:8080/'
    """
    host, given = split_address(options.listen)
    scheme = "http" if options.tls_cert is None else "https"
    return f"{scheme}://{join_address(host, given if port is None else port)}/"
