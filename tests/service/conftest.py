"""Fixtures of the service: a service on loopback with a scripted engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.service import fakes
from tests.service.fixtures import certificates, engine, start

__all__ = ["certificates", "engine", "start"]


@pytest.fixture
def callers(tmp_path: Path) -> fakes.CallersFile:
    """A callers file with caller web, who sees everything."""
    return fakes.CallersFile(tmp_path / "callers.yaml").add("web", labels="all")
