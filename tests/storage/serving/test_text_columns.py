"""Columns of text: what was written is read, whatever the batches were."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from hirag_dist.errors import SnapshotCorrupt
from hirag_dist.storage.serving.text_columns import BATCH_ROWS, TextColumns, text_schema, write_texts

SCHEMA = text_schema(["own", "text"], wide=["text"])


def written(folder: Path, sizes: list[int]) -> tuple[TextColumns, list[str], list[str]]:
    """Write random texts, long, empty and of several scripts, in batches of the given sizes."""
    draw = random.Random(sum(sizes))
    own = [f"id {at}" for at in range(sum(sizes))]
    texts = ["".join(draw.choices("aé漢🙂\n ", k=draw.choice((0, 1, 3, 40)))) for _ in own]
    first = 0
    batches = []
    for size in sizes:
        columns = [pa.array(values[first : first + size], pa.string()) for values in (own, texts)]
        batches.append(pa.record_batch(columns, ["own", "text"]))
        first += size
    with open(folder / "texts.arrow", "wb") as file:
        write_texts(file, SCHEMA, batches)
    return TextColumns(folder / "texts.arrow"), own, texts


@pytest.mark.parametrize("sizes", [[], [3, 0, 4], [BATCH_ROWS - 1, 2, BATCH_ROWS, 5], [3 * BATCH_ROWS + 7]])
def test_every_value_is_read_by_its_row(tmp_path: Path, sizes: list[int]) -> None:
    columns, own, texts = written(tmp_path, sizes)
    assert columns.n_rows == len(own)
    assert columns.values("own", range(len(own))) == own
    assert columns.values("text", range(len(own))) == texts
    rows = random.Random(1).sample(range(len(own)), min(len(own), 50))
    assert columns.values("text", rows) == [texts[row] for row in rows]
    assert [columns.value("own", row) for row in rows] == [own[row] for row in rows]


def test_values_that_hold_a_text(tmp_path: Path) -> None:
    columns, _, texts = written(tmp_path, [BATCH_ROWS + 3, 2])
    assert columns.holding("text", "É漢").tolist() == [at for at, text in enumerate(texts) if "é漢" in text]


def test_a_value_that_is_no_text_does_not_stop_a_question(tmp_path: Path) -> None:
    bad = pa.array([b"fine", b"\xff\xfe"], pa.binary()).view(pa.string())
    with open(tmp_path / "texts.arrow", "wb") as file:
        write_texts(file, text_schema(["own"]), [pa.record_batch([bad], ["own"])])
    assert TextColumns(tmp_path / "texts.arrow").values("own", [1, 0]) == ["��", "fine"]


@pytest.mark.parametrize("data", [b"", b"not an Arrow file at all"])
def test_a_damaged_file_is_said(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "texts.arrow").write_bytes(data)
    with pytest.raises(SnapshotCorrupt, match=r"texts\.arrow is damaged"):
        TextColumns(tmp_path / "texts.arrow")
