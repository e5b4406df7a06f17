"""Fixtures of the tests of the service, its clients and its page: a service on loopback with a scripted engine.

A conftest imports those that its folder needs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import ModuleType
from typing import Any

import pytest

from tests.service import fakes as module


@pytest.fixture(scope="session")
def fakes() -> ModuleType:
    """The module fakes.py."""
    return module


@pytest.fixture
def engine() -> module.FakeEngine:
    """An engine of snapshot s1."""
    return module.FakeEngine()


@pytest.fixture
async def start() -> AsyncIterator[Any]:
    """Starts a service around an engine or a swapper; keywords are `ServerOptions`."""
    services = module.Services()
    yield services.start
    await services.stop()


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Paths of ca.pem, server.pem, server.key, client.pem, client.key."""
    pytest.importorskip("cryptography")
    return module.certificates(tmp_path_factory.mktemp("certificates"))
