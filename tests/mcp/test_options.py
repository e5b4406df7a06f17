"""Addresses that the server may listen on."""

from __future__ import annotations

import pytest

from hirag_dist.errors import ConfigError
from hirag_dist.mcp.run import HttpOptions

TLS = {"tls_cert": "a.pem", "tls_key": "b.pem"}


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "localhost:8765", "[::1]:1", "127.8.8.8:1"])
def test_loopback_needs_nothing(listen: str) -> None:
    assert not HttpOptions(listen).is_open
    assert HttpOptions(listen, ("mcp.example.org",), identifies=True).is_open, "through a proxy"


@pytest.mark.parametrize(
    ("listen", "given", "message"),
    [
        ("8765", {}, "must be HOST:PORT"),
        ("127.0.0.1:1", {"tls_cert": "a.pem"}, "both --tls-cert and --tls-key"),
        ("0.0.0.0:1", TLS, "opens the whole index"),
        ("10.0.0.7:1", {"identifies": True, "names": ("a",)}, "in the clear"),
        ("[::]:1", {"identifies": True, **TLS}, "--http-name"),
    ],
)
def test_addresses_that_are_refused(listen: str, given: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        HttpOptions(listen, **given)  # type: ignore[arg-type]


def test_exact_names_and_ports_lead_to_the_server() -> None:
    names = ("mcp.example.org", "other.example.org:8443")
    options = HttpOptions("0.0.0.0:9000", names, identifies=True, **TLS)
    security = options.security(9000)
    assert options.is_open
    assert {host for host in security.allowed_hosts if "example" in host} == {
        "mcp.example.org",
        "mcp.example.org:443",
        "mcp.example.org:9000",
        "other.example.org:8443",
    }
    assert "https://mcp.example.org" in security.allowed_origins
    assert all(origin.startswith("https://") for origin in security.allowed_origins)
    assert not any("*" in each for each in (*security.allowed_hosts, *security.allowed_origins))
