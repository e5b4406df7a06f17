"""Matching of communities with those of the previous snapshot."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from hirag_dist import schemas
from hirag_dist.indexing.publish import lineage
from hirag_dist.storage.snapshot.writer import make_current, write_snapshot
from hirag_dist.storage.store import Store
from tests.table_rows import filled_table


def communities(**members: str) -> pa.Table:
    rows = ({"community_id": name, "entity_ids": sorted(letters)} for name, letters in members.items())
    return filled_table(schemas.COMMUNITIES, rows)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An index whose current snapshot has the communities abcd, efgh and xy."""
    store = Store(str(tmp_path))
    names = ("documents", "chunks", "entities", "relations", "clusters", "layers", "reports", "usage", "rejects")
    tables = {name: getattr(schemas, name.upper()).empty_table() for name in names}
    tables["communities"] = communities(one="abcd", two="efgh", three="xy")
    none = np.zeros((0, 3), np.float32)
    arrays = {"vectors/entities": none, "vectors/chunks": none}
    manifest = write_snapshot(store, tables, arrays, embedder="e", complete=True, build={}, notes={})
    make_current(store, manifest.snapshot_id)
    return store


def test_a_community_continues_the_one_it_shares_half_with(store: Store) -> None:
    new = communities(one="abcd", grown="efghi", halved="xz", new="uvw", mixed="abefgh")
    assert lineage(store, new) == {"grown": "two", "mixed": "two"}  # one: the same id; xz: a third is shared


def test_nothing_before_or_a_damaged_snapshot(store: Store, tmp_path: Path) -> None:
    new = communities(grown="efghi")
    assert lineage(Store(str(tmp_path / "other")), new) == {}
    next((tmp_path / "snapshots").glob("*/communities.parquet")).write_bytes(b"damaged")
    assert lineage(store, new) == {}
