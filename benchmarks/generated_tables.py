"""The tables of made-up indexes, sorted and keyed as a build's are: documents, chunks, entities, relations, reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from benchmarks.planted_graph import PlantedGraph
from benchmarks.prose import Prose
from hirag_dist import schemas
from hirag_dist.core.clustering.stop_rule import cluster_sparsity
from hirag_dist.core.graph.communities import membership
from hirag_dist.core.text.ids import chunk_id, content_ids
from hirag_dist.types import CsrGraph

ENTITIES_A_CHUNK = 10
CHUNKS_A_DOCUMENT = 10
MENTIONS = 200  # of one entity, at most
TYPES = ("person", "organization", "location", "event", "concept", "product")
KINDS = ("extracted", "summary", "same_name")
_SYLLABLES = ("na", "ba", "di", "fe", "go", "hu", "ja", "ku", "lo", "me")  # of the digits 0 to 9
_HEX = 24
_BLOCK = 1 << 20


class Chunks:
    """Documents and chunks: ten entities a chunk, ten chunks a document.

    Attributes:
        ids: chunk ids in the order of the entities that they are about.
        leaf: community of each row of `table`.
    """

    def __init__(self, graph: PlantedGraph, prose: Prose, rng: np.random.Generator) -> None:
        n_chunks = max(graph.layer_sizes[0] // ENTITIES_A_CHUNK, 1)
        texts = prose.texts(rng.integers(1000, 4000, n_chunks), rng)
        bounds = np.frombuffer(texts.buffers()[1], np.int32)
        firsts = np.arange(0, n_chunks, CHUNKS_A_DOCUMENT)
        whole = np.append(bounds[firsts], bounds[-1]).astype(np.int32)
        documents = pa.StringArray.from_buffers(len(firsts), pa.py_buffer(whole), texts.buffers()[2])
        own = content_ids(["document"], _lists(np.arange(len(firsts) + 1), documents))
        self.documents = _table(
            schemas.DOCUMENTS,
            {
                "document_id": own,
                "uri": [f"generated/{at:07d}.txt" for at in range(len(firsts))],
                "record": np.zeros(len(firsts), np.int32),
                "title": generated_names(prose, np.arange(len(firsts)), rng),
                "source_ids": _lists(np.arange(len(firsts) + 1), own),
                "labels": _lists(np.zeros(len(firsts) + 1, np.int64), pa.array([], pa.string())),
                "n_chars": np.diff(whole).astype(np.int64),
                "text": documents,
            },
        ).sort_by("document_id")
        document = np.arange(n_chunks) // CHUNKS_A_DOCUMENT
        start = (bounds[:-1] - whole[document]).astype(np.int64)
        end = (bounds[1:] - whole[document]).astype(np.int64)
        spans = zip(document.tolist(), start.tolist(), end.tolist(), strict=True)
        self.ids = pa.array([chunk_id(own[at], first, last, f"{at} {first}") for at, first, last in spans])
        rank = np.empty(len(own), np.int64)
        rank[np.argsort(np.array(own))] = np.arange(len(own))
        order = np.lexsort((np.arange(n_chunks), rank[document]))
        columns = {
            "chunk_id": self.ids,
            "document_id": pa.array(own).take(pa.array(document)),
            "position": (np.arange(n_chunks) % CHUNKS_A_DOCUMENT).astype(np.int32),
            "start": start,
            "end": end,
            "n_tokens": ((end - start) // 4).astype(np.int32),
            "text": texts,
        }
        self.table = _table(schemas.CHUNKS, columns).take(pa.array(order))
        self.leaf = graph.leaf[order * ENTITIES_A_CHUNK]

    def of(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the chunk that each entity of layer 0 comes from first."""
        return np.minimum(nodes // ENTITIES_A_CHUNK, len(self.ids) - 1)


def entities_table(
    graph: PlantedGraph, chunks: Chunks, prose: Prose, rng: np.random.Generator
) -> tuple[pa.Table, NDArray[np.int64]]:
    """Return ENTITIES, sorted, and the row of each node."""
    layers = np.repeat(np.arange(len(graph.layer_sizes), dtype=np.int32), graph.layer_sizes)
    numbers = np.arange(len(layers))
    for below, above in graph.namesakes.tolist():  # by layer, so that a name may go up through several
        numbers[above] = numbers[below]
    names = generated_names(prose, numbers, rng)
    keys = pc.utf8_lower(names)
    ids = pa.concat_arrays(
        [
            _hashes(["entity", str(layer)], [keys.slice(int(graph.firsts[layer]), size)])
            for layer, size in enumerate(graph.layer_sizes)
        ]
    )
    sort_keys: tuple[NDArray[Any], ...] = (*_sort_keys(ids), layers)
    order = np.lexsort(sort_keys)
    row_of = np.empty(len(order), np.int64)
    row_of[order] = np.arange(len(order))
    bounds, mentioned = _mentions(graph, chunks, rng)
    columns = {
        "entity_id": ids,
        "layer": layers,
        "name": names,
        "type": pa.array(TYPES).take(pa.array(rng.integers(0, len(TYPES), len(layers)))),
        "description": prose.texts(rng.integers(90, 200, len(layers)), rng),
        "described": np.ones(len(layers), bool),
        "n_mentions": np.diff(bounds).astype(np.int32),
        "chunk_ids": _lists(bounds, chunks.ids.take(pa.array(mentioned))),
    }
    return _table(schemas.ENTITIES, columns).take(pa.array(order)).combine_chunks(), row_of


def _mentions(
    graph: PlantedGraph, chunks: Chunks, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (bounds, chunks) of each node's mentions: hubs have more, about the place of their community."""
    n = graph.layer_sizes[0]
    degrees = np.bincount(graph.ends.ravel(), minlength=n)
    more = np.minimum(degrees // 8, MENTIONS - 1)
    nodes = np.concatenate([np.arange(n), np.repeat(np.arange(n), more)])
    around = chunks.of(nodes[n:]) + np.round(rng.standard_normal(int(more.sum())) * 2 * more[nodes[n:]]).astype(int)
    places = np.concatenate([chunks.of(nodes[:n]), np.clip(around, 0, len(chunks.ids) - 1)])
    codes = np.sort(nodes * len(chunks.ids) + places)
    codes = codes[np.diff(codes, prepend=-1) > 0]
    counts = np.bincount(codes // len(chunks.ids), minlength=int(graph.firsts[-1]))
    return np.concatenate([[0], np.cumsum(counts)]), codes % len(chunks.ids)


def relations_table(
    graph: PlantedGraph,
    entity_ids: pa.ChunkedArray,
    row_of: NDArray[np.int64],
    chunks: Chunks,
    prose: Prose,
    rng: np.random.Generator,
) -> pa.Table:
    """Return RELATIONS, sorted: extracted ones of layer 0, those from members to summaries, and of equal names."""
    by_row = entity_ids.combine_chunks()
    covered = np.concatenate(
        [
            np.column_stack([members[:, 0], members[:, 1] + graph.firsts[layer + 1]])
            for layer, members in enumerate(graph.members)
        ]
    )
    n_extracted = len(graph.ends)
    kinds = np.repeat([0, 1, 2], [n_extracted, len(covered), len(graph.namesakes)])
    source, target = row_of[np.concatenate([graph.ends, covered, graph.namesakes])].T.copy()
    low, high = source[:n_extracted], target[:n_extracted]  # extracted relations have no direction: the lower id first
    low[:], high[:] = np.minimum(low, high), np.maximum(low, high)
    ids = pa.concat_arrays(
        [
            _hashes(["relation", name], [by_row.take(pa.array(ends[kinds == kind])) for ends in (source, target)])
            for kind, name in enumerate(KINDS)
        ]
    )
    order = np.lexsort(_sort_keys(ids))
    source, target, extracted = source[order], target[order], kinds[order] == 0
    layers = np.searchsorted(np.cumsum(graph.layer_sizes), source, "right")  # a member lies below its summary
    stated = chunks.of(graph.ends[order[extracted], 0])
    lengths = np.where(extracted, rng.integers(60, 160, len(order)), rng.integers(20, 60, len(order)))
    columns = {
        "relation_id": ids.take(pa.array(order)),
        "source_id": by_row.take(pa.array(source)),
        "target_id": by_row.take(pa.array(target)),
        "kind": pa.array(KINDS).take(pa.array(kinds[order])),
        "layer": layers.astype(np.int32),
        "description": prose.texts(lengths, rng),
        "weight": np.minimum(1.0 + rng.geometric(0.25, len(order)), 85.0),
        "chunk_ids": _lists(np.concatenate([[0], np.cumsum(extracted)]), chunks.ids.take(pa.array(stated))),
    }
    return _table(schemas.RELATIONS, columns)


def clusters_table(graph: PlantedGraph, entity_ids: pa.ChunkedArray, row_of: NDArray[np.int64]) -> pa.Table:
    tables = []
    for layer, members in enumerate(graph.members):
        numbers = pa.array(np.arange(graph.layer_sizes[layer + 1])).cast(pa.string())
        ids = _hashes(["cluster", str(layer)], [numbers]).take(pa.array(members[:, 1]))
        rows = row_of[members[:, 0]]
        order = np.lexsort((rows, *_sort_keys(ids)))
        columns = {
            "cluster_id": ids,
            "layer": np.full(len(rows), layer, np.int32),
            "entity_id": entity_ids.take(pa.array(rows)).combine_chunks(),
            "responsibility": np.where(members[:, 2], 0.9, 0.2).astype(np.float32),
            "best": members[:, 2].astype(bool),
        }
        tables.append(_table(schemas.CLUSTERS, columns).take(pa.array(order)))
    return pa.concat_tables(tables).combine_chunks()


def layers_table(graph: PlantedGraph) -> pa.Table:
    rows = []
    for layer, n_entities in enumerate(graph.layer_sizes):
        top = layer == len(graph.members)
        sizes = np.zeros(1, np.int64) if top else np.bincount(graph.members[layer][:, 1])
        rows.append(
            {
                "layer": layer,
                "n_entities": n_entities,
                "n_clusters": 0 if top else len(sizes),
                "median_cluster": float(np.median(sizes)),
                "largest_cluster": int(sizes.max()),
                "sparsity": None if top else cluster_sparsity(sizes, n_entities=n_entities),
                "change_rate": None,
                "n_components": 0 if top else len(sizes),
                "n_summaries": 0 if top else graph.layer_sizes[layer + 1],
                "n_attached": 0,
                "n_unattached": 0,
                "decision": "the layer fits one cluster" if top else "go on",
            }
        )
    return pa.Table.from_pylist(rows, schemas.LAYERS)


def reports_table(
    communities: pa.Table,
    entities: pa.Table,
    relations: pa.Table,
    graph: CsrGraph,
    prose: Prose,
    rng: np.random.Generator,
) -> pa.Table:
    """Return a report of each community, with findings about some of its members and a relation of each."""
    n = communities.num_rows
    indptr, members = membership(communities, entities["entity_id"])
    counts = rng.integers(3, 8, n)
    of = np.repeat(np.arange(n), counts)
    about = members[indptr[of] + (rng.random(len(of)) * (indptr[of + 1] - indptr[of])).astype(np.int64)]
    relation = graph.relation_rows[graph.indptr[about]]
    one_each = np.arange(len(of) + 1)
    finding = schemas.REPORTS.field("findings").type.value_type
    values = {
        "summary": prose.texts(rng.integers(40, 120, len(of)), rng),
        "explanation": prose.texts(rng.integers(200, 400, len(of)), rng),
        "entity_ids": _lists(one_each, entities["entity_id"].combine_chunks().take(pa.array(about))),
        "relation_ids": _lists(one_each, relations["relation_id"].combine_chunks().take(pa.array(relation))),
    }
    arrays = [values[field.name].cast(field.type) for field in finding]
    found = pa.StructArray.from_arrays(arrays, fields=list(finding))
    columns = {
        "community_id": communities["community_id"],
        "level": communities["level"],
        "title": generated_names(prose, np.arange(n), rng),
        "summary": prose.texts(rng.integers(300, 800, n), rng),
        "rating": np.round(rng.uniform(1, 10, n)),
        "rating_explanation": prose.texts(rng.integers(30, 80, n), rng),
        "findings": _lists(np.concatenate([[0], np.cumsum(counts)]), found),
        "origin": pa.array(["model"]).take(pa.array(np.zeros(n, np.int8))),
        "n_dropped_references": np.zeros(n, np.int32),
    }
    return _table(schemas.REPORTS, columns)


def generated_names(
    prose: Prose, numbers: NDArray[np.int64], rng: np.random.Generator, first: int = 0
) -> pa.StringArray:
    """Return names that differ where the numbers do, such as "Harpoon Lantern Xgokubaba", without digits.

    The rule-based model takes a digit for the end of a name.

    Args:
        numbers: (n,) from 0 on.
        first: what is added to the numbers in the names.
    """
    n_words = len(prose.words)
    one, other = (
        prose.words.take(pa.array(rng.integers(0, n_words, int(numbers.max(initial=0)) + 1)[numbers])) for _ in range(2)
    )
    third = pa.array(numbers + first).cast(pa.string())
    for digit, syllable in enumerate(_SYLLABLES):
        third = pc.replace_substring(third, str(digit), syllable)
    return pc.binary_join_element_wise(one, other, pc.binary_join_element_wise("X", third, ""), " ")


def _hashes(prefix: Sequence[str], parts: Sequence[pa.StringArray]) -> pa.StringArray:
    """Return `content_id(*prefix, …)` of the parts' texts, row by row, a million at a time."""
    found = []
    for first in range(0, len(parts[0]) or 1, _BLOCK):
        rows = [part.slice(first, _BLOCK) for part in parts]
        n, width = len(rows[0]), len(rows)
        together = pa.concat_arrays(rows).take(pa.array(np.arange(n * width).reshape(width, n).T.ravel()))
        found.append(pa.array(content_ids(prefix, _lists(np.arange(n + 1) * width, together)), pa.string()))
    return pa.concat_arrays(found)


def _sort_keys(ids: pa.StringArray) -> tuple[NDArray[np.uint64], ...]:
    """Return keys for `np.lexsort` that order ids of 24 digits as texts."""
    digits = np.frombuffer(ids.buffers()[2], np.uint8)[: len(ids) * _HEX].reshape(-1, _HEX)
    words = digits.view(">u8").astype(np.uint64)
    return words[:, 2], words[:, 1], words[:, 0]


def _lists(bounds: NDArray[np.int64], values: pa.Array) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), values)


def _table(schema: pa.Schema, columns: dict[str, Any]) -> pa.Table:
    return pa.table([columns[name] for name in schema.names], names=schema.names).cast(schema)
