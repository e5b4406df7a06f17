"""A service on loopback with a scripted engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hirag_dist.service.shared_state import ServiceState, open_service_state
from tests.service.fixtures import certificates, engine, fakes, start

__all__ = ["certificates", "engine", "fakes", "start"]


@pytest.fixture
def callers(fakes: Any, tmp_path: Path) -> Any:
    """A callers file with caller web, who sees everything."""
    return fakes.CallersFile(tmp_path / "callers.yaml").add("web", labels="all")


@pytest.fixture
def state() -> Iterator[ServiceState]:
    """Shared state of the processes of a service."""
    with open_service_state(None) as state:
        yield state
