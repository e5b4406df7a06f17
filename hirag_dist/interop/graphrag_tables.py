"""A snapshot as Microsoft GraphRAG's tables (output format 3.x), so that its query engine and its readers can open it.

GraphRAG's tables name the endpoints of relations by title, this package's by id. Titles are therefore made unique here:
where a name occurs more than once (a summary entity named like one of its members), the later ones get their layer or
type in brackets. Fields that GraphRAG lacks stand in further columns, which its readers ignore.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hirag_dist.core.graph.csr import distinct, rows_of
from hirag_dist.schemas import CLAIMS, METADATA_FIELDS
from hirag_dist.types import IntVector


@dataclass(frozen=True, slots=True)
class Links:
    """Pairs of rows: `heads` of one table, `tails` of another.

    Attributes:
        n_heads: rows of the heads' table, linked or not.
    """

    heads: IntVector
    tails: IntVector
    n_heads: int

    def swapped(self, n_tails: int) -> Links:
        """Return the same pairs the other way round; `n_tails` are the rows of the tails' table."""
        return Links(self.tails, self.heads, n_tails)


@dataclass(frozen=True, slots=True)
class RowLists:
    """Rows linked to each head: `rows[indptr[i]:indptr[i + 1]]`, ascending and distinct."""

    indptr: IntVector
    rows: IntVector


def links_of(lists: pa.ChunkedArray, order: pa.ChunkedArray) -> Links:
    """Return the pairs of (row, row in `order` of an id in its list); ids that are not there are left out."""
    flat = lists.combine_chunks()
    tails = rows_of(pa.chunked_array([flat.flatten()]), order)
    heads = np.repeat(np.arange(len(flat)), pc.list_value_length(flat).fill_null(0).to_numpy(zero_copy_only=False))
    known = tails >= 0
    return Links(heads[known], tails[known], len(flat))


def invert(links: Links) -> RowLists:
    """Return the tails of each head, each once."""
    width = int(links.tails.max()) + 1 if len(links.tails) else 1
    heads, tails = np.divmod(distinct(links.heads * width + links.tails), width)
    indptr = np.zeros(links.n_heads + 1, dtype=np.int64)
    np.cumsum(np.bincount(heads, minlength=links.n_heads), out=indptr[1:])
    return RowLists(indptr, tails)


def joined(first: Links, second: Links) -> Links:
    """Return the links from the heads of `first` to the tails of `second`, through what lies between."""
    between = invert(second)
    starts, counts = between.indptr[first.tails], np.diff(between.indptr)[first.tails]
    ends = np.cumsum(counts)
    places = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - counts - starts, counts)
    return Links(np.repeat(first.heads, counts), between.rows[places], first.n_heads)


def inside_links(members: Links, ends: list[IntVector]) -> Links:
    """Return the pairs of (community, relation) where the community holds both endpoints.

    Args:
        members: from communities to entities; an entity may be in many.
        ends: source and target rows of each relation.
    """
    n_relations = len(ends[0])
    homes = members.swapped(int(max((end.max() for end in ends if len(end)), default=0)) + 1)
    homes = _known(homes)
    sources, targets = (
        distinct(pairs.tails * n_relations + pairs.heads)
        for pairs in (joined(Links(np.arange(n_relations), end, n_relations), homes) for end in ends)
    )
    both = np.intersect1d(sources, targets, assume_unique=True)
    communities, relations = np.divmod(both, max(n_relations, 1))
    return Links(communities, relations, members.n_heads)


def _known(links: Links) -> Links:
    """The links whose head is among the first `n_heads` rows."""
    kept = links.heads < links.n_heads
    return Links(links.heads[kept], links.tails[kept], links.n_heads)


def list_column(lists: RowLists, ids: pa.ChunkedArray) -> pa.ListArray:
    """Return the ids of each list's rows, as a column of lists."""
    values = ids.combine_chunks().take(pa.array(lists.rows))
    return pa.ListArray.from_arrays(pa.array(lists.indptr, pa.int32()), values)


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
    relations = tables["relations"]
    ends = [rows_of(relations[name], entities["entity_id"]) for name in ("source_id", "target_id")]
    known = (ends[0] >= 0) & (ends[1] >= 0)
    relations, ends = relations.filter(pa.array(known)), [end[known] for end in ends]
    degrees = _degrees(ends, entities.num_rows)
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


def _degrees(ends: list[NDArray[np.int64]], n_entities: int) -> NDArray[np.int64]:
    """Distinct neighbours of each entity, as GraphRAG counts them."""
    low, high = np.minimum(*ends), np.maximum(*ends)
    low, high = np.divmod(distinct((low * n_entities + high)[low != high]), max(n_entities, 1))
    return np.bincount(low, minlength=n_entities) + np.bincount(high, minlength=n_entities)


