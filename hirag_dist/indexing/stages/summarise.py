"""Clusters → summary entities of the next layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, ClassVar

import pyarrow as pa

from hirag_dist.core.prompts.reply_limits import cut_evenly
from hirag_dist.core.prompts.reply_parsing import SummaryReply, parse_summary
from hirag_dist.core.prompts.templates import PACKED, Prompts, summary_request
from hirag_dist.execution.dataset import Dataset, TableSet
from hirag_dist.execution.stage import ByRows, Services, Split, Tables, reject_row
from hirag_dist.indexing.stages.memberships import CLUSTER_MEMBERS
from hirag_dist.indexing.stages.packed_calls import PackableUnit, PackingOptions, ask_packed
from hirag_dist.indexing.stages.stand_ins import stand_ins
from hirag_dist.schemas import REJECTS
from hirag_dist.types import Rejected

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
