"""Serving files against the tables that they are derived from, read row by row."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest

from hirag_dist import schemas
from hirag_dist.core.graph.csr import build_graph
from hirag_dist.core.reports.material import report_text
from hirag_dist.core.retrieval.context import (
    PLAIN,
    UNKNOWN_FORM,
    community_text,
    entity_text,
    relation_text,
    source_text,
    text_form,
)
from hirag_dist.core.retrieval.entity_linking import NameIndex, found_names, words
from hirag_dist.core.text.tokens import counter
from hirag_dist.storage.serving import writer
from hirag_dist.storage.serving.base_values import BaseFiles, BaseValues
from hirag_dist.storage.serving.lexical import LEXICAL_ARRAYS
from hirag_dist.storage.serving.mmap_files import ServingFiles
from hirag_dist.storage.serving.renderings import TOKENIZER, unpacked
from hirag_dist.storage.serving.writer import FILES, parallel_relations, write_serving
from hirag_dist.storage.store import Store
from tests.storage import snapshots
from tests.table_rows import filled_table


def random_tables(seed: int) -> dict[str, pa.Table]:
    """Tables with parallel relations and loops, and with ids that name nothing, as an imported graph may have."""
    draw = random.Random(seed)
    chunks = [f"k{at}" for at in range(draw.randrange(8))]
    documents = [f"d{at}" for at in range(3)]
    names = [f"e{at:02}" for at in range(draw.randrange(2, 20))]

    def some(of: Sequence[str], k: int) -> list[str]:
        return draw.sample(list(of), min(k, len(of)))

    entities = [snapshots.entity(name, draw.randrange(2), name.upper(), some([*chunks, "gone"], 3)) for name in names]
    relations = [
        {"relation_id": f"r{at:03}", "source_id": draw.choice([*names, "gone"]), "target_id": draw.choice(names)}
        | {"kind": draw.choice(["extracted", "summary"]), "weight": float(draw.randrange(1, 4))}
        | {"description": f"About {at}.", "chunk_ids": some([*chunks, "gone"], 2)}
        for at in range(draw.randrange(60))
    ]
    communities = [
        {"community_id": f"c{draw.random()}", "level": draw.randrange(3)}
        | {"entity_ids": some([*names, "gone"], draw.randrange(1, 9))}
        for _ in range(draw.randrange(6))
    ]
    reports = [
        {"community_id": row["community_id"], "level": row["level"], "title": f"Title {at}", "rating": float(at + 1)}
        | {"findings": [{"summary": "It is so.", "explanation": "Often.", "entity_ids": [], "relation_ids": []}]}
        | {"summary": f"Summary {at}."}
        for at, row in enumerate(some(communities, 4))
    ]
    rows: dict[str, list[dict[str, Any]]] = {
        "documents": [{"document_id": own, "uri": f"{own}.txt", "title": own.upper()} for own in documents],
        "chunks": [
            {"chunk_id": own, "document_id": draw.choice([*documents, "gone"]), "start": at}
            | {"end": 9 * at, "text": f"Text of {own}."}
            for at, own in enumerate(chunks)
        ],
        "entities": entities,
        "relations": relations,
        "communities": communities,
        "reports": reports,
    }
    return {name: filled_table(getattr(schemas, name.upper()), rows[name]) for name in rows}


COUNT = counter(TOKENIZER)
Served = tuple[dict[str, pa.Table], ServingFiles]


def written(folder: Path, tables: dict[str, pa.Table], base: Path | None = None) -> Path:
    """Write the serving files of tables, with those of a base where there is one."""

    def batches(name: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if name in tables:
            yield from tables[name].select(columns).to_batches(max_chunksize=3)

    values = BaseValues(None if base is None else BaseFiles(base, lexical=True))
    write_serving(batches, tables["entities"].num_rows, Store(str(folder)).create, values=values)
    return folder


@pytest.fixture(scope="module", params=range(3))
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Served:
    """Random tables, and the files that are written from them."""
    tables = random_tables(request.param)
    folder = written(tmp_path_factory.mktemp("serving") / "out", tables)
    lexical = [f"{name}.npy" for name in LEXICAL_ARRAYS]
    assert sorted(path.name for path in folder.iterdir()) == sorted([*FILES, *lexical])
    return tables, ServingFiles(folder)


def lists(files: ServingFiles, indptr: str, rows: str) -> list[list[int]]:
    bounds, values = files.array(indptr), files.array(rows)
    return [values[a:b].tolist() for a, b in pairwise(bounds.tolist())]


def renderings(files: ServingFiles, name: str) -> list[tuple[int, int]]:
    """Return the number of tokens and the form of each row."""
    return list(map(unpacked, files.array(f"{name}_renderings").tolist()))


def test_every_number_and_text_is_that_of_the_tables(served: Served) -> None:
    tables, files = served
    rows = {name: table.to_pylist() for name, table in tables.items()}
    place = {
        name: {own: at for at, own in enumerate(tables[name].column(0).to_pylist())}
        for name in ("documents", "chunks", "entities")
    }
    for file, name, columns in (
        (writer.ENTITIES, "entities", ["entity_id", "name", "type", "description"]),
        (writer.RELATIONS, "relations", ["relation_id", "kind", "description"]),
        (writer.CHUNKS, "chunks", ["chunk_id", "document_id", "text"]),
        (writer.DOCUMENTS, "documents", ["document_id", "title", "uri"]),
        (writer.COMMUNITIES, "communities", ["community_id"]),
    ):
        for column in columns:
            found = files.texts(file).values(column, range(len(rows[name])))
            assert found == [row[column] for row in rows[name]]
    found = files.texts(writer.REPORTS).values("text", range(len(rows["reports"])))
    assert found == list(map(report_text, rows["reports"]))
    assert files.array("entity_layers").tolist() == [row["layer"] for row in rows["entities"]]
    for own, name in (("entity", "entities"), ("relation", "relations")):
        assert lists(files, f"{own}_chunks_indptr", f"{own}_chunks") == [
            [place["chunks"][chunk] for chunk in row["chunk_ids"] if chunk in place["chunks"]] for row in rows[name]
        ]
    assert files.array("relation_ends").tolist() == [
        [place["entities"].get(row["source_id"], -1), place["entities"].get(row["target_id"], -1)]
        for row in rows["relations"]
    ]
    assert files.array("relation_weights").tolist() == [row["weight"] for row in rows["relations"]]
    assert files.array("chunk_documents").tolist() == [
        place["documents"].get(row["document_id"], -1) for row in rows["chunks"]
    ]
    assert files.array("chunk_spans").tolist() == [[row["start"], row["end"]] for row in rows["chunks"]]
    titles = {row["document_id"]: row["title"] for row in rows["documents"]}
    assert renderings(files, "chunk") == [
        (COUNT(source_text(title, row["start"], row["end"], row["text"])), text_form(title, row["text"]))
        for row in rows["chunks"]
        for title in [titles.get(row["document_id"], "")]
    ]
    names = {row["entity_id"]: row["name"] for row in rows["entities"]}
    entities = [(row["name"], row["type"], row["layer"], row["description"]) for row in rows["entities"]]
    relations = [
        (names.get(row["source_id"], ""), names.get(row["target_id"], ""), row["description"])
        for row in rows["relations"]
    ]
    for name, text_of, told in (("entity", entity_text, entities), ("relation", relation_text, relations)):
        assert renderings(files, name) == [
            (COUNT(text_of(*fields)), PLAIN if text_of(*fields) == text_of(*fields, PLAIN) else UNKNOWN_FORM)
            for fields in told
        ]


def test_chunks_know_their_entities_and_names_whose_they_are(served: Served) -> None:
    tables, files = served
    mentioned_in = lists(files, "entity_chunks_indptr", "entity_chunks")
    assert lists(files, "chunk_entities_indptr", "chunk_entities") == [
        [entity for entity, own in enumerate(mentioned_in) if chunk in own]
        for chunk in range(tables["chunks"].num_rows)
    ]
    names = NameIndex(files.array("entity_name_keys"), files.array("entity_name_rows"))
    rows = tables["entities"].to_pylist()
    for place, row in enumerate(rows):
        found = [phrase.row for phrase in found_names(names, words(row["name"]))]
        assert (place in found) == (row["layer"] == 0)


def test_components_are_those_of_the_graph(served: Served) -> None:
    tables, files = served
    ids = tables["entities"]["entity_id"].to_pylist()
    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from(ids)
    for row in tables["relations"].to_pylist():
        if row["source_id"] in graph:
            graph.add_edge(row["source_id"], row["target_id"])
    labels = files.array("entity_components").tolist()
    found = {frozenset(name for name, label in zip(ids, labels, strict=True) if label == one) for one in set(labels)}
    assert found == set(map(frozenset, nx.connected_components(graph)))


def test_communities_have_their_members_reports_and_order(served: Served) -> None:
    tables, files = served
    communities, reports = tables["communities"].to_pylist(), tables["reports"].to_pylist()
    entities = {own: at for at, own in enumerate(tables["entities"]["entity_id"].to_pylist())}
    members = [sorted(entities[own] for own in row["entity_ids"] if own in entities) for row in communities]
    assert lists(files, "community_indptr", "community_members") == members
    assert lists(files, "entity_communities_indptr", "entity_communities") == [
        sorted(
            (at for at, rows in enumerate(members) if row in rows), key=lambda at: (int(communities[at]["level"]), at)
        )
        for row in range(len(entities))
    ]
    by_id = sorted(range(len(communities)), key=lambda at: str(communities[at]["community_id"]))
    assert files.array("community_order").tolist() == [by_id.index(at) for at in range(len(communities))]
    place = {row["community_id"]: at for at, row in enumerate(reports)}
    rendered = {
        own: (
            COUNT(community_text(row["title"], row["level"], row["rating"], report_text(row))),
            text_form(row["title"], report_text(row)),
        )
        for own, row in zip(place, reports, strict=True)
    }
    ratings = {own: row["rating"] for own, row in zip(place, reports, strict=True)}
    ids = [row["community_id"] for row in communities]
    assert renderings(files, "community") == [rendered.get(own, (0, UNKNOWN_FORM)) for own in ids]
    assert files.array("community_reports").tolist() == [place.get(own, -1) for own in ids]
    assert files.array("community_ratings").tolist() == [ratings.get(own, 0.0) for own in ids]


@pytest.mark.parametrize(("n_entities", "n_relations"), [(1, 0), (2, 1), (2, 9), (4, 30), (40, 60), (3000, 500)])
def test_further_relations_of_a_pair_are_found_by_the_one_in_the_graph(n_entities: int, n_relations: int) -> None:
    draw = random.Random(n_relations)
    names = [f"e{at}" for at in range(n_entities)]
    ends = [(draw.randrange(-1, n_entities), draw.randrange(n_entities)) for _ in range(n_relations)]
    weights = [float(draw.randrange(1, 4)) for _ in ends]
    by_pair: dict[tuple[int, int], list[int]] = {}
    for row, (source, target) in enumerate(ends):
        if source != target and source >= 0:
            by_pair.setdefault((min(source, target), max(source, target)), []).append(row)
    of, indptr, rows = parallel_relations(np.array(ends, np.int32).reshape(-1, 2), np.array(weights))
    found = {int(of[at]): rows[indptr[at] : indptr[at + 1]].tolist() for at in range(len(of))}
    assert of.tolist() == sorted(found)
    relations = pa.table(
        {
            "source_id": ["gone" if source < 0 else names[source] for source, _ in ends],
            "target_id": [names[target] for _, target in ends],
            "weight": weights,
        },
        pa.schema([("source_id", pa.string()), ("target_id", pa.string()), ("weight", pa.float64())]),
    )
    graph = build_graph(pa.chunked_array([names]), relations)
    expected = {}
    for pair in by_pair.values():
        if len(pair) > 1:
            (head,) = set(pair) & set(graph.relation_rows.tolist())
            expected[head] = sorted(set(pair) - {head}, key=lambda row: (-weights[row], row))
    assert found == expected