def _numbers(n_rows: int) -> pa.Array:
    return pa.array(np.arange(n_rows, dtype=np.int64))


def _constant(value: str, n_rows: int) -> pa.Array:
    return pa.array([value] * n_rows, pa.string())


def _documents(tables: Mapping[str, pa.Table], period: str) -> pa.Table:
    documents, chunks = tables["documents"], tables["chunks"]
    homes = rows_of(chunks["document_id"], documents["document_id"])
    rows = np.flatnonzero(homes >= 0)
    chunk_lists = invert(Links(homes[rows], rows, documents.num_rows))
    n_rows = documents.num_rows
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
            "text_unit_ids": list_column(chunk_lists, chunks["chunk_id"]),
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
    entity_chunks: Links,
    relation_chunks: Links,
    claims: pa.Table,
) -> pa.Table:
    n_rows = chunks.num_rows
    homes = rows_of(claims["chunk_id"], chunks["chunk_id"])
    claimed = np.flatnonzero(homes >= 0)
    documents = chunks["document_id"].combine_chunks()
    return pa.table(
        {
            "id": chunks["chunk_id"],
            "human_readable_id": _numbers(n_rows),
            "text": chunks["text"],
            "n_tokens": chunks["n_tokens"].cast(pa.int64()),
            "document_id": documents,
            "document_ids": pa.ListArray.from_arrays(np.arange(n_rows + 1, dtype=np.int32), documents),  # GraphRAG 2.x
            "entity_ids": list_column(invert(entity_chunks.swapped(n_rows)), entities["entity_id"]),
            "relationship_ids": list_column(invert(relation_chunks.swapped(n_rows)), relations["relation_id"]),
            "covariate_ids": list_column(invert(Links(homes[claimed], claimed, n_rows)), claims["claim_id"]),
            "position": chunks["position"],
            "start": chunks["start"],
            "end": chunks["end"],
        }
    )


def _entities(
    entities: pa.Table, titles: pa.Array, degrees: NDArray[np.int64], entity_chunks: Links, chunks: pa.Table
) -> pa.Table:
    lists = invert(entity_chunks)
    return pa.table(
        {
            "id": entities["entity_id"],
            "human_readable_id": _numbers(entities.num_rows),
            "title": titles,
            "type": entities["type"],
            "description": entities["description"],
            "text_unit_ids": list_column(lists, chunks["chunk_id"]),
            "frequency": pa.array(np.diff(lists.indptr)),
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
    relation_chunks: Links,
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
            "text_unit_ids": list_column(invert(relation_chunks), chunks["chunk_id"]),
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
    members: Links,
    entity_chunks: Links,
    children: list[list[int]],
    parents: NDArray[np.int64],
    period: str,
) -> pa.Table:
    communities = tables["communities"]
    n_rows = communities.num_rows
    numbers = _numbers(n_rows)
    lists = invert(members)
    return pa.table(
        {
            "id": communities["community_id"],
            "human_readable_id": numbers,
            "community": numbers,
            "level": communities["level"].cast(pa.int64()),
            "parent": pa.array(parents),
            "children": pa.array(children, _INTS),
            "title": pa.array([f"Community {row}" for row in range(n_rows)], pa.string()),
            "entity_ids": list_column(lists, tables["entities"]["entity_id"]),
            "relationship_ids": list_column(invert(inside_links(members, ends)), relations["relation_id"]),
            "text_unit_ids": list_column(invert(joined(members, entity_chunks)), tables["chunks"]["chunk_id"]),
            "period": _constant(period, n_rows),
            "size": pa.array(np.diff(lists.indptr)),
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
    numbers = pa.array(homes)
    findings = [
        [{"explanation": item["explanation"], "summary": item["summary"]} for item in row["findings"]] for row in rows
    ]
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
            "findings": pa.array(findings, _FINDINGS),
            "full_content_json": pa.array([_full_json(row) for row in rows], pa.string()),
            "period": _constant(period, len(rows)),
            "size": communities["n_entities"].take(numbers),
            "origin": reports["origin"],
        }
    )


def _full_text(report: Mapping[str, Any]) -> str:
    parts = [f"# {report['title']}", report["summary"]]
    parts += [f"## {item['summary']}\n\n{item['explanation']}" for item in report["findings"]]
    return "\n\n".join(parts)


def _full_json(report: Mapping[str, Any]) -> str:
    content = {
        "title": report["title"],
        "summary": report["summary"],
        "findings": [{"summary": item["summary"], "explanation": item["explanation"]} for item in report["findings"]],
        "rating": report["rating"],
        "rating_explanation": report["rating_explanation"],
    }
    return json.dumps(content, indent=4, ensure_ascii=False)
