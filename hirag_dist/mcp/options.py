"""Options of the MCP server over HTTP, checked when they are made."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from hirag_dist.errors import ConfigError

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
PATH = "/mcp"


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """Address, host names and security of the server.

    Attributes:
        listen: HOST:PORT; port 0 takes a free one. Beyond loopback it needs TLS and a service that identifies callers.
        names: host names in addition to those of loopback, by which clients may reach it.
        tls_cert, tls_key: PEM files of its certificate chain and key.
        identifies: whether a service decides by each caller's token what the caller may see.

    Raises:
        ConfigError: the address is malformed, TLS is half configured, or the address is open to the network without
            TLS, tokens or a name.
    """

    listen: str
    names: tuple[str, ...] = ()
    tls_cert: str | None = None
    tls_key: str | None = None
    identifies: bool = False

    def __post_init__(self) -> None:
        _ = self.port
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ConfigError("TLS needs both --tls-cert and --tls-key")
        if self.is_open and not self.identifies:
            raise ConfigError(
                f"--http {self.listen} opens the whole index to the network: use --server with a service that has a "
                f"callers file, or listen on 127.0.0.1 without --http-name"
            )
        if self.is_loopback:
            return
        if self.tls_cert is None:
            raise ConfigError(
                f"--http {self.listen} would send tokens over the network in the clear: give --tls-cert and --tls-key, "
                f"or listen on 127.0.0.1 behind a proxy with TLS"
            )
        if not self.names:
            raise ConfigError(f"--http {self.listen} needs --http-name: the host name by which clients reach it")

    @property
    def host(self) -> str:
        """Host of the address, without brackets."""
        return self.listen.rpartition(":")[0].removeprefix("[").removesuffix("]")

    @property
    def port(self) -> int:
        """Port of the address."""
        port = self.listen.rpartition(":")[2]
        if not self.host or not port.isascii() or not port.isdigit() or int(port) > 65535:
            raise ConfigError(f"--http must be HOST:PORT, such as 127.0.0.1:8765, got {self.listen!r}")
        return int(port)

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can reach the address."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def is_open(self) -> bool:
        """True if other machines reach the server, directly or through a proxy, so that each caller needs a token."""
        return not self.is_loopback or bool(self.names)

    @property
    def hosts(self) -> list[str]:
        """Values of the Host header that are accepted: with them, no other name can lead here (DNS rebinding)."""
        names = (*LOOPBACK, *self.names)
        return [*names, *(f"{name}:*" for name in names)]

    @property
    def origins(self) -> list[str]:
        """Values of the Origin header that are accepted, where there is one."""
        schemes = [f"http://{name}" for name in LOOPBACK] + [f"https://{name}" for name in (*LOOPBACK, *self.names)]
        return [*schemes, *(f"{origin}:*" for origin in schemes)]
