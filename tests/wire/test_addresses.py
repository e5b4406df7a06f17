"""Addresses for which no proxy of the environment is asked."""

from __future__ import annotations

import pytest

from hirag_dist.wire.addresses import proxy_options


@pytest.mark.parametrize("name", ["no_proxy", "NO_PROXY"])
def test_no_proxy_in_either_case(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for each in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(each, raising=False)
    monkeypatch.setenv(name, "search.corp,.inner")
    for target in ("search.corp:50051", "dns:///a.inner:50051", "ipv4:127.0.0.1:1", "[::1]:1", "localhost:1"):
        assert proxy_options(target) == [("grpc.enable_http_proxy", 0)], target
    for target in ("elsewhere.corp:50051", "ipv4:127.0.0.1:1,10.0.0.1:1", "dns:///10.0.0.1:1"):
        assert proxy_options(target) == [], target
