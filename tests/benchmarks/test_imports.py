"""The benchmark of imports: what it counts by itself, and what it finds unexplained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.imports import counted, unaccounted, with_corpus
from hirag_dist.interop.importers import read_working_folder
from tests.interop.importers.conftest import graphrag, jsonl, nano, write_lines

__all__ = ["graphrag", "jsonl", "nano"]  # fixtures


def counts(*numbers: int) -> dict[str, int]:
    names = ("documents", "chunks", "entities", "relations", "claims", "communities", "reports")
    return dict(zip(names, numbers, strict=True))


def test_rows_of_stores_are_counted(nano: Path) -> None:
    assert counted(nano) == counts(1, 2, 4, 2, 0, 3, 3)


@pytest.mark.parametrize("old", [False, True])
def test_rows_of_tables_are_counted(graphrag: Callable[..., Path], old: bool) -> None:
    assert counted(graphrag(old=old)) == counts(1, 2, 3, 3, 2, 2, 2)


def test_a_row_that_is_missing_without_a_reason_is_found(jsonl: Path) -> None:
    graph = read_working_folder(str(jsonl), len)
    held = counted(jsonl)
    assert held == counts(2, 2, 2, 1, 0, 2, 2)
    kept = held | {"documents": 1}  # the second is marked as not indexed
    assert unaccounted(graph, held, kept) == {}
    assert unaccounted(graph, held, kept | {"entities": 1}) == {"entities": 1}
    assert unaccounted(graph, held, kept | {"relations": 2}) == {"relations": -1}
    assert unaccounted(graph, dict(held) | {"reports": None}, kept | {"reports": 0}) == {}


def test_texts_are_put_beside_documents_that_have_none(jsonl: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    corpus, place = jsonl / "texts.jsonl", tmp_path_factory.mktemp("place") / "folder"
    write_lines(corpus, [{"doc_id": "doc-1", "text": "Alice."}])
    assert with_corpus(jsonl, corpus, place) == jsonl
    write_lines(jsonl / "documents.jsonl", [{"doc_id": "doc-1", "n_chars": 6}])
    assert with_corpus(jsonl, corpus, place) == place
    assert (place / "corpus.jsonl").read_text() == corpus.read_text()
    assert (place / "chunks.jsonl").is_file()
