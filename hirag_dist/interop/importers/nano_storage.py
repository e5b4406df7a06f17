"""The working folders of nano-graphrag and its descendants, HiRAG and LightRAG: kv_store_*.json and one GraphML graph.

They write the same files and differ in what is in them. LightRAG: edges have `keywords`, nodes a `file_path`. HiRAG:
what its summaries of clusters say has no source chunk. It puts summary entities into the same graph as the others,
without a mark of their layer (an empty source is none: a name that a chunk holds too gets both), so **all of them
become entities of layer 0**, and the hierarchy above is rebuilt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hirag_dist.interop.importers.model import (
    SEP,
    SourceChunk,
    SourceCommunity,
    SourceDocument,
    SourceEntity,
    SourceGraph,
    SourceRelation,
    labels_of,
    number_of,
    read_graphml,
    read_json,
    text_of,
    texts_of,
    type_of,
    unquoted,
    whole_of,
)
from hirag_dist.interop.importers.reports import report_of

DOCUMENTS, CHUNKS = "kv_store_full_docs.json", "kv_store_text_chunks.json"
GRAPH = "graph_chunk_entity_relation.graphml"
FILES = (DOCUMENTS, CHUNKS, GRAPH)
# LightRAG from 1.4: the chunks of each entity and relation in full, where the graph holds the first few hundred
_ENTITY_CHUNKS, _RELATION_CHUNKS = "kv_store_entity_chunks.json", "kv_store_relation_chunks.json"
_REPORTS = "kv_store_community_reports.json"
_STATUS = "kv_store_doc_status.json"
_NO_PATHS = {"unknown_source", "no-file-path"}
_LIGHTRAG_MARKS = {"keywords", "file_path", "entity_id"}


def read_storage(folder: Path, communities: bool = False) -> SourceGraph:
    """Return the records of such a folder; vdb_*.json and caches of replies are not read.

    None of these tools extracts claims, and LightRAG has no communities.

    Raises:
        InputError: a file is missing or damaged.
    """
    documents, chunks = read_json(folder / DOCUMENTS), read_json(folder / CHUNKS)
    status = _optional(folder, _STATUS)
    source = SourceGraph("nano-graphrag", [], [], [], [])
    source.documents = [_document(key, row, status.get(key, {})) for key, row in documents.items()]
    in_order = sorted(chunks.items(), key=lambda item: whole_of(item[1].get("chunk_order_index")) or 0)
    source.chunks = [_chunk(key, row) for key, row in in_order]
    marks: set[str] = set()
    without_source = False
    for tag, row in read_graphml(folder / GRAPH):
        marks |= _LIGHTRAG_MARKS & row.keys()
        without_source = without_source or "" in row.get("source_id", "").split(SEP)
        if tag == "node":
            source.entities.append(_entity(row))
        else:
            source.relations.append(_relation(row))
    if marks or (folder / _ENTITY_CHUNKS).is_file():
        source.kind = "lightrag"
        _add_all_chunks(source, folder)
    elif without_source:
        source.kind = "hirag"
    for key, row in _optional(folder, _REPORTS).items() if communities else ():
        _add_community(key, row, source)
    return source


def _add_community(key: str, row: Mapping[str, Any], source: SourceGraph) -> None:
    """Take a community and its report, which nano-graphrag stores as one."""
    level = whole_of(row.get("level"))
    if level is None:
        source.left_out.append((f"community {key}", "it has no level"))
        return
    source.communities.append(SourceCommunity(key, level, texts_of(row.get("nodes"))))
    held = row.get("report_json")
    report = report_of(key, held, text_of(row.get("title"))) if isinstance(held, dict) else None
    if report is not None:
        source.reports.append(report)


def _optional(folder: Path, name: str) -> dict[str, dict[str, Any]]:
    return read_json(folder / name) if (folder / name).is_file() else {}


def _document(key: str, row: Mapping[str, Any], status: Mapping[str, Any]) -> SourceDocument:
    paths = (text_of(held.get("file_path")).strip() for held in (row, status))
    path = next((path for path in paths if path and path not in _NO_PATHS), "")
    text = row.get("content")
    return SourceDocument(
        text_of(key),
        None if text is None else text_of(text),
        uri=path,
        title=path,
        labels=labels_of(row, row.get("metadata"), status, status.get("metadata")),
    )


def _chunk(key: str, row: Mapping[str, Any]) -> SourceChunk:
    home, text = text_of(row.get("full_doc_id")), row.get("content")
    return SourceChunk(
        text_of(key),
        (home,) if home else (),
        None if text is None else text_of(text),
        n_tokens=whole_of(row.get("tokens")) or 0,
    )


def _entity(row: Mapping[str, str]) -> SourceEntity:
    return SourceEntity(
        text_of(row.get("id")),
        type_of(row.get("entity_type")),
        _descriptions(row),
        texts_of(row.get("source_id")),
    )


def _relation(row: Mapping[str, str]) -> SourceRelation:
    return SourceRelation(
        text_of(row.get("source")),
        text_of(row.get("target")),
        _descriptions(row),
        number_of(row.get("weight")),
        texts_of(row.get("source_id")),
    )


def _descriptions(row: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(unquoted(text) for text in texts_of(row.get("description")))


def _add_all_chunks(source: SourceGraph, folder: Path) -> None:
    of_entities, of_relations = _optional(folder, _ENTITY_CHUNKS), _optional(folder, _RELATION_CHUNKS)
    if of_entities:
        source.entities = [
            replace(row, chunk_keys=_united(row.chunk_keys, of_entities.get(row.name, {}))) for row in source.entities
        ]
    if of_relations:
        source.relations = [
            replace(row, chunk_keys=_united(row.chunk_keys, of_relations.get(_pair(row), {})))
            for row in source.relations
        ]


def _pair(row: SourceRelation) -> str:
    return SEP.join(sorted((row.source, row.target)))


def _united(keys: Iterable[str], row: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*keys, *texts_of(row.get("chunk_ids")))))
