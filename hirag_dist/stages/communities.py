"""All layers → the graph, its communities, and what each community's report is written from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from hirag_dist.core.communities import community_table, membership
from hirag_dist.core.graph import build_graph, rows_of
from hirag_dist.core.text import one_line, shorten
from hirag_dist.schemas import COMMUNITIES, ENTITIES, RELATIONS
from hirag_dist.stages.base import Schemas, Services, Split, Tables, Whole
from hirag_dist.types import IntVector

_LINE = pa.struct(
    [
        ("entity_id", pa.string()),
        ("name", pa.string()),
        ("type", pa.string()),
        ("description", pa.string()),
        ("degree", pa.int64()),
    ]
)
_LINK = pa.struct(
    [
        ("relation_id", pa.string()),
        ("source_id", pa.string()),
        ("target_id", pa.string()),
        ("source", pa.string()),
        ("target", pa.string()),
        ("description", pa.string()),
        ("weight", pa.float64()),
    ]
)
REPORT_MATERIAL = pa.schema(
    [
        pa.field("community_id", pa.string(), nullable=False),
        pa.field("level", pa.int32(), nullable=False),
        pa.field("n_entities", pa.int64(), nullable=False),
        pa.field("members", pa.list_(_LINE), nullable=False),
        pa.field("links", pa.list_(_LINK), nullable=False),
        pa.field("entity_ids", pa.list_(pa.string()), nullable=False),
        pa.field("child_ids", pa.list_(pa.string()), nullable=False),
    ]
)


@dataclass(frozen=True)
class DetectCommunities:
    """Entities and relations of all layers → hierarchical Leiden communities. Paper: §4.1, end."""

    name: ClassVar[str] = "communities"
    version: ClassVar[int] = 1
    split: ClassVar[Split] = Whole("one process: about 1 million entities and 5 million relations in 4 GiB")
    reads: ClassVar[Schemas] = {"entities": ENTITIES, "relations": RELATIONS}
    writes: ClassVar[Schemas] = {"communities": COMMUNITIES}

    max_size: int
    resolution: float
    seed: int
    kernels: str

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the communities; an entity without relations is one by itself."""
        entities = tables["entities"].sort_by([("layer", "ascending"), ("entity_id", "ascending")])
        relations = tables["relations"].sort_by("relation_id")
        if entities.num_rows == 0:
            return {"communities": COMMUNITIES.empty_table()}
        graph = build_graph(entities["entity_id"], relations)
        levels = services.kernels.leiden(graph, self.max_size, self.resolution, self.seed)
        return {"communities": community_table(levels, graph, entities["entity_id"])}


@dataclass(frozen=True)
class GatherReportMaterial:
    """Communities → the members and relations that their prompts may show, most prominent first, bounded."""

    name: ClassVar[str] = "report_material"
    version: ClassVar[int] = 1
    split: ClassVar[Split] = Whole("one process: about 1 million entities and 5 million relations in 4 GiB")
    reads: ClassVar[Schemas] = {"communities": COMMUNITIES, "entities": ENTITIES, "relations": RELATIONS}
    writes: ClassVar[Schemas] = {"material": REPORT_MATERIAL}

    max_lines: int
    description_chars: int

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return one row a community, sorted by (level, id)."""
        communities = tables["communities"]
        if communities.num_rows == 0:
            return {"material": REPORT_MATERIAL.empty_table()}
        entities = tables["entities"].sort_by([("layer", "ascending"), ("entity_id", "ascending")])
        relations = tables["relations"].sort_by("relation_id")
        lines = _EntityLines(entities, np.diff(build_graph(entities["entity_id"], relations).indptr), self)
        links = _RelationLines(relations, lines, self)
        indptr, members = membership(communities, entities["entity_id"])
        parents = communities["parent_id"].to_pylist()
        community_ids = communities["community_id"].to_pylist()
        children: dict[str, list[str]] = {}
        for own, parent in zip(community_ids, parents, strict=True):
            if parent is not None:
                children.setdefault(parent, []).append(own)
        rows = []
        for at, (own, level) in enumerate(zip(community_ids, communities["level"].to_pylist(), strict=True)):
            inside = members[indptr[at] : indptr[at + 1]].astype(np.int64)
            rows.append(
                {
                    "community_id": own,
                    "level": level,
                    "n_entities": len(inside),
                    "members": lines.of(inside),
                    "links": links.among(inside),
                    "entity_ids": [lines.ids[row] for row in inside.tolist()] if parents[at] is not None else [],
                    "child_ids": children.get(own, []),
                }
            )
        return {"material": pa.Table.from_pylist(rows, REPORT_MATERIAL)}


class _EntityLines:
    def __init__(self, entities: pa.Table, degree: IntVector, stage: GatherReportMaterial) -> None:
        self.ids = entities["entity_id"].to_pylist()
        self.order = entities["entity_id"]
        self.names = entities["name"].to_pylist()
        self._kinds = entities["type"].to_pylist()
        self._texts = entities["description"].to_pylist()
        self._degree = degree
        self._stage = stage

    def of(self, rows: IntVector) -> list[dict[str, Any]]:
        """Return the most prominent of these rows."""
        top = rows[np.lexsort((rows, -self._degree[rows]))][: self._stage.max_lines]
        return [
            {
                "entity_id": self.ids[row],
                "name": self.names[row],
                "type": self._kinds[row],
                "description": shorten(one_line(self._texts[row]), self._stage.description_chars),
                "degree": int(self._degree[row]),
            }
            for row in top.tolist()
        ]


class _RelationLines:
    def __init__(self, relations: pa.Table, entities: _EntityLines, stage: GatherReportMaterial) -> None:
        self._entities = entities
        self._source = rows_of(relations["source_id"], entities.order)
        self._target = rows_of(relations["target_id"], entities.order)
        self._weights = relations["weight"].to_numpy()
        self._ids = relations["relation_id"].to_pylist()
        self._texts = relations["description"].to_pylist()
        self._stage = stage
        self._place = np.full(len(entities.ids), -1, np.int64)
        order = np.argsort(self._source, kind="stable")
        self._by_source = order
        self._bounds = np.searchsorted(self._source[order], np.arange(len(entities.ids) + 1))

    def among(self, rows: IntVector) -> list[dict[str, Any]]:
        """Return the heaviest relations with both endpoints among these rows."""
        self._place[rows] = 1
        spans = [self._by_source[self._bounds[row] : self._bounds[row + 1]] for row in rows.tolist()]
        starting = np.concatenate(spans) if spans else np.empty(0, np.int64)
        inside = starting[self._place[self._target[starting]] > 0]
        self._place[rows] = -1
        names, ids = self._entities.names, self._entities.ids
        return [
            {
                "relation_id": self._ids[row],
                "source_id": ids[self._source[row]],
                "target_id": ids[self._target[row]],
                "source": names[self._source[row]],
                "target": names[self._target[row]],
                "description": shorten(one_line(self._texts[row]), self._stage.description_chars),
                "weight": float(self._weights[row]),
            }
            for row in inside[np.lexsort((inside, -self._weights[inside]))][: self._stage.max_lines].tolist()
        ]
