"""Questions under filters by metadata: recall and time at several selectivities, on made-up indexes.

Prints JSON lines for each size, and each share of the documents that pass the filter:

    view       CPU milliseconds until the rows of a filter are known: the documents that meet the expression, the states
               of all rows, and the connected components that paths need; share of the entities that are visible
    search     recall@20 against brute force in float64, and milliseconds of one search, for each kind of vectors
    retrieve   milliseconds of a whole question in mode hirag, vectors in memory, its view made before
    pushed     with --pushed: milliseconds of a search at Milvus with the keys of all visible entities as its filter

    python -m benchmarks.filters [--sizes 100000] [--folder DIR] [--vectors memory milvus-lite] [--uri URI] [--pushed]
        [--shares 0.5 0.05 0.005] [--count 200]

Without --uri no server is asked. A filter keeps documents at random, so it has nothing to do with the question;
`--near` keeps those of one part of the corpus instead, so that nearly all questions are about other documents.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.generated import generate, questions
from hirag_dist import schemas
from hirag_dist.composition.query import make_engine
from hirag_dist.config.loader import load_config
from hirag_dist.core.access.filter import visible_components
from hirag_dist.core.metadata.columns import matching_documents
from hirag_dist.core.metadata.parsing import parse_filter
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.indexing.publish import ARRAYS
from hirag_dist.retrieval.vector_index.factory import make_vector_index
from hirag_dist.retrieval.vector_index.milvus import MilvusVectors
from hirag_dist.retrieval.vector_index.milvus.collection import KEY
from hirag_dist.retrieval.view.filtered_index import FilteredIndex
from hirag_dist.retrieval.view.index import MappedIndex
from hirag_dist.retrieval.view.visibility import FilteredRows
from hirag_dist.storage import layout
from hirag_dist.storage.snapshot.reader import Snapshot, current_id, open_snapshot
from hirag_dist.storage.snapshot.writer import make_current, write_snapshot
from hirag_dist.storage.store import Store
from hirag_dist.types import FloatMatrix, Query

LIMIT = 20
_DAYS = 3650
_BLOCK = 16_384  # rows of exact scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", type=int, default=[100_000], help="entities")
    parser.add_argument("--folder", help="where indexes are kept and found again")
    parser.add_argument("--shares", nargs="+", type=float, default=[0.5, 0.05, 0.005])
    parser.add_argument("--vectors", nargs="+", default=["memory", "milvus-lite"])
    parser.add_argument("--uri", help="of a Milvus server")
    parser.add_argument("--max-exact-rows", type=int, help="visible, up to which Milvus is not asked")
    parser.add_argument("--pushed", action="store_true", help="measure filters by key at --uri too")
    parser.add_argument("--near", action="store_true", help="keep documents of one part of the corpus")
    parser.add_argument("--count", type=int, default=200, help="questions")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        for size in arguments.sizes:
            snapshot = described(Store(f"{arguments.folder or temporary}/{size}"), size)
            for line in measured(snapshot, arguments):
                head = {"benchmark": "filters", "entities": size, "near": arguments.near}
                print(json.dumps(head | line), flush=True)


def described(store: Store, n_entities: int) -> Snapshot:
    """Return a generated index whose documents have metadata; it is made where it is missing."""
    own_id = current_id(store)
    if own_id is None:
        own_id = generate(store, n_entities).snapshot_id
    found = open_snapshot(store, own_id)
    if layout.METADATA_FIELDS in found.manifest.counts:
        return found
    names = (*layout.CONTENT_TABLES, "usage", "rejects")
    tables = {name: found.table(name).cast(getattr(schemas, name.upper())) for name in names}
    tables |= metadata_tables(tables)
    arrays = {name: found.array(name) for name in ARRAYS}
    manifest = write_snapshot(
        store, tables, arrays, embedder=found.manifest.embedder, complete=True, build={}, notes={"lineage": {}}
    )
    make_current(store, manifest.snapshot_id)
    return open_snapshot(store, manifest.snapshot_id)


def metadata_tables(tables: dict[str, pa.Table]) -> dict[str, pa.Table]:
    """Return metadata of generated documents, and the mentions and sources that filters need."""
    random = np.random.default_rng(1)
    ids = tables["documents"]["document_id"].to_pylist()
    uris = tables["documents"]["uri"].to_pylist()
    chance, day = random.random(len(ids)), random.integers(0, _DAYS, len(ids))
    place = {uri: at / len(uris) for at, uri in enumerate(sorted(uris))}
    values = [
        json.dumps(
            {
                "chance": float(chance[at]),
                "place": place[uris[at]],
                "published": str(np.datetime64("2015-01-01") + int(day[at])),
                "source": f"source {at % 10}",
            }
        )
        for at in range(len(ids))
    ]
    kinds = {"chance": "number", "place": "number", "published": "date", "source": "string"}
    fields = [{"name": name, "type": kind, "list": False, "as_of": kind == "date"} for name, kind in kinds.items()]
    clusters, entities = tables["clusters"], tables["entities"]
    above = tables["relations"].filter(pa.compute.equal(tables["relations"]["kind"], "summary"))
    cluster_of = dict(zip(clusters["entity_id"].to_pylist(), clusters["cluster_id"].to_pylist(), strict=True))
    layer_of = dict(zip(entities["entity_id"].to_pylist(), entities["layer"].to_pylist(), strict=True))
    sources = set()
    for one, other in zip(above["source_id"].to_pylist(), above["target_id"].to_pylist(), strict=True):
        member, summary = (one, other) if layer_of[one] < layer_of[other] else (other, one)
        if member in cluster_of:
            sources.add((summary, cluster_of[member]))
    pairs = sorted(sources)
    return {
        layout.METADATA_FIELDS: pa.Table.from_pylist(fields, schemas.METADATA_FIELDS),
        layout.DOCUMENT_METADATA: pa.table([ids, values], schema=schemas.DOCUMENT_METADATA),
        layout.ENTITY_MENTIONS: _mentions(tables, "entities", schemas.ENTITY_MENTIONS),
        layout.STATEMENTS: _mentions(tables, "relations", schemas.STATEMENTS),
        layout.SUMMARY_SOURCES: pa.table(
            [pa.array([own for own, _ in pairs]), pa.array([cluster for _, cluster in pairs])],
            schema=schemas.SUMMARY_SOURCES,
        ),
    }


def _mentions(tables: dict[str, pa.Table], name: str, schema: pa.Schema) -> pa.Table:
    """Return a mention in each chunk of every row that several documents mention, sorted by id and chunk.

    Args:
        name: of the table of the rows, entities or relations.
    """
    id_column = schema.names[0]
    chunk_ids, document_ids = (tables["chunks"][column].to_pylist() for column in ("chunk_id", "document_id"))
    document_of = dict(zip(chunk_ids, document_ids, strict=True))
    rows = tables[name].sort_by(id_column)
    chunks = rows["chunk_ids"].to_pylist()
    several = [at for at, own in enumerate(chunks) if len({document_of[chunk] for chunk in own}) > 1]
    owner = pa.array([at for at in several for _ in chunks[at]], pa.int64())
    n = len(owner)
    columns: dict[str, Any] = {
        "chunk_id": pa.array([chunk for at in several for chunk in sorted(chunks[at])], pa.string()),
        "position": np.zeros(n, np.int32),
        "described": pa.array(np.ones(n, np.bool_)),
        "strength": np.ones(n, np.float64),
    }
    columns |= {column: rows[column].take(owner) for column in schema.names if column not in columns}
    return pa.table({column: columns[column] for column in schema.names}, schema=schema)


def measured(snapshot: Snapshot, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the lines of an index."""
    index = MappedIndex.open(snapshot)
    field = "place" if arguments.near else "chance"
    asked = questions(snapshot.entity_vectors, arguments.count)
    views = {}
    for share in arguments.shares:
        views[share], line = _view(index, f"{field} < {share}")
        yield {"measure": "view", "share": share} | line
    expected = {share: _brute_force(view, asked) for share, view in views.items()}
    everything = _nearest(index.vectors, np.arange(len(index.vectors)), asked)
    for backend in [*arguments.vectors, *(["milvus"] if arguments.uri else [])]:
        settings = {"vectors.backend": backend, "vectors.uri": arguments.uri, "vectors.alias": None}
        vectors = make_vector_index(load_config(None, {}, settings).config, snapshot)
        if arguments.max_exact_rows is not None and isinstance(vectors, MilvusVectors):
            vectors._max_exact_rows = arguments.max_exact_rows
        line = asyncio.run(_searched(vectors, index, asked, everything))
        yield {"measure": "search", "share": 1.0, "vectors": backend} | line
        for share, view in views.items():
            line = asyncio.run(_searched(vectors, view, asked, expected[share]))
            yield {
                "measure": "search",
                "share": share,
                "vectors": backend,
                "exact_up_to": arguments.max_exact_rows,
            } | line
            if arguments.pushed and isinstance(vectors, MilvusVectors) and backend == "milvus":
                yield {"measure": "pushed", "share": share} | _pushed(vectors, view, asked, expected[share])
        vectors.close()
    for share in (1.0, *views):
        text = "" if share == 1.0 else f"{field} < {share}"
        yield {"measure": "retrieve", "share": share} | asyncio.run(_retrieved(snapshot, asked, text))


