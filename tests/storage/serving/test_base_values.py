"""Serving files written with a base are those written without one; values of the same rows are not derived again."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from hirag_dist import schemas
from hirag_dist.errors import SnapshotCorrupt
from hirag_dist.storage.serving.base_values import BaseFiles, BaseValues
from hirag_dist.storage.serving.writer import write_serving
from hirag_dist.storage.store import Store
from tests.storage.serving.test_writer import random_tables

COUNTS = ("entity_renderings", "relation_renderings", "chunk_renderings", "community_renderings")


def written(folder: Path, tables: dict[str, pa.Table], base: Path | None = None) -> Path:
    def batches(name: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if name in tables:
            yield from tables[name].select(columns).to_batches(max_chunksize=3)

    files = None if base is None else BaseFiles(base, lexical=True)
    write_serving(batches, tables["entities"].num_rows, Store(str(folder)).create, values=BaseValues(files))
    return folder


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


def same_files(one: Path, other: Path) -> bool:
    names = sorted(path.name for path in one.iterdir())
    assert names == sorted(path.name for path in other.iterdir())
    return all((one / name).read_bytes() == (other / name).read_bytes() for name in names)


@pytest.mark.parametrize("seed", range(3))
def test_the_files_are_those_without_a_base(tmp_path: Path, seed: int) -> None:
    tables = random_tables(seed)
    base = written(tmp_path / "base", tables)
    for name, other in (("same", tables), ("changed", changed(tables, seed)), ("other", random_tables(seed + 1))):
        alone = written(tmp_path / f"{name}-alone", other)
        assert same_files(alone, written(tmp_path / name, other, base))


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
    counts, expected = ({name: np.load(folder / f"{name}.npy") for name in COUNTS} for folder in (new, alone))
    at_first = [
        entities[0]["entity_id"] in (row["source_id"], row["target_id"]) for row in tables["relations"].to_pylist()
    ]
    assert 0 < sum(at_first) < len(at_first)
    assert (counts["relation_renderings"] - expected["relation_renderings"]).tolist() == [
        0 if own else 1000 for own in at_first
    ]
    assert (counts["entity_renderings"] - expected["entity_renderings"]).tolist() == [0] + [1000] * (len(entities) - 1)
    assert set((counts["chunk_renderings"] - expected["chunk_renderings"]).tolist()) == {1000}
    reported = np.load(new / "community_reports.npy") >= 0
    assert reported.any()
    assert (counts["community_renderings"] - expected["community_renderings"])[reported].tolist() == [1000] * int(
        reported.sum()
    )
    own_keys = np.load(new / "entity_name_keys.npy")
    assert entities[0]["layer"] == 0
    assert np.count_nonzero(own_keys) == 1


def test_a_base_stays_readable_when_it_is_removed(tmp_path: Path) -> None:
    tables = random_tables(3)
    files = BaseFiles(written(tmp_path / "base", tables))
    shutil.rmtree(tmp_path / "base")
    rows = files.rows("entities", lambda table, columns: tables[table].select(columns).to_batches())
    assert rows.tolist() == list(range(tables["entities"].num_rows))
    with pytest.raises(SnapshotCorrupt, match="No such file"):
        BaseFiles(tmp_path / "base")
