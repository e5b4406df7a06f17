"""Summaries of clusters → the entities of the next layer, their relations to the members, and to equal names below.

Nothing here is whole: a task holds some clusters, some names, or some members. What cannot be divided is one key: all
mentions of a name by summaries, at most one a cluster, are in one task.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import pyarrow as pa

from hirag_dist.core.entities.summaries import (
    NAMES,
    SUMMARY_LINKS,
    SUMMARY_MENTIONS,
    SummarisedCluster,
    link_members,
    merge_summary_links,
    merge_summary_mentions,
    relate_equal_names,
)
from hirag_dist.core.prompts.reply_parsing import EntityRecord, MemberLink, SummaryReply
from hirag_dist.execution.dataset import Dataset, TableSet
from hirag_dist.execution.stage import ByKey, Services, Split, Tables
from hirag_dist.indexing.stages.memberships import CLUSTER_MEMBERS
from hirag_dist.indexing.stages.summarise import CLUSTER_SUMMARIES
from hirag_dist.schemas import ENTITIES, RELATIONS

ATTACHED = pa.schema([pa.field("n_attached", pa.int64(), nullable=False)])
UNCOVERING = pa.schema([pa.field("n_uncovering", pa.int64(), nullable=False)])
UNATTACHED = pa.schema([pa.field("n_unattached", pa.int64(), nullable=False)])
_ROWS = 65_536  # of a task, a kilobyte each at most
_SHOWN = pa.schema([CLUSTER_MEMBERS.field(name) for name in ("cluster_id", "member_ids", "names", "descriptions")])
_NAMED = pa.schema([ENTITIES.field(name) for name in ("entity_id", "layer", "name")])


@dataclass(frozen=True)
class LinkMembers:
    """Clusters and their summaries → mentions of summary entities, and links from the members to them."""

    name: ClassVar[str] = "link_members"
    version: ClassVar[int] = 1
    split: ClassVar[Split] = ByKey("cluster_id", 2048)  # some ten kilobytes of prompt material each

    class Inputs(TableSet):
        members: Annotated[Dataset, _SHOWN]
        summaries: Annotated[Dataset, CLUSTER_SUMMARIES]

    class Outputs(TableSet):
        mentions: Annotated[Dataset, SUMMARY_MENTIONS]
        links: Annotated[Dataset, SUMMARY_LINKS]
        stats: Annotated[Dataset, ATTACHED]

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return mentions and links of these clusters, and how many members were attached by us."""
        summaries = {
            row["cluster_id"]: SummaryReply(
                tuple(EntityRecord(**entity) for entity in row["entities"]),
                tuple(MemberLink(**cover) for cover in row["covers"]),
            )
            for row in tables["summaries"].to_pylist()
        }
        clusters = [
            SummarisedCluster(
                row["cluster_id"],
                tuple(row["member_ids"]),
                tuple(f"{name} {text}" for name, text in zip(row["names"], row["descriptions"], strict=True)),
                summaries.get(row["cluster_id"]),
            )
            for row in tables["members"].to_pylist()
        ]
        mentions, links, n_attached = link_members(clusters)
        return {"mentions": mentions, "links": links, "stats": pa.table([[n_attached]], schema=ATTACHED)}


@dataclass(frozen=True)
class MergeSummaryEntities:
    """Mentions of summary entities → the entities of a layer. Paper: Eq. 10."""

    name: ClassVar[str] = "merge_summary_entities"
    version: ClassVar[int] = 2
    split: ClassVar[Split] = ByKey("name_key", _ROWS)

    class Inputs(TableSet):
        mentions: Annotated[Dataset, SUMMARY_MENTIONS]

    class Outputs(TableSet):
        entities: Annotated[Dataset, ENTITIES]
        stats: Annotated[Dataset, UNCOVERING]

    layer: int
    max_description_chars: int

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the entities of this partition of names, and the number of those that cover no member."""
        entities, n_uncovering = merge_summary_mentions(tables["mentions"], self.layer, self.max_description_chars)
        stats = pa.table([[n_uncovering]], schema=UNCOVERING)
        return {"entities": entities, "stats": stats}


@dataclass(frozen=True)
class MergeSummaryRelations:
    """Links to summary entities → relations between two layers. Paper: Eq. 10.

    Members of clusters without a summary stay unattached unless another cluster has them.
    """

    name: ClassVar[str] = "merge_summary_relations"
    version: ClassVar[int] = 1
    split: ClassVar[Split] = ByKey("member_id", _ROWS)

    class Inputs(TableSet):
        links: Annotated[Dataset, SUMMARY_LINKS]

    class Outputs(TableSet):
        relations: Annotated[Dataset, RELATIONS]
        stats: Annotated[Dataset, UNATTACHED]

    layer: int

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the relations of this partition of members, and how many of these have none."""
        relations, n_unattached = merge_summary_links(tables["links"], self.layer)
        return {"relations": relations, "stats": pa.table([[n_unattached]], schema=UNATTACHED)}


@dataclass(frozen=True)
class RelateEqualNames:
    """Names of all layers → a relation wherever a layer has the name of one below."""

    name: ClassVar[str] = "relate_equal_names"
    version: ClassVar[int] = 1
    split: ClassVar[Split] = ByKey("name_key", 2 * _ROWS)

    class Inputs(TableSet):
        names: Annotated[Dataset, NAMES]

    class Outputs(TableSet):
        relations: Annotated[Dataset, RELATIONS]

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the relations of this partition of names."""
        return {"relations": relate_equal_names(tables["names"])}
