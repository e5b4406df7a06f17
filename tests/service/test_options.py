"""Options of the service for listening."""

from __future__ import annotations

import pytest

from hirag_dist.errors import ConfigError
from hirag_dist.service.options import ServerOptions
from hirag_dist.wire.addresses import split_address


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "localhost:50051", "[::1]:50051", "127.9.9.9:1"])
def test_loopback_needs_nothing(listen: str) -> None:
    assert ServerOptions(listen=listen).listen == listen


@pytest.mark.parametrize("listen", ["0.0.0.0:50051", "[::]:50051", "10.0.0.7:50051", "box.example:50051"])
def test_on_the_network_callers_must_be_known(listen: str) -> None:
    with pytest.raises(ConfigError, match=r"callers_file .* or by tls_client_ca, or listen on 127.0.0.1"):
        ServerOptions(listen=listen)
    with pytest.raises(ConfigError, match="anybody on the network"):  # encrypted, but still for anybody
        ServerOptions(listen=listen, tls_cert="c", tls_key="k")
    ServerOptions(listen=listen, callers_file="callers.yaml")
    ServerOptions(listen=listen, tls_cert="c", tls_key="k", tls_client_ca="a")


@pytest.mark.parametrize(
    "listen", ["", "50051", ":50051", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000", "::1:5", "h:²"]
)
def test_what_is_no_address(listen: str) -> None:
    with pytest.raises(ConfigError, match="HOST:PORT"):
        split_address(listen)


@pytest.mark.parametrize("wrong", [{"tls_cert": "c"}, {"tls_key": "k"}, {"tls_client_ca": "a"}])
def test_what_does_not_fit(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        ServerOptions(**wrong)  # type: ignore[arg-type]
