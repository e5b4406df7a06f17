"""TLS certificates of the service: read, checked, and reloaded when they are renewed."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc

from hirag_dist.errors import ConfigError
from hirag_dist.service.file_watch import ReloadingValue
from hirag_dist.service.options import ServerOptions

_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM texts of one version of the certificates.

    Attributes:
        cert, key: the server's chain and key.
        client_ca: authority of clients' certificates; None requests none from clients.
        expires: expiry of the server's certificate.
    """

    cert: bytes
    key: bytes
    client_ca: bytes | None
    expires: datetime


def read_certificates(cert: str, key: str, client_ca: str | None) -> Certificates:
    """Return the content of the files, checked.

    Raises:
        ConfigError: a file cannot be read, is not PEM, or key and certificate do not belong together.
    """
    files = [name for name in (cert, key, client_ca) if name is not None]
    try:
        for _ in range(_ATTEMPTS):
            texts = [Path(name).read_bytes() for name in files]
            check = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            check.load_cert_chain(cert, key)  # ssl loads keys from files only
            if client_ca is not None:
                check.load_verify_locations(client_ca)
            if texts == [Path(name).read_bytes() for name in files]:  # the checked content is the content that was read
                ca = texts[2] if client_ca is not None else None
                return Certificates(texts[0], texts[1], ca, certificate_expiry(texts[0]))
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise ConfigError(f"TLS cannot be set up from {', '.join(files)}: {error}") from error
    raise ConfigError(f"TLS cannot be set up from {', '.join(files)}: they keep changing")


class ServerTls:
    """TLS credentials of the server. Connections after a renewal get the new certificates; older ones stay open.

    Args:
        options: with `tls_cert` and `tls_key`.
        changed: called with each version of the certificates.

    Raises:
        ConfigError: as `read_certificates`.
    """

    def __init__(self, options: ServerOptions, changed: Callable[[Certificates], None] = lambda _: None) -> None:
        cert, key, client_ca = str(options.tls_cert), str(options.tls_key), options.tls_client_ca
        paths = [name for name in (cert, key, client_ca) if name is not None]
        self.files = ReloadingValue(paths, lambda: read_certificates(cert, key, client_ca), changed)
        self._presented = self.files.value
        fetch: Any = self._fetch  # the stubs lack that it may return None
        self.credentials: grpc.ServerCredentials = grpc.dynamic_ssl_server_credentials(
            _configuration(self._presented), fetch, require_client_authentication=client_ca is not None
        )

    def _fetch(self) -> grpc.ServerCertificateConfiguration | None:
        """Return certificates that gRPC does not have yet, else None. Called at each new connection, in any thread."""
        newest = self.files.value
        if newest is self._presented:
            return None
        self._presented = newest
        return _configuration(newest)


def _configuration(found: Certificates) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(found.key, found.cert)], found.client_ca)


def certificate_expiry(pem: bytes) -> datetime:
    """Return the expiry of the first certificate of a PEM text.

    The standard library parses only a peer's certificate, so this walks the DER form: the validity is the fourth
    element of the signed part, the fifth if a version comes first (RFC 5280, 4.1).

    Raises:
        ValueError: the text has no certificate.
    """
    begin, end = pem.find(b"-----BEGIN CERTIFICATE-----"), pem.find(b"-----END CERTIFICATE-----")
    if not 0 <= begin < end:
        raise ValueError("the text has no certificate in PEM form")
    der = ssl.PEM_cert_to_DER_cert(pem[begin : end + 25].decode("ascii"))
    try:
        _, certificate = _element(der, 0)
        _, signed = _element(certificate, 0)
        at = 0
        first, _ = _element(signed, 0)
        for _ in range(4 if first == 0xA0 else 3):
            at += _length(signed, at)
        _, validity = _element(signed, at)
        kind, not_after = _element(validity, _length(validity, 0))
    except IndexError:
        raise ValueError("the certificate is cut short") from None
    form = "%y%m%d%H%M%SZ" if kind == 0x17 else "%Y%m%d%H%M%SZ"  # UTCTime until 2049, GeneralizedTime from 2050
    return datetime.strptime(not_after.decode("ascii"), form).replace(tzinfo=UTC)


def _header(der: bytes, at: int) -> tuple[int, int]:
    """Return the offset of the content of the element at `at`, and its length."""
    if der[at + 1] < 0x80:
        return at + 2, der[at + 1]
    n_bytes = der[at + 1] & 0x7F
    return at + 2 + n_bytes, int.from_bytes(der[at + 2 : at + 2 + n_bytes], "big")


def _element(der: bytes, at: int) -> tuple[int, bytes]:
    begin, size = _header(der, at)
    return der[at], der[begin : begin + size]


def _length(der: bytes, at: int) -> int:
    begin, size = _header(der, at)
    return begin + size - at
