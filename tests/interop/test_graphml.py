"""GraphML is read back by networkx and igraph with the same nodes and edges."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path

import igraph
import networkx as nx
import pyarrow as pa
from lxml import etree

from hirag_dist.interop.exports import write_graphml
from hirag_dist.schemas import CLAIMS

Tables = dict[str, pa.Table]


def written(tables: Tables) -> bytes:
    stream = io.BytesIO()
    write_graphml(tables, stream)
    return stream.getvalue()


def test_networkx_reads_the_tiny_index_back(tiny: Tables) -> None:
    graph = nx.parse_graphml(written(tiny).decode())
    assert not graph.is_directed()
    assert dict(graph.nodes["0:a"]) == {
        "name": "a",
        "label": "a",
        "type": "person",
        "layer": 0,
        "description": "About a.",
        "described": True,
        "n_mentions": 1,
        "community": "left",
        "community_level": 1,
    }
    assert graph.number_of_nodes() == 6
    assert sorted((*sorted(ends), kind) for *ends, kind in graph.edges(data="kind")) == [
        ("0:a", "0:b", "extracted"),
        ("0:a", "0:b", "extracted"),
        ("0:a", "0:c", "extracted"),
        ("0:a", "1:S", "summary"),
        ("0:b", "0:c", "extracted"),
        ("0:b", "1:S", "summary"),
        ("0:c", "0:d", "extracted"),
    ]


def test_names_that_break_xml_are_kept_but_for_control_characters(
    make_tables: Callable[[Mapping[str, str]], Tables], nasty: dict[str, str], tmp_path: Path
) -> None:
    tables = make_tables(nasty)
    raw = written(tables)
    etree.fromstring(raw)
    graph = nx.parse_graphml(raw.decode())
    expected = nasty | {"S": "control [31m"}
    assert {name: graph.nodes[f"{int(name == 'S')}:{name}"]["name"] for name in expected} == expected
    path = tmp_path / "graph.graphml"
    path.write_bytes(raw)
    assert sorted(igraph.Graph.Read_GraphML(str(path)).vs["name"]) == sorted(expected.values())


def test_claims_are_told_of_their_subject(tiny: Tables) -> None:
    ends = {"subject": "a", "object": "b", "subject_id": "0:a", "object_id": "0:b", "chunk_id": "c0"}
    told = {"type": "debt", "status": "true", "start_date": "", "end_date": "", "source_text": ""}
    rows = [
        ends | told | {"claim_id": "k1", "description": "a owes b."},
        ends | told | {"claim_id": "k2", "description": "a never paid."},
        ends | told | {"claim_id": "k3", "description": "Who?", "subject_id": None, "object_id": None},
    ]
    graph = nx.parse_graphml(written(tiny | {"claims": pa.Table.from_pylist(rows, CLAIMS)}).decode())
    assert graph.nodes["0:a"]["claims"] == "a → b, debt (true): a owes b.\na → b, debt (true): a never paid."
    assert not any("claims" in data for own, data in graph.nodes(data=True) if own != "0:a")
