"""A question answered as the HiRAG reference does it, as the baseline of `query.py`: our own code, after its algorithm.

A NetworkX graph of Python objects keyed by id, and dictionaries of chunks and reports. The steps: the 200 entities
nearest to the question; the first 20 as local knowledge with their relations and chunks; the communities that they
name, by how many name them and rating; of each community those of the 200 that belong to it, 10 at most, as key
entities; one walk of shortest paths from the first key entity through all others; everything cut to its token limit
and written as CSV. Kinder than the reference where that costs nothing in likeness: membership is looked up in sets, key
entities keep their order instead of a hash seed's, a pair without a path is left out, and no cache file is rewritten
after the answer.
"""

from __future__ import annotations

import csv
import io
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from hirag_dist.storage.snapshot.reader import Snapshot

TOP_K = 20
CANDIDATES = 10 * TOP_K
TOP_M = 10
DEEPEST_LEVEL = 2
TOKENS = {"communities": 3200, "relations": 4800, "chunks": 4000}
_SEPARATOR = "<SEP>"


class ReferenceQuery:
    """One index as Python objects.

    Args:
        snapshot: what is asked.
        count_tokens: of a text; called each time, as the reference does.
    """

    def __init__(self, snapshot: Snapshot, count_tokens: Callable[[str], int]) -> None:
        self._count = count_tokens
        self._vectors = np.array(snapshot.entity_vectors)
        self._graph = nx.Graph()
        self._communities: dict[str, dict[str, Any]] = {}
        clusters: dict[str, list[dict[str, Any]]] = {}
        reports = {row["community_id"]: row for row in snapshot.table("reports").to_pylist()}
        for batch in snapshot.table("communities").to_batches(1000):
            for row in batch.to_pylist():
                report = reports.get(row["community_id"])
                if report is None:
                    continue
                findings = "\n\n".join(f"## {each['summary']}\n\n{each['explanation']}" for each in report["findings"])
                self._communities[row["community_id"]] = {
                    "level": row["level"],
                    "nodes": set(row["entity_ids"]),
                    "rating": report["rating"],
                    "report": f"# {report['title']}\n\n{report['summary']}\n\n{findings}",
                }
                for own in row["entity_ids"]:
                    clusters.setdefault(own, []).append({"level": row["level"], "cluster": row["community_id"]})
        self._ids: list[str] = []
        for batch in snapshot.table("entities").to_batches(10_000):
            for row in batch.to_pylist():
                self._ids.append(row["entity_id"])
                self._graph.add_node(
                    row["entity_id"],
                    name=row["name"],
                    entity_type=row["type"],
                    description=row["description"],
                    source_id=_SEPARATOR.join(row["chunk_ids"]),
                    clusters=json.dumps(clusters.pop(row["entity_id"], [])),
                )
        for batch in snapshot.table("relations").to_batches(10_000):
            for row in batch.to_pylist():
                self._graph.add_edge(
                    row["source_id"],
                    row["target_id"],
                    weight=row["weight"],
                    description=row["description"],
                    source_id=_SEPARATOR.join(row["chunk_ids"]),
                )
        chunks = snapshot.table("chunks").select(["chunk_id", "text"])
        self._chunks = dict(zip(*(chunks[name].to_pylist() for name in chunks.column_names), strict=True))

    def ask(self, vector: NDArray[np.float32]) -> tuple[str, dict[str, float]]:
        """Return the context and how long each step took, in milliseconds."""
        times: dict[str, float] = {}
        started = time.perf_counter()
        with _timed(times, "search"):
            found = self._nearest(vector)
        with _timed(times, "communities"):
            local = found[:TOP_K]
            communities = self._related_communities(local)
        with _timed(times, "local"):
            relations = self._within("relations", self._relations(local), lambda row: str(row[2]))
            chunks = self._within("chunks", self._sources(local), str)
        with _timed(times, "bridge"):
            paths = self._bridge(found, communities)
        with _timed(times, "render"):
            nodes = self._graph.nodes
            entities = [
                (nodes[own]["name"], nodes[own]["entity_type"], nodes[own]["description"], self._graph.degree(own))
                for own in local
            ]
            context = _rendered(
                {
                    "Entities": entities,
                    "Reports": [(community["report"],) for community in communities],
                    "Reasoning Path": paths,
                    "Relationships": relations,
                    "Sources": [(text,) for text in chunks],
                }
            )
        times["total"] = (time.perf_counter() - started) * 1e3
        return context, times

    def _nearest(self, vector: NDArray[np.float32]) -> list[str]:
        scores = self._vectors @ vector
        best = np.argpartition(scores, -min(CANDIDATES, len(scores)))[-CANDIDATES:]
        return [self._ids[row] for row in best[np.argsort(-scores[best])].tolist()]

    def _related_communities(self, local: Sequence[str]) -> list[dict[str, Any]]:
        named: Counter[str] = Counter()
        for own in local:
            for each in json.loads(self._graph.nodes[own]["clusters"]):
                if each["level"] <= DEEPEST_LEVEL:
                    named[each["cluster"]] += 1
        known = [own for own in named if own in self._communities]
        known.sort(key=lambda own: (named[own], self._communities[own]["rating"]), reverse=True)
        ranked = [self._communities[own] for own in known]
        return self._within("communities", ranked, lambda community: str(community["report"]))

    def _relations(self, local: Sequence[str]) -> list[tuple[Any, ...]]:
        edges = dict.fromkeys(tuple(sorted(edge)) for own in local for edge in self._graph.edges(own))
        return self._ranked_edges(edges)

    def _ranked_edges(self, edges: dict[tuple[str, ...], None]) -> list[tuple[Any, ...]]:
        rows = []
        for source, target in edges:
            edge = self._graph.edges[source, target]
            rank = self._graph.degree(source) + self._graph.degree(target)
            names = self._graph.nodes[source]["name"], self._graph.nodes[target]["name"]
            rows.append((*names, edge["description"], edge["weight"], rank))
        return sorted(rows, key=lambda row: (row[4], row[3]), reverse=True)

    def _sources(self, local: Sequence[str]) -> list[str]:
        """Return the chunks of the local entities, by entity and by how many of its neighbours share the chunk."""
        beside = {other for own in local for other in self._graph[own]}
        held = {other: set(self._graph.nodes[other]["source_id"].split(_SEPARATOR)) for other in beside}
        found: dict[str, tuple[int, int]] = {}
        for order, own in enumerate(local):
            for chunk in self._graph.nodes[own]["source_id"].split(_SEPARATOR):
                if chunk in self._chunks and chunk not in found:
                    found[chunk] = order, -sum(chunk in held[other] for other in self._graph[own])
        return [self._chunks[chunk] for chunk in sorted(found, key=lambda chunk: found[chunk])]

    def _bridge(self, found: Sequence[str], communities: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
        keys = dict.fromkeys(
            own for community in communities for own in [own for own in found if own in community["nodes"]][:TOP_M]
        )
        walked: list[str] = []
        for source, target in pairwise(keys):
            try:
                walked.extend(nx.shortest_path(self._graph, source, target))
            except nx.NetworkXNoPath:
                continue
        inside = self._graph.subgraph(walked)
        return self._ranked_edges(dict.fromkeys(tuple(sorted(edge)) for edge in inside.edges()))

    def _within(self, kind: str, items: Sequence[Any], text: Callable[[Any], str]) -> list[Any]:
        """Return as many of the first items as fit the token limit."""
        used = 0
        for at, item in enumerate(items):
            used += self._count(text(item))
            if used > TOKENS[kind]:
                return list(items[:at])
        return list(items)


def _rendered(sections: dict[str, Sequence[tuple[Any, ...]]]) -> str:
    buffer = io.StringIO()
    for title, rows in sections.items():
        buffer.write(f"-----{title}-----\n```csv\n")
        csv.writer(buffer).writerows((at, *row) for at, row in enumerate(rows))
        buffer.write("```\n")
    return buffer.getvalue()


@contextmanager
def _timed(times: dict[str, float], part: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    times[part] = (time.perf_counter() - started) * 1e3
