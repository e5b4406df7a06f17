"""The indexes that the tests of inspecting and exporting look at."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
import pytest

from tests.inspection import indexes

Tables = dict[str, pa.Table]


@pytest.fixture
def make_tables() -> Callable[[Mapping[str, str]], Tables]:
    """Make the tiny index with other names."""
    return indexes.tiny_index


@pytest.fixture
def nasty() -> dict[str, str]:
    """Names that break pages and XML files, by the tiny index's plain names."""
    return dict(indexes.NASTY)


@pytest.fixture
def tiny() -> Tables:
    """The tiny index: `indexes.tiny_index` says in words what is in it."""
    return indexes.tiny_index()


@pytest.fixture
def empty() -> Tables:
    """An index of nothing."""
    return indexes.empty_index()


@pytest.fixture(scope="session")
def generated() -> Tables:
    """700 entities of layer 0 in planted communities, with a hierarchy, reports and a bill."""
    return indexes.synthetic_index(700, seed=3)
