"""Clusters → summaries → the entities of the next layer with their relations; and the meta types that guide them.

Nothing about a layer is whole: a task holds some clusters, some names, or some members. What cannot be divided is one
key: all mentions of a name by summaries, at most one a cluster, are in one task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

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
from hirag_dist.core.prompts.reply_limits import cut_evenly
from hirag_dist.core.prompts.reply_parsing import (
    EntityRecord,
    MemberLink,
    SummaryReply,
    parse_meta_types,
    parse_summary,
)
from hirag_dist.core.prompts.templates import PACKED, Prompts, meta_types_request, summary_request
from hirag_dist.core.text.normalize import one_line, shorten
from hirag_dist.execution.dataset import Dataset, TableSet
from hirag_dist.execution.stage import ByKey, ByRows, Services, Split, Tables, Whole, reject_row
from hirag_dist.indexing.stages.memberships import CLUSTER_MEMBERS
from hirag_dist.indexing.stages.packed_calls import PackableUnit, PackingOptions, ask_packed, stand_ins
from hirag_dist.schemas import CHUNKS, ENTITIES, REJECTS, RELATIONS
from hirag_dist.types import Rejected

N_EXCERPTS = 24
EXCERPT_CHARS = 1200
_TAG_TOKENS = 10  # around an excerpt
EXCERPTS = pa.schema([pa.field("chunk_id", pa.string(), nullable=False), pa.field("text", pa.string(), nullable=False)])
META_TYPES = pa.schema([pa.field("meta_type", pa.string(), nullable=False)])


@dataclass(frozen=True)
class SampleChunks:
    """Chunks → excerpts of a few. Ids are hashes: the lowest are a sample, the same for any number of tasks."""

    name: ClassVar[str] = "sample_chunks"
    version: ClassVar[int] = 1
    split: ClassVar[Split] = ByRows(4096)

    class Inputs(TableSet):
        chunks: Annotated[Dataset, CHUNKS]

    class Outputs(TableSet):
        excerpts: Annotated[Dataset, EXCERPTS]

    n_excerpts: int
    excerpt_chars: int

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the excerpts of this task's chunks that may be among the lowest of all."""
        lowest = tables["chunks"].select(["chunk_id", "text"]).sort_by("chunk_id").slice(0, self.n_excerpts)
        texts = [shorten(one_line(text), self.excerpt_chars) for text in lowest["text"].to_pylist()]
        return {"excerpts": pa.table([lowest["chunk_id"].combine_chunks(), pa.array(texts, pa.string())], EXCERPTS)}


@dataclass(frozen=True)
class ProposeMetaTypes:
    """Excerpts → meta types, in one call. Where no reply can be used, there are none and a dead letter."""

    name: ClassVar[str] = "meta_types"
    version: ClassVar[int] = 1
    split: ClassVar[Split] = Whole("one call: it reads a few excerpts for every 4,096 chunks")

    class Inputs(TableSet):
        excerpts: Annotated[Dataset, EXCERPTS]

    class Outputs(TableSet):
        meta_types: Annotated[Dataset, META_TYPES]
        rejects: Annotated[Dataset, REJECTS]

    n_excerpts: int
    prompts: Prompts
    models: tuple[str, ...]
    max_tokens: int | None = None  # Maximum tokens of all excerpts together; None: as they are

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the types in the model's order."""
        excerpts = tables["excerpts"]
        order = pc.sort_indices(excerpts, [("chunk_id", "ascending")])
        texts = excerpts["text"].take(order.slice(0, self.n_excerpts)).to_pylist()
        if self.max_tokens is not None:
            texts = cut_evenly(texts, self.max_tokens - _TAG_TOKENS * len(texts), services.count_tokens)
        found = await services.chat.ask(meta_types_request(texts, self.prompts), parse_meta_types)
        types: tuple[str, ...] = ()
        rejects = []
        if isinstance(found, Rejected):
            rejects.append(reject_row(self.name, found) | {"unit_id": "meta types"})
        else:
            types = found
        return {
            "meta_types": pa.table([pa.array(types, pa.string())], META_TYPES),
            "rejects": pa.Table.from_pylist(rejects, REJECTS),
        }


