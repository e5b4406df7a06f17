"""A snapshot in the formats of others: Microsoft GraphRAG's tables (output format 3.x), and GraphML.

GraphRAG's query engine and its readers can open the tables. GraphRAG names the endpoints of relations by title, this
package by id. Titles are therefore made unique here: where a name occurs more than once (a summary entity named like
one of its members), the later ones get their layer or type in brackets. Fields that GraphRAG lacks stand in further
columns, which its readers ignore. GraphML is for Gephi, igraph, networkx and whatever else reads it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO
from xml.sax.saxutils import escape, quoteattr

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hirag_dist.core.graph.csr import rows_of
from hirag_dist.schemas import CLAIMS, METADATA_FIELDS
from hirag_dist.types import ClaimItem, IntVector


def linked(heads: IntVector, tails: IntVector, n_heads: int, n_tails: int) -> Any:
    """Return the sparse matrix (n_heads, n_tails) of pairs of rows; pairs with a tail below 0 are left out."""
    from scipy.sparse import csr_array  # not at the top: a large import

    known = tails >= 0
    return csr_array((np.ones(int(known.sum()), np.int32), (heads[known], tails[known])), shape=(n_heads, n_tails))


def links_of(lists: pa.ChunkedArray, order: pa.ChunkedArray) -> Any:
    """Return which rows have which rows of `order` in their list of ids; ids that are not there are left out."""
    flat = lists.combine_chunks()
    heads = np.repeat(np.arange(len(flat)), pc.list_value_length(flat).fill_null(0).to_numpy(zero_copy_only=False))
    return linked(heads, rows_of(pa.chunked_array([flat.flatten()]), order), len(flat), len(order))


def list_column(links: Any, ids: pa.ChunkedArray) -> pa.ListArray:
    """Return the ids of the rows linked to each row, in their order and each once, as a column of lists."""
    rows = links.tocsr()
    rows.sort_indices()
    return pa.ListArray.from_arrays(
        pa.array(rows.indptr, pa.int32()), ids.combine_chunks().take(pa.array(rows.indices))
    )


_STRINGS = pa.list_(pa.string())
_INTS = pa.list_(pa.int64())
_FIELD_TYPES = {"string": pa.string(), "number": pa.float64(), "date": pa.string(), "bool": pa.bool_()}
_FINDINGS = pa.list_(pa.struct([("explanation", pa.string()), ("summary", pa.string())]))


def graphrag_tables(tables: Mapping[str, pa.Table], period: str = "") -> dict[str, pa.Table]:
    """Return documents, text_units, entities, relationships, communities, community_reports, and covariates if any.

    Args:
        tables: documents, chunks, entities, relations, communities and reports, as in `schemas`; `claims`,
            `metadata_fields` and `document_metadata` where there are some.
        period: day of the build as ISO 8601; it goes to `period` and `creation_date`.

    Returns:
        Tables by GraphRAG's names. Relations with an endpoint that is not in `entities` are left out.
    """
    chunks, entities, communities = (tables[name] for name in ("chunks", "entities", "communities"))
    relations, ends = _resolved(tables["relations"], entities)
    sources, targets = (end[ends[0] != ends[1]] for end in ends)
    joined = linked(sources, targets, entities.num_rows, entities.num_rows)
    degrees = _counts(joined + joined.T)  # distinct neighbours, as GraphRAG counts them
    entity_chunks = links_of(entities["chunk_ids"], chunks["chunk_id"])
    relation_chunks = links_of(relations["chunk_ids"], chunks["chunk_id"])
    members = links_of(communities["entity_ids"], entities["entity_id"])
    titles = unique_titles(entities)
    children, parents = _family(communities)
    claims = tables.get("claims", CLAIMS.empty_table())
    covariates = {"covariates": _covariates(claims, titles, entities)} if claims.num_rows else {}
    return {
        "documents": _documents(tables, period),
        "text_units": _text_units(chunks, entities, relations, entity_chunks, relation_chunks, claims),
        "entities": _entities(entities, titles, degrees, entity_chunks, chunks),
        "relationships": _relationships(relations, titles, ends, degrees, relation_chunks, chunks),
        "communities": _communities(tables, relations, ends, members, entity_chunks, children, parents, period),
        "community_reports": _reports(tables, children, parents, period),
        **covariates,
    }


def unique_titles(entities: pa.Table) -> pa.Array:
    """Return a name for each entity that no other has: the lowest layer keeps its own.

    >>> unique_titles(pa.table({"name": ["Ray", "Ray"], "layer": [0, 1], "type": ["person", "concept"]})).to_pylist()
    ['Ray', 'Ray (layer 1)']
    """
    names = entities["name"].to_pylist()
    layers, types = entities["layer"].to_pylist(), entities["type"].to_pylist()
    order = sorted(range(len(names)), key=lambda row: (layers[row], row))
    every, taken = set(names), set[str]()
    for row in order:
        name = title = names[row]
        tries = [
            f"{name} (layer {layers[row]})",
            f"{name} ({types[row]})",
            f"{name} ({types[row]}, layer {layers[row]})",
        ]
        number = 2
        while title in taken or (title != name and title in every):
            title = tries.pop(0) if tries else f"{name} ({number})"
            number += not tries
        taken.add(title)
        names[row] = title
    return pa.array(names, pa.string())


def _counts(links: Any) -> NDArray[np.int64]:
    """Return how many rows are linked to each row."""
    counts: NDArray[np.int64] = np.diff(links.indptr).astype(np.int64)
    return counts


def _numbers(n_rows: int) -> pa.Array:
    return pa.array(np.arange(n_rows, dtype=np.int64))


def _constant(value: str, n_rows: int) -> pa.Array:
    return pa.array([value] * n_rows, pa.string())


def _documents(tables: Mapping[str, pa.Table], period: str) -> pa.Table:
    documents, chunks = tables["documents"], tables["chunks"]
    homes = rows_of(chunks["document_id"], documents["document_id"])
    n_rows = documents.num_rows
    own_chunks = linked(np.arange(chunks.num_rows), homes, chunks.num_rows, n_rows).T
    uris = documents["uri"].to_pylist()
    titles = [title or uri for title, uri in zip(documents["title"].to_pylist(), uris, strict=True)]
    held, fields = _metadata(tables)
    columns = documents.select(["uri", "record", "labels"]).to_pylist()
    if fields:
        columns = [
            row | {"fields": held.get(own, {})}
            for row, own in zip(columns, documents["document_id"].to_pylist(), strict=True)
        ]
    return pa.table(
        {
            "id": documents["document_id"],
            "human_readable_id": _numbers(n_rows),
            "title": pa.array(titles, pa.string()),
            "text": documents["text"],
            "text_unit_ids": list_column(own_chunks, chunks["chunk_id"]),
            "creation_date": _constant(period, n_rows),
            "metadata": pa.array(
                columns,
                pa.struct([("uri", pa.string()), ("record", pa.int64()), ("labels", _STRINGS), *fields]),
            ),
            "uri": documents["uri"],
            "source_ids": documents["source_ids"].cast(_STRINGS),
            "labels": documents["labels"].cast(_STRINGS),
        }
    )


def _metadata(tables: Mapping[str, pa.Table]) -> tuple[dict[str, Any], list[pa.Field]]:
    """Return the values of declared fields by document, and the field `fields` of their type; none without fields."""
    declared = tables.get("metadata_fields", METADATA_FIELDS.empty_table()).to_pylist()
    if not declared:
        return {}, []
    types = {
        row["name"]: pa.list_(_FIELD_TYPES[row["type"]]) if row["list"] else _FIELD_TYPES[row["type"]]
        for row in declared
    }
    rows = tables["document_metadata"].to_pylist()
    held = {row["document_id"]: json.loads(row["metadata"]) for row in rows}
    return held, [pa.field("fields", pa.struct(list(types.items())))]


def _text_units(
    chunks: pa.Table,
    entities: pa.Table,
    relations: pa.Table,
    entity_chunks: Any,
    relation_chunks: Any,
    claims: pa.Table,
) -> pa.Table:
    n_rows = chunks.num_rows
    homes = rows_of(claims["chunk_id"], chunks["chunk_id"])
    claimed = linked(np.arange(claims.num_rows), homes, claims.num_rows, n_rows).T
    documents = chunks["document_id"].combine_chunks()
    return pa.table(
        {
            "id": chunks["chunk_id"],
            "human_readable_id": _numbers(n_rows),
            "text": chunks["text"],
            "n_tokens": chunks["n_tokens"].cast(pa.int64()),
            "document_id": documents,
            "document_ids": pa.ListArray.from_arrays(np.arange(n_rows + 1, dtype=np.int32), documents),  # GraphRAG 2.x
            "entity_ids": list_column(entity_chunks.T, entities["entity_id"]),
            "relationship_ids": list_column(relation_chunks.T, relations["relation_id"]),
            "covariate_ids": list_column(claimed, claims["claim_id"]),
            "position": chunks["position"],
            "start": chunks["start"],
            "end": chunks["end"],
        }
    )


def _entities(
    entities: pa.Table, titles: pa.Array, degrees: NDArray[np.int64], entity_chunks: Any, chunks: pa.Table
) -> pa.Table:
    return pa.table(
        {
            "id": entities["entity_id"],
            "human_readable_id": _numbers(entities.num_rows),
            "title": titles,
            "type": entities["type"],
            "description": entities["description"],
            "text_unit_ids": list_column(entity_chunks, chunks["chunk_id"]),
            "frequency": pa.array(_counts(entity_chunks)),
            "degree": pa.array(degrees),
            "name": entities["name"],
            "layer": entities["layer"],
            "described": entities["described"],
            "n_mentions": entities["n_mentions"],
        }
    )


def _covariates(claims: pa.Table, titles: pa.Array, entities: pa.Table) -> pa.Table:
    """Claims by the titles of the entities they are about; a name that is no entity's stands as it is."""
    n_rows = claims.num_rows
    ends = {}
    for end in ("subject", "object"):
        rows = rows_of(pc.fill_null(claims[f"{end}_id"], ""), entities["entity_id"])
        named = titles.take(pa.array(rows, mask=rows < 0))
        ends[end] = pc.coalesce(named, _or_none(claims[end].combine_chunks()))
    return pa.table(
        {
            "id": claims["claim_id"],
            "human_readable_id": _numbers(n_rows),
            "covariate_type": _constant("claim", n_rows),
            "type": claims["type"],
            "description": claims["description"],
            "subject_id": ends["subject"],
            "object_id": ends["object"],
            "status": _or_none(pc.utf8_upper(claims["status"]).combine_chunks()),
            "start_date": _or_none(claims["start_date"].combine_chunks()),
            "end_date": _or_none(claims["end_date"].combine_chunks()),
            "source_text": claims["source_text"],
            "text_unit_id": claims["chunk_id"],
        }
    )


