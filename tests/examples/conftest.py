"""A service on loopback with an engine that does as it is told."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

NAME = "service_fakes"


@pytest.fixture(scope="session")
def fakes() -> Any:
    """The fakes of the service's tests, whatever the import mode of pytest; the same module for every folder."""
    if NAME not in sys.modules:
        spec = importlib.util.spec_from_file_location(NAME, Path(__file__).parents[1] / "service" / "fakes.py")
        assert spec
        assert spec.loader
        sys.modules[NAME] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[NAME])
    return sys.modules[NAME]


@pytest.fixture
async def start(fakes: Any) -> AsyncIterator[Any]:
    """Starts a service around an engine; keywords are `ServerOptions`."""
    services = fakes.Services()
    yield services.start
    await services.stop()


@pytest.fixture(scope="session")
def certificates(fakes: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Paths of ca.pem, server.pem, server.key, client.pem, client.key."""
    pytest.importorskip("cryptography")
    paths: dict[str, str] = fakes.certificates(tmp_path_factory.mktemp("certificates"))
    return paths
