"""Columns of text: what was written is read, whatever the batches were."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from hirag_dist.errors import SnapshotCorrupt
from hirag_dist.retrieval.lookup.tables import IdLookup
from hirag_dist.storage.serving.text_columns import BATCH_ROWS, TextColumns, text_schema, write_texts

SCHEMA = text_schema(["own", "text"], wide=["text"])


def columns_of(file: Path, schema: pa.Schema, *batches: pa.RecordBatch) -> TextColumns:
    """Write batches of texts, and map them."""
    with file.open("wb") as stream:
        write_texts(stream, schema, batches)
    return TextColumns(file)


def written(folder: Path, sizes: list[int]) -> tuple[TextColumns, list[str], list[str]]:
    """Write random texts, long, empty and of several scripts, in batches of the given sizes."""
    draw = random.Random(sum(sizes))
    own = [f"id {at}" for at in range(sum(sizes))]
    some = ["".join(draw.choices("aé漢🙂\n ", k=draw.choice((0, 1, 3, 40)))) for _ in range(500)]
    texts = draw.choices(some, k=len(own))
    first = 0
    batches = []
    for size in sizes:
        columns = [pa.array(values[first : first + size], pa.string()) for values in (own, texts)]
        batches.append(pa.record_batch(columns, ["own", "text"]))
        first += size
    return columns_of(folder / "texts.arrow", SCHEMA, *batches), own, texts


@pytest.mark.parametrize("sizes", [[], [3, 0, 4], [BATCH_ROWS - 1, 2, BATCH_ROWS, 5], [2 * BATCH_ROWS + 7]])
def test_every_value_is_read_by_its_row(tmp_path: Path, sizes: list[int]) -> None:
    columns, own, texts = written(tmp_path, sizes)
    assert columns.n_rows == len(own)
    assert columns.values("own", range(len(own))) == own
    assert columns.values("text", range(len(own))) == texts
    rows = random.Random(1).sample(range(len(own)), min(len(own), 50))
    assert columns.values("text", rows) == [texts[row] for row in rows]
    assert [columns.value("own", row) for row in rows] == [own[row] for row in rows]


@pytest.mark.parametrize("n_changed", [0, BATCH_ROWS + 9])
def test_values_in_two_files_are_read_as_from_one(tmp_path: Path, n_changed: int) -> None:
    own, texts = (list(values) for values in written(tmp_path, [BATCH_ROWS + 77])[1:])
    rng = np.random.default_rng(n_changed)
    changed = np.sort(rng.choice(len(own), n_changed, replace=False))
    slots = np.arange(len(own), dtype=np.int32)
    slots[changed] = len(own) + np.arange(n_changed)
    for row in changed.tolist():
        texts[row] = f"new {row}"
    rows = [pa.array([values[row] for row in changed], pa.string()) for values in (own, texts)]
    columns_of(tmp_path / "changed.arrow", SCHEMA, pa.record_batch(rows, ["own", "text"]))
    kept = np.sort(rng.choice(len(own), len(own) - 30, replace=False))  # and some rows of the first are gone
    columns = TextColumns(tmp_path / "texts.arrow", tmp_path / "changed.arrow", slots[kept])
    own, texts = [own[row] for row in kept], [texts[row] for row in kept]
    assert columns.n_rows == len(own)
    assert columns.values("own", range(len(own))) == own
    some = rng.integers(0, len(own), 60).tolist()
    for name, values in (("own", own), ("text", texts)):
        assert columns.values(name, some) == [values[row] for row in some]
        assert columns.value(name, some[0]) == values[some[0]]
        assert columns.table([name], 40, BATCH_ROWS + 40).column(0).to_pylist() == values[40 : BATCH_ROWS + 40]
        assert columns.equal_to(name, values[some[1]]).tolist() == [each == values[some[1]] for each in values]
    assert columns.holding("text", "É漢").tolist() == [at for at, text in enumerate(texts) if "é漢" in text]
    assert columns.holding("text", "NEW").tolist() == [at for at, text in enumerate(texts) if "new" in text]
    assert IdLookup(columns, "own").row(own[some[2]]) == some[2]


@pytest.mark.parametrize("slot", [-1, 3])
def test_a_slot_outside_both_files_is_damage(tmp_path: Path, slot: int) -> None:
    written(tmp_path, [2])
    columns_of(tmp_path / "changed.arrow", SCHEMA, pa.record_batch([["new"], ["new"]], ["own", "text"]))
    with pytest.raises(SnapshotCorrupt, match="does not belong"):
        TextColumns(tmp_path / "texts.arrow", tmp_path / "changed.arrow", np.array([0, slot], np.int32))


def test_a_value_that_is_no_text_does_not_stop_a_question(tmp_path: Path) -> None:
    bad = pa.array([b"fine", b"\xff\xfe"], pa.binary()).view(pa.string())
    columns = columns_of(tmp_path / "texts.arrow", text_schema(["own"]), pa.record_batch([bad], ["own"]))
    assert columns.values("own", [1, 0]) == ["��", "fine"]
