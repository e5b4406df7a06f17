"""A service on loopback with an engine that does as it is told."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from hirag_dist.service.station import Station, open_station

NAME = "service_fakes"


def _load() -> Any:
    """The module of fakes, whatever the import mode of pytest; the same one for every folder."""
    if NAME not in sys.modules:
        spec = importlib.util.spec_from_file_location(NAME, Path(__file__).parents[1] / "service" / "fakes.py")
        assert spec
        assert spec.loader
        sys.modules[NAME] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[NAME])
    return sys.modules[NAME]


@pytest.fixture(scope="session")
def fakes() -> Any:
    """The module fakes.py."""
    return _load()


@pytest.fixture
def engine(fakes: Any) -> Any:
    """An engine of snapshot s1."""
    return fakes.FakeEngine()


@pytest.fixture
async def start(fakes: Any) -> AsyncIterator[Any]:
    """Starts a service around an engine or a holder; keywords are `ServerOptions`."""
    services = fakes.Services()
    yield services.start
    await services.stop()


@pytest.fixture
def callers(fakes: Any, tmp_path: Path) -> Any:
    """A callers file with caller web, who sees everything."""
    return fakes.CallersFile(tmp_path / "callers.yaml").add("web", labels="all")


@pytest.fixture
def station() -> Iterator[Station]:
    """What the processes of a service share."""
    with open_station(None) as station:
        yield station


@pytest.fixture(scope="session")
def certificates(fakes: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Paths of ca.pem, server.pem, server.key, client.pem, client.key."""
    pytest.importorskip("cryptography")
    paths: dict[str, str] = fakes.certificates(tmp_path_factory.mktemp("certificates"))
    return paths
