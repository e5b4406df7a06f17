"""Serving files written with a base are those written without one; values of the same rows are not derived again."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from hirag_dist import schemas
from hirag_dist.errors import SnapshotCorrupt
from hirag_dist.storage.serving.base_values import BaseFiles
from tests.storage.serving.test_writer import random_tables, written

COUNTS = ("entity_renderings", "relation_renderings", "chunk_renderings", "community_renderings")


def changed(tables: dict[str, pa.Table], seed: int) -> dict[str, pa.Table]:
    """The same tables with some rows removed, some changed in one column, and some added."""
    draw = random.Random(seed)
    texts = {
        "documents": ["title"],
        "chunks": ["text", "start"],
        "entities": ["name", "type", "description", "layer"],
        "relations": ["description", "source_id"],
        "communities": ["level"],
        "reports": ["title", "summary", "rating"],
    }
    found = {}
    for name, columns in texts.items():
        rows: list[dict[str, Any]] = []
        for row in tables[name].to_pylist():
            chance = draw.random()
            if chance < 0.1:
                continue
            if chance < 0.3:
                column = draw.choice(columns)
                row[column] = f"{row[column]} again" if isinstance(row[column], str) else row[column] + 1
            rows.append(row)
            if chance > 0.9:
                own_id = tables[name].schema.names[0]
                rows.append(row | {own_id: f"{row[own_id]}-more"})
        found[name] = pa.Table.from_pylist(rows, getattr(schemas, name.upper()))
    return found


@pytest.mark.parametrize("seed", range(3))
def test_the_files_are_those_without_a_base(tmp_path: Path, seed: int) -> None:
    tables = random_tables(seed)
    base = written(tmp_path / "base", tables)
    for name, other in (("same", tables), ("changed", changed(tables, seed)), ("other", random_tables(seed + 1))):
        folders = written(tmp_path / f"{name}-alone", other), written(tmp_path / name, other, base)
        alone, found = ({path.name: path.read_bytes() for path in folder.iterdir()} for folder in folders)
        assert found == alone


def test_values_of_the_same_rows_are_taken_and_others_derived(tmp_path: Path) -> None:
    tables = random_tables(0)
    base = written(tmp_path / "base", tables)
    for name in COUNTS:
        np.save(base / f"{name}.npy", np.load(base / f"{name}.npy") + 1000)
    keys = np.load(base / "entity_name_keys.npy")
    np.save(base / "entity_name_keys.npy", np.zeros_like(keys))
    entities = tables["entities"].to_pylist()
    entities[0]["name"] = "Quite another name"
    tables["entities"] = pa.Table.from_pylist(entities, schemas.ENTITIES)
    new = written(tmp_path / "new", tables, base)
    alone = written(tmp_path / "alone", tables)
    entity, relation, chunk, community = (
        (np.load(new / f"{name}.npy") - np.load(alone / f"{name}.npy")).tolist() for name in COUNTS
    )
    ends = [(row["source_id"], row["target_id"]) for row in tables["relations"].to_pylist()]
    assert set(relation) == {0, 1000}
    assert relation == [0 if entities[0]["entity_id"] in pair else 1000 for pair in ends]
    assert entity == [0] + [1000] * (len(entities) - 1)
    assert set(chunk) == {1000}
    reported = np.load(new / "community_reports.npy") >= 0
    assert set(np.array(community)[reported]) == {1000}
    own_keys = np.load(new / "entity_name_keys.npy")
    assert (entities[0]["layer"], np.count_nonzero(own_keys)) == (0, 1)


def test_a_base_stays_readable_when_it_is_removed(tmp_path: Path) -> None:
    tables = random_tables(3)
    files = BaseFiles(written(tmp_path / "base", tables))
    shutil.rmtree(tmp_path / "base")
    rows = files.rows("entities", lambda table, columns: tables[table].select(columns).to_batches())
    assert rows.tolist() == list(range(tables["entities"].num_rows))
    with pytest.raises(SnapshotCorrupt, match="No such file"):
        BaseFiles(tmp_path / "base")
