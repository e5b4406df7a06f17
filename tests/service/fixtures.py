"""Fixtures for tests of the service, its clients and its page; a conftest imports those that its folder needs."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.service import fakes


@pytest.fixture
def engine() -> fakes.FakeEngine:
    """An engine of snapshot s1."""
    return fakes.FakeEngine()


@pytest.fixture
async def start() -> AsyncIterator[fakes.Start]:
    """Starts a service around an engine or a swapper; keywords are `ServerOptions`."""
    services = fakes.Services()
    yield services.start
    await services.stop()


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Paths of ca.pem, server.pem, server.key, client.pem, client.key."""
    pytest.importorskip("cryptography")
    return fakes.certificates(tmp_path_factory.mktemp("certificates"))
