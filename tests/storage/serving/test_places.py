"""Places of a snapshot, written as serving files and read again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from hirag_dist import schemas
from hirag_dist.storage.serving.mmap_files import ServingFiles
from hirag_dist.storage.serving.places import RECORDS, MappedPlaces, write_places
from hirag_dist.storage.store import Store


def box(*numbers: int) -> bytes:
    return np.array(numbers, "<u2").tobytes()


def place(document_id: str, start: int, end: int, kind: str = "page", **others: Any) -> dict[str, Any]:
    empty = {"page": 0, "page_label": "", "section": "", "anchor": "", "row": 0, "boxes": b""}
    return {"document_id": document_id, "start": start, "end": end, "kind": kind} | empty | others


PLACES = [
    place("d1", 0, 10, page=1, page_label="i", boxes=box(0, 0, 60000, 1000)),
    place("d1", 11, 20, page=1, page_label="i", boxes=box(0, 1100, 60000, 2100, 0, 2200, 60000, 3200)),
    place("d1", 20, 30, page=2, page_label="ii"),
    place("d3", 5, 30, "section", section="Install", anchor="install"),
]
URIS = {"d1": "a.pdf", "d2": "b.txt", "d3": "c.html"}


def mapped(folder: Path, uris: dict[str, str], places: list[dict[str, Any]], batch_rows: int = 3) -> MappedPlaces:
    columns = {"document_id": list(uris), "uri": list(uris.values()), "record": list(range(len(uris)))}
    documents = pa.table(columns, schema=pa.schema([schemas.DOCUMENTS.field(name) for name in columns]))
    tables = {"documents": documents, "places": pa.Table.from_pylist(places, schemas.PLACES)}

    def batches(name: str, wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
        yield from tables[name].select(wanted).to_batches(max_chunksize=batch_rows)

    def save(name: str, array: Any) -> None:
        np.save(folder / f"{name}.npy", array)

    write_places(batches, Store(str(folder)).create, save, documents["document_id"].combine_chunks())
    return MappedPlaces(ServingFiles(folder), lambda: np.arange(len(uris), dtype=np.int32))


@pytest.mark.parametrize("batch_rows", [1, 3, 99])
def test_places_of_a_stretch(tmp_path: Path, batch_rows: int) -> None:
    found = mapped(tmp_path, URIS, PLACES, batch_rows).between(0, "a.pdf", 4, 25, "x" * 21)
    assert [(each.start, each.end, each.page, each.page_label, each.link) for each in found] == [
        (4, 20, 1, "i", "a.pdf#page=1"),
        (20, 25, 2, "ii", "a.pdf#page=2"),
    ]
    assert [len(each.boxes) for each in found] == [1, 0]  # three lines below each other


def test_a_quotation_has_a_box_for_each_line(tmp_path: Path) -> None:
    (found,) = mapped(tmp_path, URIS, PLACES).quoted(0, "a.pdf", 5, 15, "x" * 10)
    assert [(round(each.left * 65_535), round(each.top * 65_535)) for each in found.boxes] == [
        (30000, 0),
        (0, 1100),
        (0, 2200),
    ]


def test_links_begin_with_the_address_of_the_files(tmp_path: Path) -> None:
    places = mapped(tmp_path, {"d1": "a b.pdf", "d2": "s3://bucket/b.txt", "d3": "c.html"}, PLACES)
    places.source_url = "https://example.org/files/"
    assert places.between(0, "a b.pdf", 0, 9, "words")[0].link == "https://example.org/files/a%20b.pdf#page=1"
    assert places.quoted(1, "s3://bucket/b.txt", 0, 5, "words")[0].link == "s3://bucket/b.txt#:~:text=words"
    assert places.quoted(2, "c.html", 6, 9, "it")[0].link == "https://example.org/files/c.html#install:~:text=it"


def test_records_of_files_come_from_the_documents(tmp_path: Path) -> None:
    places = mapped(tmp_path, {"d1": "a.jsonl", "d2": "a.jsonl"}, [])
    assert [path.stem for path in tmp_path.iterdir()] == [RECORDS]
    (found,) = places.between(1, "a.jsonl", 0, 9, "words")
    assert (found.kind, found.row, found.display) == ("record", 2, "record 2")
    older = MappedPlaces(ServingFiles(tmp_path / "older"), lambda: np.array([4, 7], np.int32))
    assert older.quoted(1, "a.jsonl", 0, 9, "words")[0].row == 8
