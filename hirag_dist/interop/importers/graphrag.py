"""Microsoft GraphRAG's Parquet tables, of all its versions: `create_final_*` before 2.0, plain names since.

Their relations name entities by title. A description may have paragraphs and stays one description. What our own
export adds (labels, spans, mentions, layers) is read back: of a snapshot, layer 0 comes home as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hirag_dist.core.text.normalize import one_line
from hirag_dist.interop.importers.model import (
    LABEL_FIELDS,
    SourceChunk,
    SourceCommunity,
    SourceDocument,
    SourceEntity,
    SourceGraph,
    SourceRelation,
    labels_of,
    number_of,
    parsed,
    read_parquet,
    text_of,
    texts_of,
    type_of,
    whole_of,
)
from hirag_dist.interop.importers.reports import claim_of, report_of

TABLES = ("documents", "text_units", "entities", "relationships")
FILES = tuple(f"{name}.parquet" for name in TABLES)
OLD_FILES = tuple(f"create_final_{name}.parquet" for name in TABLES)
_NODES = "create_final_nodes.parquet"  # before 2.0: which community of each level an entity is in

# columns to read, and whether the table must have them; a|b: either
_DOCUMENTS = {
    "id": True,
    "text|raw_content": True,
    "title": False,
    "uri": False,
    "source_ids": False,  # of this package
    "metadata": False,  # where GraphRAG puts the columns of its input
    **dict.fromkeys(LABEL_FIELDS, False),
}
_TEXT_UNITS = {"id": True, "text": True, "document_id|document_ids": False, "start": False, "end": False}
_ENTITIES = {"id": False, "title|name": True, "type": False, "description": False, "text_unit_ids": False}
_RELATIONSHIPS = {"source": True, "target": True, "description": False, "weight": False, "text_unit_ids": False}
_COVARIATES = {
    "subject_id": True,
    "description": True,
    "text_unit_id": False,
    **dict.fromkeys(("id", "object_id", "type", "status", "start_date", "end_date", "source_text"), False),
}
_COMMUNITIES = {"community|id": True, "level": True, "parent": False, "entity_ids": False}
_REPORTS = {
    "community": True,
    "title": True,
    "summary": True,
    **dict.fromkeys(("rank", "findings", "rating_explanation|rank_explanation"), False),
}
_OURS = {"layer": False, "described": False, "n_mentions": False, "kind": False}


def read_graphrag(folder: Path, files: tuple[str, ...], communities: bool = False) -> SourceGraph:
    """Return the records of GraphRAG's tables; covariates where there are some, and communities where asked for.

    Raises:
        InputError: a table is missing or damaged, or lacks a column that it must have.
    """
    documents, units, entities, relations = (
        read_parquet(folder / name, columns)
        for name, columns in zip(
            files, (_DOCUMENTS, _TEXT_UNITS, _ENTITIES | _OURS, _RELATIONSHIPS | _OURS), strict=True
        )
    )
    kind = "graphrag" if files == FILES else "graphrag-0.x"
    # What our own export has of the layers above 0 is no loss: an import builds them again.
    source = SourceGraph(
        kind,
        [_document(row) for row in documents],
        [_chunk(row) for row in units],
        [_entity(row) for row in entities if not row.get("layer")],
        [_relation(row) for row in relations if (row.get("kind") or "extracted") == "extracted"],
    )
    prefix = "" if files == FILES else "create_final_"
    source.claims = [
        claim_of(row, text_of(row.get("id")) or f"in row {number}", text_of(row.get("text_unit_id")))
        for number, row in enumerate(_optional(folder / f"{prefix}covariates.parquet", _COVARIATES))
    ]
    if communities:
        names = {
            text_of(row["id"]): "" if row.get("layer") else _name(row) for row in entities if row.get("id") is not None
        }
        source.communities = _communities(folder, prefix, names)
        reports = _optional(folder / f"{prefix}community_reports.parquet", _REPORTS)
        found = (report_of(text_of(row["community"]), row) for row in reports)
        source.reports = [report for report in found if report is not None]
    return source


def _optional(path: Path, columns: Mapping[str, bool]) -> list[dict[str, Any]]:
    return read_parquet(path, columns) if path.is_file() else []


def _communities(folder: Path, prefix: str, names: Mapping[str, str]) -> list[SourceCommunity]:
    """Return the communities with the names of their members: by ids, or, before 1.0, as the nodes' table has them.

    Args:
        names: Names of entities, by id; empty for those of layers above 0, which are left out.
    """
    rows = _optional(folder / f"{prefix}communities.parquet", _COMMUNITIES)
    inside: dict[tuple[int | None, str], list[str]] = {}
    if any(row.get("entity_ids") is None for row in rows):
        for node in _optional(folder / _NODES, {"title": True, "level": True, "community": True}):
            inside.setdefault((whole_of(node["level"]), text_of(node["community"])), []).append(text_of(node["title"]))
    found = []
    for row in rows:
        key = text_of(row["community"] if row.get("community") is not None else row["id"])
        level = whole_of(row["level"]) or 0
        ids = row.get("entity_ids")
        own = inside.get((level, key), []) if ids is None else [names.get(text_of(each), text_of(each)) for each in ids]
        found.append(SourceCommunity(key, level, tuple(filter(None, own)), text_of(row.get("parent"))))
    return found


def _document(row: Mapping[str, Any]) -> SourceDocument:
    text = row.get("text")
    if text is None:
        text = row.get("raw_content")
    title = text_of(row.get("title"))
    metadata = row.get("metadata")
    if isinstance(metadata, str):
        metadata = parsed(metadata)
    properties = dict(metadata) if isinstance(metadata, dict) else {}
    record = properties.get("record")
    fields = properties.pop("fields", None) or {}  # what this package wrote for declared fields
    return SourceDocument(
        text_of(row["id"]),
        None if text is None else text_of(text),
        uri=text_of(row.get("uri")) or title,
        title=title,
        record=min(whole_of(record) or 0, 2**31 - 1),
        labels=labels_of(row, metadata),
        source_ids=texts_of(row.get("source_ids")),
        properties=properties | {name: value for name, value in fields.items() if value is not None},
    )


def _chunk(row: Mapping[str, Any]) -> SourceChunk:
    one = text_of(row.get("document_id"))
    text = row.get("text")
    return SourceChunk(
        text_of(row["id"]),
        (one,) if one else texts_of(row.get("document_ids"), ","),
        None if text is None else text_of(text),
        whole_of(row.get("start")),
        whole_of(row.get("end")),
    )


def _entity(row: Mapping[str, Any]) -> SourceEntity:
    # our own titles are unique names, so entities that are kept apart by type stay apart
    return SourceEntity(
        _name(row),
        type_of(row.get("type")),
        _descriptions(row),
        texts_of(row.get("text_unit_ids"), ","),
        n_mentions=whole_of(row.get("n_mentions")),
        described=row.get("described"),
    )


def _name(row: Mapping[str, Any]) -> str:
    return text_of(row["title"] if row.get("title") is not None else row.get("name"))


def _relation(row: Mapping[str, Any]) -> SourceRelation:
    return SourceRelation(
        text_of(row["source"]),
        text_of(row["target"]),
        _descriptions(row),
        number_of(row.get("weight")),
        texts_of(row.get("text_unit_ids"), ","),
    )


def _descriptions(row: Mapping[str, Any]) -> tuple[str, ...]:
    text = text_of(row.get("description"))
    parts = text.splitlines() if row.get("layer") is not None else [text]
    return tuple(flat for part in parts if (flat := one_line(part)))