_ENTITY = pa.struct([("name", pa.string()), ("type", pa.string()), ("description", pa.string())])
_COVER = pa.struct(
    [("member", pa.int32()), ("entity", pa.int32()), ("description", pa.string()), ("strength", pa.float64())]
)
CLUSTER_SUMMARIES = pa.schema(
    [
        pa.field("cluster_id", pa.string(), nullable=False),
        pa.field("entities", pa.list_(_ENTITY), nullable=False),
        pa.field("covers", pa.list_(_COVER), nullable=False),
    ]
)


@dataclass(frozen=True)
class SummariseClusters:
    """Each cluster → its summary entities and which member each covers. Paper: §4.1, meta summary entities 𝒳."""

    name: ClassVar[str] = "summarise"
    version: ClassVar[int] = 4
    split: ClassVar[Split] = ByRows(64)  # packs end where a task ends

    class Inputs(TableSet):
        members: Annotated[Dataset, CLUSTER_MEMBERS]

    class Outputs(TableSet):
        summaries: Annotated[Dataset, CLUSTER_SUMMARIES]
        rejects: Annotated[Dataset, REJECTS]

    layer: int
    structured: bool
    meta_types: tuple[str, ...]
    packing: PackingOptions
    same_language: bool
    prompts: Prompts
    models: tuple[str, ...]
    member_tokens: int = 0  # Maximum tokens of all members of a prompt; 0: as the clusters have them
    stand_in: bool = False  # by rules, without a call

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return a summary for each cluster, and the clusters whose reply was refused to the last."""
        clusters = tables["members"].to_pylist()
        form = PACKED["summarise"] if self.structured else None
        system = self.prompts.system(PACKED["summarise"], form, meta_types=", ".join(self.meta_types))
        units = [self._unit(cluster, services.count_tokens) for cluster in clusters]
        if self.stand_in:
            results = stand_ins(units)
        else:
            results = await ask_packed(units, self.packing, "summarise", system, services)
        rows, rejects = [], []
        for cluster, result in zip(clusters, results, strict=True):
            if isinstance(result, Rejected):
                rejects.append(reject_row(self.name, result) | {"unit_id": cluster["cluster_id"]})
                continue
            rows.append(
                {
                    "cluster_id": cluster["cluster_id"],
                    "entities": [asdict(entity) for entity in result.entities],
                    "covers": [asdict(cover) for cover in result.covers],
                }
            )
        return {
            "summaries": pa.Table.from_pylist(rows, CLUSTER_SUMMARIES),
            "rejects": pa.Table.from_pylist(rejects, REJECTS),
        }

    def _unit(self, cluster: dict[str, Any], count_tokens: Callable[[str], int]) -> PackableUnit[SummaryReply]:
        names, texts = cluster["names"], cluster["descriptions"]
        if self.member_tokens:
            pairs = zip(names, cluster["types"], strict=True)
            named = sum(count_tokens(f"00. {name} ({kind}): \n") for name, kind in pairs)
            texts = cut_evenly(texts, max(self.member_tokens - named, 0), count_tokens)
        return self._unit_of(list(zip(names, cluster["types"], texts, strict=True)))

    def _unit_of(self, members: Sequence[tuple[str, str, str]]) -> PackableUnit[SummaryReply]:
        names, texts = [name for name, _, _ in members], [text for _, _, text in members]
        middle = len(members) // 2
        read = " ".join(texts) if self.same_language and "summarise" not in self.prompts.instructions else ""
        return PackableUnit(
            summary_request(members, self.prompts, self.meta_types, "summarise" if self.structured else None),
            lambda reply: parse_summary(reply, len(members), names, read),
            lambda: [self._unit_of(half) for half in (members[:middle], members[middle:])] if middle else [],
            lambda replies: _joined(replies, middle),
        )


def _joined(replies: Sequence[SummaryReply], n_members: int) -> SummaryReply:
    """Return the summary of a cluster from those of its two halves, of which the first has `n_members`."""
    one, other = replies
    covers = (
        replace(link, member=link.member + n_members, entity=link.entity + len(one.entities)) for link in other.covers
    )
    return SummaryReply(one.entities + other.entities, (*one.covers, *covers))


ATTACHED = pa.schema([pa.field("n_attached", pa.int64(), nullable=False)])
UNCOVERING = pa.schema([pa.field("n_uncovering", pa.int64(), nullable=False)])
UNATTACHED = pa.schema([pa.field("n_unattached", pa.int64(), nullable=False)])
_ROWS = 65_536  # rows of a task, a kilobyte each at most
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
