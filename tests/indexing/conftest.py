"""Indexes in a folder of the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.indexing.test_updates import LivingBench
from tests.toy_builds import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def living(tmp_path: Path) -> LivingBench:
    return LivingBench(tmp_path)
