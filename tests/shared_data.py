"""Recorded data outside the repository: the folder HIRAG_SHARED_DATA, else shared/data next to the repository."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SHARED_DATA = Path(os.environ.get("HIRAG_SHARED_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")
REASON = "needs recorded data: HIRAG_SHARED_DATA names their folder"


def needs_shared(name: str) -> pytest.MarkDecorator:
    """Return the marker that skips a test where a file or folder of the recorded data is missing."""
    return pytest.mark.skipif(not (SHARED_DATA / name).exists(), reason=REASON)
