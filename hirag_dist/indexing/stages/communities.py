"""All layers → the graph, its communities, and the outline of what each community's report shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import pyarrow as pa

from hirag_dist.core.graph.communities import community_table
from hirag_dist.core.graph.csr import build_graph
from hirag_dist.core.graph.imported_communities import renamed_reports, with_summaries
from hirag_dist.core.reports.selection import ENTITY_PLACES, OUTLINES, RELATION_PLACES, report_outlines
from hirag_dist.execution.dataset import Dataset, TableSet
from hirag_dist.execution.stage import Services, Split, Tables, Whole, output_schemas
from hirag_dist.schemas import COMMUNITIES, ENTITIES, RELATIONS, REPORTS

ENTITY_ORDER = pa.schema([ENTITIES.field(name) for name in ("entity_id", "layer")])
RELATION_ENDS = pa.schema([RELATIONS.field(name) for name in ("relation_id", "source_id", "target_id", "weight")])
RELATION_KINDS = pa.schema([RELATIONS.field(name) for name in ("source_id", "target_id", "kind")])
_LIMIT = "one process, ids and numbers only: about 1 million entities and 5 million relations in 4 GiB"


@dataclass(frozen=True)
class DetectCommunities:
    """Entities and relations of all layers → hierarchical Leiden communities. Paper: §4.1, end."""

    name: ClassVar[str] = "communities"
    version: ClassVar[int] = 2
    split: ClassVar[Split] = Whole(_LIMIT)

    class Inputs(TableSet):
        entities: Annotated[Dataset, ENTITY_ORDER]
        relations: Annotated[Dataset, RELATION_ENDS]

    class Outputs(TableSet):
        communities: Annotated[Dataset, COMMUNITIES]

    max_size: int
    resolution: float
    seed: int
    kernels: str

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the communities; an entity without relations is one by itself."""
        if tables["entities"].num_rows == 0:
            return {"communities": COMMUNITIES.empty_table()}
        entities, relations = _in_order(tables)
        graph = build_graph(entities["entity_id"], relations)
        levels = services.kernels(self.kernels).leiden(graph, self.max_size, self.resolution, self.seed)
        return {"communities": community_table(levels, graph, entities["entity_id"])}


@dataclass(frozen=True)
class KeepCommunities:
    """Communities and reports that were imported → the same, with the summary entities above their members."""

    name: ClassVar[str] = "keep_communities"
    version: ClassVar[int] = 1
    split: ClassVar[Split] = Whole(_LIMIT)

    class Inputs(TableSet):
        communities: Annotated[Dataset, COMMUNITIES]
        reports: Annotated[Dataset, REPORTS]
        entities: Annotated[Dataset, ENTITY_ORDER]
        relations: Annotated[Dataset, RELATION_KINDS]

    class Outputs(TableSet):
        communities: Annotated[Dataset, COMMUNITIES]
        reports: Annotated[Dataset, REPORTS]

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return them under ids that hash all their members."""
        communities, ids = with_summaries(tables["communities"], tables["entities"], tables["relations"])
        return {"communities": communities, "reports": renamed_reports(tables["reports"], ids)}


@dataclass(frozen=True)
class OutlineReports:
    """Communities → what each one's report may show, by id, and which reports are written together."""

    name: ClassVar[str] = "report_outlines"
    version: ClassVar[int] = 1
    split: ClassVar[Split] = Whole(_LIMIT)

    class Inputs(TableSet):
        communities: Annotated[Dataset, COMMUNITIES]
        entities: Annotated[Dataset, ENTITY_ORDER]
        relations: Annotated[Dataset, RELATION_ENDS]

    class Outputs(TableSet):
        outlines: Annotated[Dataset, OUTLINES]
        above: Annotated[Dataset, OUTLINES]
        entities: Annotated[Dataset, ENTITY_PLACES]
        relations: Annotated[Dataset, RELATION_PLACES]

    max_lines: int
    max_tree: int

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the outlines, and which tree needs the text of which entity and relation."""
        if tables["communities"].num_rows == 0:
            return {name: schema.empty_table() for name, schema in output_schemas(self).items()}
        entities, relations = _in_order(tables)
        degree = np.diff(build_graph(entities["entity_id"], relations).indptr)
        found = report_outlines(
            tables["communities"], entities["entity_id"], relations, degree, self.max_lines, self.max_tree
        )
        return {
            "outlines": found.below,
            "above": found.above,
            "entities": found.entities,
            "relations": found.relations,
        }


def _in_order(tables: Tables) -> tuple[pa.Table, pa.Table]:
    """Return entities and relations in the order of a snapshot's rows."""
    entities = tables["entities"].sort_by([("layer", "ascending"), ("entity_id", "ascending")])
    return entities, tables["relations"].sort_by("relation_id")
