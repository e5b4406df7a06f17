"""TLS certificates of the service: read, checked, and reloaded when they are renewed."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
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
    """

    cert: bytes
    key: bytes
    client_ca: bytes | None


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
                return Certificates(texts[0], texts[1], ca)
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
