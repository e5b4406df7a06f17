"""Fixtures of the tests of the store and of snapshots."""

from __future__ import annotations

from pathlib import Path

import pytest

from hirag_dist.storage.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store in a folder that is not there yet."""
    return Store(str(tmp_path / "index"))