def _or_none(texts: pa.Array) -> pa.Array:
    """GraphRAG's value for a missing field of a claim."""
    return pc.if_else(pc.equal(texts, ""), "NONE", texts)


def _relationships(
    relations: pa.Table,
    titles: pa.Array,
    ends: list[NDArray[np.int64]],
    degrees: NDArray[np.int64],
    relation_chunks: Any,
    chunks: pa.Table,
) -> pa.Table:
    return pa.table(
        {
            "id": relations["relation_id"],
            "human_readable_id": _numbers(relations.num_rows),
            "source": titles.take(pa.array(ends[0])),
            "target": titles.take(pa.array(ends[1])),
            "description": relations["description"],
            "weight": relations["weight"],
            "combined_degree": pa.array(degrees[ends[0]] + degrees[ends[1]]),
            "text_unit_ids": list_column(relation_chunks, chunks["chunk_id"]),
            "source_id": relations["source_id"],
            "target_id": relations["target_id"],
            "kind": relations["kind"],
            "layer": relations["layer"],
        }
    )


def _family(communities: pa.Table) -> tuple[list[list[int]], NDArray[np.int64]]:
    """Child numbers of each community, and its parent's number: -1 where it has none. A number is a row."""
    parents = rows_of(pc.fill_null(communities["parent_id"], ""), communities["community_id"])
    children: list[list[int]] = [[] for _ in range(communities.num_rows)]
    for row, parent in enumerate(parents.tolist()):
        if parent >= 0:
            children[parent].append(row)
    return children, parents


