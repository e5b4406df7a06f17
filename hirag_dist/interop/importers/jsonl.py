"""The JSONL form that recorded indexes are kept in: documents, chunks, entities and relations, one object a line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hirag_dist.interop.importers.claims import claim_of
from hirag_dist.interop.importers.files import read_lines
from hirag_dist.interop.importers.model import (
    SourceChunk,
    SourceCommunity,
    SourceDocument,
    SourceEntity,
    SourceGraph,
    SourceRelation,
    labels_of,
    number_of,
    text_of,
    texts_of,
    type_of,
    unquoted,
    whole_of,
)
from hirag_dist.interop.importers.reports import report_of

FILES = ("documents.jsonl", "chunks.jsonl", "entities.jsonl", "relations.jsonl")
CORPUS = "corpus.jsonl"
CLAIMS = "claims.jsonl"
REPORTS = "community_reports.jsonl"


def read_jsonl(folder: Path, communities: bool = False) -> SourceGraph:
    """Return the records of such a folder.

    Rows marked `indexed: false` were never part of the index and are left out. Where documents hold no text, a
    `corpus.jsonl` in the same folder may (`doc_id`, `text`): it is looked up by `doc_id`, then by any other field of
    the document that ends in `doc_id`. `claims.jsonl` (`subject`, `object`, `type`, `status`, `start_date`, `end_date`,
    `description`, `source_text`, `chunk_id`) and, where communities are asked for, `community_reports.jsonl`
    (`community_id`, `level`, `nodes`, `report`) are read where they are there.

    Raises:
        InputError: a file is missing or damaged.
    """
    documents, chunks, entities, relations = (read_lines(folder / name) for name in FILES)
    source = SourceGraph("jsonl", [], [], [], [])
    texts = _corpus(folder)
    source.documents = [_document(row, texts) for row in _indexed(documents, "documents", "doc_id", source)]
    held = {document.key: document.text for document in source.documents}
    in_order = sorted(_indexed(chunks, "chunks", "chunk_id", source), key=lambda row: whole_of(row.get("order")) or 0)
    source.chunks = [_chunk(row, held) for row in in_order]
    for number, row in enumerate(entities, 1):
        if not text_of(row.get("name")).strip():
            source.skip("entities", 1, f"entities.jsonl line {number}", "it has no name")
            continue
        source.entities.append(
            SourceEntity(
                text_of(row["name"]), type_of(row.get("type")), _descriptions(row), texts_of(row.get("source_ids"))
            )
        )
    for number, row in enumerate(relations, 1):
        if not (text_of(row.get("source")).strip() and text_of(row.get("target")).strip()):
            source.skip("relations", 1, f"relations.jsonl line {number}", "it does not name two entities")
            continue
        source.relations.append(
            SourceRelation(
                text_of(row["source"]),
                text_of(row["target"]),
                _descriptions(row),
                number_of(row.get("weight")),
                texts_of(row.get("source_ids")),
            )
        )
    source.claims = [
        claim_of(row, f"in {CLAIMS} line {number}", text_of(row.get("chunk_id")))
        for number, row in enumerate(_lines(folder / CLAIMS), 1)
    ]
    for number, row in enumerate(_lines(folder / REPORTS) if communities else [], 1):
        _add_community(row, number, source)
    return source


def _lines(path: Path) -> list[dict[str, Any]]:
    return read_lines(path) if path.is_file() else []


def _add_community(row: dict[str, Any], number: int, source: SourceGraph) -> None:
    """Take a community and its report from one line."""
    key, level = text_of(row.get("community_id")), whole_of(row.get("level"))
    if not key or level is None:
        source.skip("communities", 1, f"{REPORTS} line {number}", "it has no community_id, or no level")
        return
    source.communities.append(SourceCommunity(key, level, texts_of(row.get("nodes"))))
    held = row.get("report")
    report = report_of(key, held, text_of(row.get("title"))) if isinstance(held, dict) else None
    if report is not None:
        source.reports.append(report)


def _corpus(folder: Path) -> dict[str, str]:
    return {text_of(row.get("doc_id")): text_of(row.get("text")) for row in _lines(folder / CORPUS)}


def _indexed(rows: list[dict[str, Any]], sort: str, key: str, source: SourceGraph) -> list[dict[str, Any]]:
    kept = []
    for number, row in enumerate(rows, 1):
        if row.get("indexed") is False:
            source.skip(sort, 1, f"{sort[:-1]} {row.get(key)}", "the index does not hold it: indexed is false")
        elif not text_of(row.get(key)):
            source.skip(sort, 1, f"{sort}.jsonl line {number}", f"it has no {key}")
        else:
            kept.append(row)
    return kept


def _document(row: dict[str, Any], corpus: dict[str, str]) -> SourceDocument:
    key = text_of(row["doc_id"])
    text = row.get("text")
    if text is None:
        others = (text_of(value) for name, value in row.items() if name.endswith("doc_id"))
        text = next((corpus[other] for other in (key, *others) if other in corpus), None)
    return SourceDocument(
        key,
        None if text is None else text_of(text),
        uri=text_of(row.get("uri")),
        title=text_of(row.get("title")),
        labels=labels_of(row),
        n_chars=whole_of(row.get("n_chars")) or 0,
    )


def _chunk(row: dict[str, Any], documents: dict[str, str | None]) -> SourceChunk:
    start, end = whole_of(row.get("char_start")), whole_of(row.get("char_end"))
    key, text = text_of(row.get("doc_id")), row.get("text")
    of_document = documents.get(key)
    if text is None and of_document and start is not None and end is not None:
        text = of_document[start:end]
    return SourceChunk(
        text_of(row["chunk_id"]),
        (key,) if key else (),
        None if text is None else text_of(text),
        start,
        end,
        whole_of(row.get("n_tokens")) or 0,
    )


def _descriptions(row: dict[str, Any]) -> tuple[str, ...]:
    return tuple(unquoted(text) for text in texts_of(row.get("descriptions", row.get("description"))))
