"""Tiny working folders of each kind, as their tools write them.

All tell of the same story: Alice (a person) knows Bob in Wonderland, in two chunks of one document; Bob and
"the HATTER" are joined by a relation only, so the Hatter has no description.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import networkx as nx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hirag_dist.core.text.ids import chunk_id, document_id

FIRST = "Alice met Bob in Wonderland. They had tea."
SECOND = "They had tea. Bob thanked the Hatter."
TEXT = "Alice met Bob in Wonderland. They had tea. Bob thanked the Hatter."
CHUNKS = [chunk_id(document_id(TEXT), 0, 42, FIRST), chunk_id(document_id(TEXT), 29, 66, SECOND)]


def write_json(path: Path, held: object) -> None:
    path.write_text(json.dumps(held, ensure_ascii=False), encoding="utf-8")


def write_parquet(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist([dict(row) for row in rows]), path)


def kv_stores(folder: Path, **more: Any) -> None:
    """The two kv_store files of nano-graphrag and its descendants; `more` goes into every row."""
    write_json(folder / "kv_store_full_docs.json", {"doc-1": {"content": TEXT} | more})
    chunks = {
        "chunk-2": {"tokens": 9, "content": SECOND, "chunk_order_index": 1, "full_doc_id": "doc-1"} | more,
        "chunk-1": {"tokens": 11, "content": FIRST, "chunk_order_index": 0, "full_doc_id": "doc-1"} | more,
    }
    write_json(folder / "kv_store_text_chunks.json", chunks)


def save_graph(folder: Path, graph: nx.Graph) -> None:
    nx.write_graphml(graph, folder / "graph_chunk_entity_relation.graphml")


def write_claims(path: Path) -> None:
    """One claim between two entities, and one about a name that is none."""
    claim = {"covariate_type": "claim", "type": "THEFT", "description": "Bob may have taken the tarts.", "id": "c1"}
    claim |= {"subject_id": "BOB", "object_id": "ALICE", "status": "SUSPECTED", "text_unit_id": "t2"}
    claim |= {"start_date": "1865-11-01", "end_date": "NONE", "source_text": "They had tea."}
    other = claim | {"id": "c2", "subject_id": "THE QUEEN", "object_id": "NONE", "text_unit_id": "t1", "status": "TRUE"}
    write_parquet(path, [claim, other])


def write_communities(where: Path, prefix: str, old: bool) -> None:
    """A community of Alice, Bob and the Hare, and one of Alice and Bob inside it, with reports.

    GraphRAG 0.x names members in a table of nodes, and no parents.
    """
    levels = {"0": (0, ["ALICE", "BOB", "MARCH HARE"]), "1": (1, ["ALICE", "BOB"])}
    ids = {"ALICE": "0", "BOB": "1", "MARCH HARE": "2"}
    rows: list[dict[str, Any]] = []
    nodes: list[dict[str, Any]] = []
    for key, (level, names) in levels.items():
        own: dict[str, Any] = {"id": key, "title": f"Community {key}", "level": level}
        if not old:
            own |= {"id": f"id-{key}", "community": int(key), "parent": level - 1, "children": [1] if not level else []}
            own |= {"entity_ids": [ids[name] for name in names]}
        rows.append(own)
        nodes += [{"title": name, "level": level, "community": key} for name in names]
    write_parquet(where / f"{prefix}communities.parquet", rows)
    if old:
        write_parquet(where / "create_final_nodes.parquet", nodes)
    finding = {"explanation": "Every day.", "summary": "They have tea."}
    why = {"rank_explanation" if old else "rating_explanation": "Tea matters."}
    reports = [
        {"community": key if old else int(key), "title": f"Tea {key}", "summary": "A party.", "rank": 7.5} | why
        for key in levels
    ]
    write_parquet(where / f"{prefix}community_reports.parquet", [row | {"findings": [finding]} for row in reports])


@pytest.fixture
def nano(tmp_path: Path) -> Path:
    """As nano-graphrag wrote it in 2024: names, types and descriptions in quotes, names in capitals."""
    kv_stores(tmp_path)
    graph = nx.Graph()
    alice, thanks = '"Alice is a girl."<SEP>"Alice is curious."', '"Bob thanked the Hatter."'
    graph.add_node('"ALICE"', entity_type='"PERSON"', description=alice, source_id="chunk-1<SEP>chunk-2")
    graph.add_node('"BOB"', entity_type='"PERSON"', description='"Bob is polite."', source_id="chunk-1")
    land = {"entity_type": '"GEO"', "description": '"A land & more."', "clusters": '[{"level": 0, "cluster": 1}]'}
    graph.add_node('"WONDERLAND"', source_id="chunk-1", **land)
    graph.add_node('"THE HATTER"', entity_type='"UNKNOWN"', description=thanks, source_id="chunk-2")
    graph.add_edge('"ALICE"', '"BOB"', weight=9.0, description='"They met."', source_id="chunk-1", order=1)
    graph.add_edge('"BOB"', '"THE HATTER"', weight=7.0, description=thanks, source_id="chunk-2", order=1)
    save_graph(tmp_path, graph)
    report = {"title": "Tea", "summary": "A party.", "rating": "6", "rating_explanation": "", "findings": ["Often."]}
    community = {"level": 0, "title": "Cluster 1", "nodes": ['"ALICE"', '"BOB"', '"THE DORMOUSE"'], "edges": []}
    community |= {"report_json": report, "report_string": "# Tea", "chunk_ids": ["chunk-1"], "occurrence": 1.0}
    broken = community | {"title": "Cluster 2", "nodes": ['"WONDERLAND"'], "report_json": {}}
    write_json(tmp_path / "kv_store_community_reports.json", {"1": community, "2": broken, "3": {"title": "No level"}})
    write_json(tmp_path / "vdb_entities.json", {"embedding_dim": 2, "data": [], "matrix": ""})
    write_json(tmp_path / "kv_store_llm_response_cache.json", {})
    return tmp_path


@pytest.fixture
def hirag(tmp_path: Path) -> Path:
    """As HiRAG writes it: a summary entity without a source chunk, and Alice named by a chunk and by a summary."""
    kv_stores(tmp_path)
    graph = nx.Graph()
    graph.add_node('"ALICE"', entity_type='"PERSON"', description='"A girl."', source_id="<SEP>chunk-1")
    graph.add_node('"ADVENTURE"', entity_type='"CONCEPT"', description='"What happens."', source_id="")
    graph.add_edge('"ALICE"', '"ADVENTURE"', weight=8.0, description='"She has one."', source_id="", order=1)
    save_graph(tmp_path, graph)
    return tmp_path


@pytest.fixture
def lightrag(tmp_path: Path) -> Path:
    """As LightRAG 1.4 writes it: file paths, keywords, and all chunks of an entity in a store of their own."""
    kv_stores(tmp_path, file_path="alice.txt", create_time=1, update_time=1)
    graph = nx.Graph()
    more = {"file_path": "alice.txt", "created_at": 1}
    nodes = (("Alice", "person", "A girl.", 1), ("alice", "animal", "A cat.", 2), ("Bob", "person", "Polite.", 1))
    for name, kind, text, at in nodes:
        own = {"entity_type": kind, "description": text, "source_id": f"chunk-{at}", "truncate": ""}
        graph.add_node(name, entity_id=name, **own, **more)
    edge = {"weight": 9.0, "description": "They met.", "keywords": "meeting,tea", "source_id": "chunk-1", **more}
    graph.add_edge("Alice", "Bob", **edge)
    graph.add_edge("alice", "Bob", **edge | {"description": "She purrs.", "weight": 2.0, "source_id": "chunk-2"})
    save_graph(tmp_path, graph)
    write_json(tmp_path / "kv_store_full_entities.json", {"doc-1": {"entity_names": ["Alice", "Bob"], "count": 2}})
    chunks = ["chunk-1", "chunk-2"]
    write_json(tmp_path / "kv_store_entity_chunks.json", {"Bob": {"chunk_ids": chunks, "count": 2}})
    write_json(tmp_path / "kv_store_relation_chunks.json", {"Alice<SEP>Bob": {"chunk_ids": chunks, "count": 2}})
    write_json(tmp_path / "kv_store_doc_status.json", {"doc-1": {"status": "processed", "file_path": "alice.txt"}})
    return tmp_path


@pytest.fixture
def graphrag(tmp_path: Path) -> Callable[..., Path]:
    """As GraphRAG writes it. `old`: the names of 0.x; `below`: the folder under the root that holds the tables."""

    def make(old: bool = False, below: str = "") -> Path:
        where = tmp_path / below
        prefix = "create_final_" if old else ""
        document = {"id": "d", "title": "alice.txt", "text_unit_ids": ["t1", "t2"]}
        document |= {"raw_content": TEXT} if old else {"text": TEXT, "creation_date": "2025", "metadata": None}
        write_parquet(where / f"{prefix}documents.parquet", [document])
        home: dict[str, Any] = {"document_ids": ["d"]} if old else {"document_id": "d"}
        units = [{"id": "t1", "text": FIRST, "n_tokens": 11} | home, {"id": "t2", "text": SECOND, "n_tokens": 9} | home]
        write_parquet(where / f"{prefix}text_units.parquet", units)
        name = "name" if old else "title"
        entities = [
            {name: "ALICE", "type": "PERSON", "description": "A girl.\n\nVery curious.", "text_unit_ids": ["t1", "t2"]},
            {name: "BOB", "type": "PERSON", "description": "Polite.", "text_unit_ids": ["t1"]},
            {name: "MARCH HARE", "type": "", "description": "", "text_unit_ids": ["t2"]},
        ]
        write_parquet(where / f"{prefix}entities.parquet", [{"id": str(at)} | row for at, row in enumerate(entities)])
        relations = [
            {"source": "ALICE", "target": "BOB", "description": "They met.", "weight": 9.0, "text_unit_ids": ["t1"]},
            {"source": "BOB", "target": "ALICE", "description": "Friends.", "weight": 3.0, "text_unit_ids": ["t2"]},
            {"source": "BOB", "target": "THE HATTER", "description": "Thanks.", "weight": 7.0, "text_unit_ids": ["t2"]},
        ]
        write_parquet(where / f"{prefix}relationships.parquet", relations)
        write_claims(where / f"{prefix}covariates.parquet")
        write_communities(where, prefix, old)
        return tmp_path

    return make