def _communities(
    tables: Mapping[str, pa.Table],
    relations: pa.Table,
    ends: list[NDArray[np.int64]],
    members: Any,
    entity_chunks: Any,
    children: list[list[int]],
    parents: NDArray[np.int64],
    period: str,
) -> pa.Table:
    communities = tables["communities"]
    n_rows = communities.num_rows
    numbers = _numbers(n_rows)
    sources, targets = (linked(end, np.arange(len(end)), members.shape[1], len(end)) for end in ends)
    inside = (members @ sources).multiply(members @ targets)  # relations of whose ends a community holds both
    return pa.table(
        {
            "id": communities["community_id"],
            "human_readable_id": numbers,
            "community": numbers,
            "level": communities["level"].cast(pa.int64()),
            "parent": pa.array(parents),
            "children": pa.array(children, _INTS),
            "title": pa.array([f"Community {row}" for row in range(n_rows)], pa.string()),
            "entity_ids": list_column(members, tables["entities"]["entity_id"]),
            "relationship_ids": list_column(inside, relations["relation_id"]),
            "text_unit_ids": list_column(members @ entity_chunks, tables["chunks"]["chunk_id"]),
            "period": _constant(period, n_rows),
            "size": pa.array(_counts(members)),
            "is_leaf": communities["is_leaf"],
        }
    )


