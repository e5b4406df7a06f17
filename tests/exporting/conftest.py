"""The indexes that the tests of inspecting and exporting look at."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest

Tables = dict[str, pa.Table]
WHERE = Path(__file__).parents[1] / "inspection" / "indexes.py"


def _load() -> ModuleType:
    """The module of test indexes, whatever the import mode of pytest."""
    spec = importlib.util.spec_from_file_location("inspection_indexes", WHERE)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


INDEXES = _load()


@pytest.fixture
def make_tables() -> Callable[[Mapping[str, str]], Tables]:
    """Make the tiny index with other names."""
    return INDEXES.tiny_index


@pytest.fixture
def nasty() -> dict[str, str]:
    """Names that break pages and XML files, by the tiny index's plain names."""
    return dict(INDEXES.NASTY)


@pytest.fixture
def tiny() -> Tables:
    """The tiny index: `indexes.tiny_index` says in words what is in it."""
    return INDEXES.tiny_index()


@pytest.fixture
def empty() -> Tables:
    """An index of nothing."""
    return INDEXES.empty_index()


@pytest.fixture(scope="session")
def generated() -> Tables:
    """2,000 entities of layer 0 in planted communities, with a hierarchy, reports and a bill."""
    return INDEXES.synthetic_index(2_000, seed=3)