def _view(index: MappedIndex, text: str) -> tuple[FilteredIndex, dict[str, Any]]:
    metadata = index.files.metadata
    assert metadata is not None
    expression = parse_filter(text, metadata.fields)
    rows = FilteredRows(index, metadata, 400)
    times = []
    for _ in range(6):  # the first one compiles
        started = time.process_time()
        documents = matching_documents(expression, metadata.columns)
        matched = time.process_time()
        view = FilteredIndex(index, rows.visibility(documents, None, 1.0))
        made = time.process_time()
        visible_components(view.graph, view.access)
        times.append((matched - started, made - matched, time.process_time() - made))
    match, states, components = (np.median(np.array(times[1:]), axis=0) * 1e3).round(2).tolist()
    visible = view.access.entity_states != 0
    return view, {
        "documents": int(documents.sum()),
        "visible_entities": round(float(visible.mean()), 4),
        "match_cpu_ms": match,
        "states_cpu_ms": states,
        "components_cpu_ms": components,
        "view_mb": round(rows.view_bytes / 1e6, 2),
    }


def _brute_force(view: FilteredIndex, asked: FloatMatrix) -> list[NDArray[np.int64]]:
    return _nearest(view.vectors, np.flatnonzero(view.access.entity_states), asked)


def _nearest(matrix: FloatMatrix, rows: NDArray[np.int64], asked: FloatMatrix) -> list[NDArray[np.int64]]:
    queries = asked.astype(np.float64).T
    blocks = [np.asarray(matrix[rows[at : at + _BLOCK]], np.float64) @ queries for at in range(0, len(rows), _BLOCK)]
    scores = np.concatenate([np.zeros((0, len(asked))), *blocks])
    return [rows[np.argsort(-column, kind="stable")[:LIMIT]] for column in scores.T]