def _reports(
    tables: Mapping[str, pa.Table], children: list[list[int]], parents: NDArray[np.int64], period: str
) -> pa.Table:
    communities, reports = tables["communities"], tables["reports"]
    homes = rows_of(reports["community_id"], communities["community_id"])
    reports, homes = reports.filter(pa.array(homes >= 0)), homes[homes >= 0]
    rows = reports.to_pylist()
    for row in rows:
        row["findings"] = [{"summary": one["summary"], "explanation": one["explanation"]} for one in row["findings"]]
    numbers = pa.array(homes)
    content = ("title", "summary", "findings", "rating", "rating_explanation")  # of a report as JSON
    return pa.table(
        {
            "id": reports["community_id"],
            "human_readable_id": numbers,
            "community": numbers,
            "level": reports["level"].cast(pa.int64()),
            "parent": pa.array(parents[homes]),
            "children": pa.array([children[home] for home in homes.tolist()], _INTS),
            "title": reports["title"],
            "summary": reports["summary"],
            "full_content": pa.array([_full_text(row) for row in rows], pa.string()),
            "rank": reports["rating"],
            "rating_explanation": reports["rating_explanation"],
            "findings": pa.array([row["findings"] for row in rows], _FINDINGS),
            "full_content_json": pa.array(
                [json.dumps({name: row[name] for name in content}, indent=4, ensure_ascii=False) for row in rows],
                pa.string(),
            ),
            "period": _constant(period, len(rows)),
            "size": communities["n_entities"].take(numbers),
            "origin": reports["origin"],
        }
    )


def _full_text(report: Mapping[str, Any]) -> str:
    parts = [f"# {report['title']}", report["summary"]]
    parts += [f"## {item['summary']}\n\n{item['explanation']}" for item in report["findings"]]
    return "\n\n".join(parts)


_BATCH = 4096

# What XML 1.0 cannot hold, not even escaped: control characters, lone surrogates, two non-characters.
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_NODE_KEYS = {
    "name": "string",
    "label": "string",  # what Gephi shows
    "type": "string",
    "layer": "int",
    "description": "string",
    "described": "boolean",
    "n_mentions": "int",
    "community": "string",
    "community_level": "int",
    "claims": "string",
}
_EDGE_KEYS = {"kind": "string", "layer": "int", "weight": "double", "description": "string"}

_HEAD = """<?xml version="1.0" encoding="UTF-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" \
xsi:schemaLocation="http://graphml.graphdrawing.org/xmlns http://graphml.graphdrawing.org/xmlns/1.0/graphml.xsd">
"""


