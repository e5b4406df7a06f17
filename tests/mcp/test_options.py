"""Addresses that the server may listen on."""

from __future__ import annotations

import pytest

from hirag_dist.errors import ConfigError
from hirag_dist.mcp.options import HttpOptions

TLS = {"tls_cert": "a.pem", "tls_key": "b.pem"}


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "localhost:8765", "[::1]:1", "127.8.8.8:1"])
def test_loopback_needs_nothing(listen: str) -> None:
    assert not HttpOptions(listen).is_open
    assert HttpOptions(listen, ("mcp.example.org",), identifies=True).is_open, "through a proxy"


@pytest.mark.parametrize(
    ("listen", "given", "message"),
    [
        ("8765", {}, "must be HOST:PORT"),
        ("127.0.0.1:http", {}, "must be HOST:PORT"),
        ("127.0.0.1:70000", {}, "must be HOST:PORT"),
        ("127.0.0.1:1", {"tls_cert": "a.pem"}, "both --tls-cert and --tls-key"),
        ("0.0.0.0:1", TLS, "opens the whole index"),
        ("127.0.0.1:1", {"names": ("mcp.example.org",)}, "opens the whole index"),
        ("10.0.0.7:1", {"identifies": True, "names": ("a",)}, "in the clear"),
        ("[::]:1", {"identifies": True, **TLS}, "--http-name"),
    ],
)
def test_addresses_that_are_refused(listen: str, given: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        HttpOptions(listen, **given)  # type: ignore[arg-type]


def test_names_that_lead_to_the_server() -> None:
    options = HttpOptions("0.0.0.0:443", ("mcp.example.org",), identifies=True, **TLS)
    assert options.is_open
    assert {"mcp.example.org", "mcp.example.org:*", "localhost:*"} <= set(options.hosts)
    assert "https://mcp.example.org" in options.origins
    assert "http://mcp.example.org" not in options.origins