async def _searched(
    vectors: Any, view: MappedIndex, asked: FloatMatrix, expected: Sequence[NDArray[np.int64]]
) -> dict[str, Any]:
    times, found = [], []
    cpu = 0.0
    for number, one in enumerate([*asked[:10], *asked]):  # ten to warm up
        cpu = time.process_time() if number == 10 else cpu
        started = time.perf_counter()
        rows, _ = await vectors.search(one, LIMIT, None, view.access, view.is_by_row)
        if number >= 10:
            times.append((time.perf_counter() - started) * 1e3)
            found.append(rows)
    return _recall(found, expected) | _percentiles(times) | _cpu(cpu, times)


def _pushed(
    vectors: MilvusVectors, view: FilteredIndex, asked: FloatMatrix, expected: Sequence[NDArray[np.int64]]
) -> dict[str, Any]:
    visible = np.flatnonzero(view.access.entity_states)
    text = f"{KEY} in {vectors._rows.keys[visible].tolist()}"
    times, found = [], []
    try:
        for one in asked[:20]:
            started = time.perf_counter()
            (hits,) = vectors._client.search(
                vectors._collection,
                [one],
                limit=LIMIT,
                filter=text,
                output_fields=[KEY],
                search_params={"metric_type": "IP", "params": {"ef": 64}},
            )
            times.append((time.perf_counter() - started) * 1e3)
            found.append(vectors._rows.rows(np.array([hit[KEY] for hit in hits], np.int64)))
    except Exception as error:  # what a server does with a filter of a megabyte is the finding
        return {"keys": len(visible), "filter_mb": round(len(text) / 1e6, 2), "error": str(error)[:200]}
    line = {"keys": len(visible), "filter_mb": round(len(text) / 1e6, 2)}
    return line | _recall(found, expected[: len(found)]) | _percentiles(times)


async def _retrieved(snapshot: Snapshot, asked: FloatMatrix, text: str) -> dict[str, Any]:
    config = load_config(None, {}, {"vectors.backend": "memory"}).config
    engine = make_engine(config, snapshot, Prompts())
    times = []
    cpu = 0.0
    for number, one in enumerate([*asked[:10], *asked]):
        cpu = time.process_time() if number == 10 else cpu
        started = time.perf_counter()
        await engine.retrieve(Query("a question", vector=one, filter=text))
        if number >= 10:
            times.append((time.perf_counter() - started) * 1e3)
    line = _percentiles(times) | _cpu(cpu, times)
    await engine.close()
    return line


def _cpu(since: float, times: Sequence[float]) -> dict[str, Any]:
    return {"cpu_ms": round((time.process_time() - since) * 1e3 / len(times), 2)}


def _recall(found: Sequence[NDArray[np.int64]], expected: Sequence[NDArray[np.int64]]) -> dict[str, Any]:
    hits = sum(len(np.intersect1d(own, true)) for own, true in zip(found, expected, strict=True))
    return {"recall_at_20": round(hits / max(sum(map(len, expected)), 1), 4)}


def _percentiles(times: Sequence[float]) -> dict[str, Any]:
    return {f"p{percentile}_ms": round(float(np.percentile(times, percentile)), 2) for percentile in (50, 99)}


if __name__ == "__main__":
    main()