def write_graphml(tables: Mapping[str, pa.Table], stream: BinaryIO) -> None:
    """Write entities as nodes and relations as undirected edges, row by row, in UTF-8.

    A node's id is its entity id, an edge's its relation id. `community` is the deepest community that holds an entity.
    `claims` are those whose subject an entity is, a line each.
    Relations with an endpoint that is not in `entities` are left out: readers would refuse the file or invent a node.
    Two entities may be joined by relations of different kinds: readers see a multigraph then.

    Args:
        tables: `entities` and `relations`, and `communities` and `claims` where there are any.
        stream: binary, open for writing; it is not closed.
    """
    _write(stream, _HEAD)
    for target, keys in (("node", _NODE_KEYS), ("edge", _EDGE_KEYS)):
        for name, kind in keys.items():
            _write(stream, f'<key id="{target[0]}_{name}" for="{target}" attr.name="{name}" attr.type="{kind}"/>\n')
    _write(stream, '<graph id="hirag" edgedefault="undirected">\n')
    homes = _homes(tables.get("communities"))
    claims = _claims(tables.get("claims"))
    columns = ["entity_id", "name", "type", "layer", "description", "described", "n_mentions"]
    for row in _rows(tables["entities"].select(columns)):
        home = homes.get(row["entity_id"])
        row |= {"label": row["name"]} | ({"community": home[1], "community_level": home[0]} if home else {})
        row["claims"] = claims.get(row["entity_id"])
        _write(stream, f"<node id={_attribute(row['entity_id'])}>{_data('n', row, _NODE_KEYS)}</node>\n")
    relations, _ = _resolved(tables["relations"], tables["entities"])
    for row in _rows(relations.select(["relation_id", "source_id", "target_id", *_EDGE_KEYS])):
        ends = f"source={_attribute(row['source_id'])} target={_attribute(row['target_id'])}"
        _write(stream, f"<edge id={_attribute(row['relation_id'])} {ends}>{_data('e', row, _EDGE_KEYS)}</edge>\n")
    _write(stream, "</graph>\n</graphml>\n")


def _write(stream: BinaryIO, text: str) -> None:
    stream.write(text.encode("utf-8"))


def _rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    for batch in table.to_batches(max_chunksize=_BATCH):
        yield from batch.to_pylist()


def _homes(communities: pa.Table | None) -> dict[str, tuple[int, str]]:
    """Entity id → level and id of the deepest community that holds it."""
    homes: dict[str, tuple[int, str]] = {}
    if communities is not None:
        for row in _rows(communities.select(["level", "community_id", "entity_ids"])):
            for entity_id in row["entity_ids"]:
                homes[entity_id] = max(homes.get(entity_id, (-1, "")), (row["level"], row["community_id"]))
    return homes


def _claims(claims: pa.Table | None) -> dict[str, str]:
    """Entity id → the claims whose subject it is, a line each."""
    found: dict[str, list[str]] = {}
    for row in _rows(claims) if claims is not None else ():
        if row["subject_id"] is not None:
            claim = ClaimItem(**row | {"object_id": row["object_id"] or ""})
            found.setdefault(row["subject_id"], []).append(claim.line)
    return {own: "\n".join(lines) for own, lines in found.items()}


def _resolved(relations: pa.Table, entities: pa.Table) -> tuple[pa.Table, list[NDArray[np.int64]]]:
    """Return the relations whose two ends are in `entities`, and the rows of their sources and targets there."""
    ends = [rows_of(relations[name], entities["entity_id"]) for name in ("source_id", "target_id")]
    known = (ends[0] >= 0) & (ends[1] >= 0)
    return relations.filter(pa.array(known)), [end[known] for end in ends]


def _attribute(value: str) -> str:
    return quoteattr(_FORBIDDEN.sub("", value))


def _data(prefix: str, row: Mapping[str, Any], keys: Mapping[str, str]) -> str:
    parts = []
    for name, kind in keys.items():
        value = row.get(name)
        if value is None or (isinstance(value, float) and not math.isfinite(value)):
            continue
        text = _FORBIDDEN.sub("", value) if isinstance(value, str) else str(value)
        if kind == "boolean":
            text = text.lower()
        parts.append(f'<data key="{prefix}_{name}">{escape(text, {chr(13): "&#13;"})}</data>')
    return "".join(parts)
