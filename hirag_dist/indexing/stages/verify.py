"""Chunks, and the names that were found in them → mentions that the extract model has checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import pyarrow as pa

from hirag_dist.core.entities.merging import mentions_of
from hirag_dist.core.entities.verification import (
    VERIFY_TASK,
    Pair,
    Verification,
    parse_verification,
    verification_request,
)
from hirag_dist.core.prompts.reply_parsing import EntityRecord, ExtractionReply, RelationRecord
from hirag_dist.core.prompts.templates import DONE, PACKED, Prompts
from hirag_dist.execution.dataset import Dataset, TableSet
from hirag_dist.execution.stage import ByKey, Services, Split, Tables, reject_row
from hirag_dist.extraction import quoted_sentences
from hirag_dist.indexing.stages.packed_calls import PackableUnit, PackingOptions, ask_packed
from hirag_dist.schemas import CHUNKS, EXTRACTION_COSTS, MENTIONS, REJECTS, RELATION_MENTIONS
from hirag_dist.types import ChatReply, Rejected

PROPOSED_CHUNKS = pa.schema([CHUNKS.field(name) for name in ("chunk_id", "text")])
_Checked = tuple[Verification, int]  # and the tokens of the chunk's part of request and reply


@dataclass(frozen=True)
class _Proposal:
    """The candidates of one chunk, and the pairs of them that may be related."""

    chunk_id: str
    text: str
    entities: list[dict[str, Any]]  # MENTIONS, by position
    relations: dict[Pair, dict[str, Any]]  # RELATION_MENTIONS

    def names(self) -> list[str]:
        return [row["name"] for row in self.entities]

    def excerpt(self) -> str:
        """Return the sentences of the text that the descriptions of candidates and pairs quote."""
        rows = (*self.entities, *self.relations.values())
        return quoted_sentences(self.text, (row["description"] for row in rows), self.names())


@dataclass(frozen=True)
class VerifyMentions:
    """Proposed mentions → those that the model keeps, with its types and descriptions.

    Chunks share calls within `packing`. A relation that is kept has the description and strength of its proposal, and
    so has an entity that the model leaves undescribed.

    Attributes:
        whole_text: show the text of a chunk; otherwise the sentences that the proposal's descriptions quote.
    """

    name: ClassVar[str] = "verify"
    version: ClassVar[int] = 2
    split: ClassVar[Split] = ByKey("chunk_id", 32)

    class Inputs(TableSet):
        chunks: Annotated[Dataset, PROPOSED_CHUNKS]
        mentions: Annotated[Dataset, MENTIONS]
        relation_mentions: Annotated[Dataset, RELATION_MENTIONS]

    class Outputs(TableSet):
        mentions: Annotated[Dataset, MENTIONS]
        relation_mentions: Annotated[Dataset, RELATION_MENTIONS]
        rejects: Annotated[Dataset, REJECTS]
        costs: Annotated[Dataset, EXTRACTION_COSTS]

    structured: bool
    entity_types: tuple[str, ...]
    split_homonyms: bool
    same_language: bool
    whole_text: bool
    packing: PackingOptions
    prompts: Prompts
    models: tuple[str, ...]

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the kept mentions in chunk order, and the chunks whose reply was refused to the last."""
        proposals = _proposals(tables)
        asked = [proposal for proposal in proposals if proposal.entities]
        form = VERIFY_TASK if self.structured else None
        packed_form = PACKED[VERIFY_TASK] if self.structured else None
        system = self.prompts.system(PACKED[VERIFY_TASK], packed_form, entity_types=", ".join(self.entity_types))
        units = [self._unit(proposal, form, services) for proposal in asked]
        replies = await ask_packed(units, self.packing, VERIFY_TASK, system, services)
        found = {proposal.chunk_id: reply for proposal, reply in zip(asked, replies, strict=True)}
        rejects = [
            reject_row(self.name, reply) | {"unit_id": chunk_id}
            for chunk_id, reply in found.items()
            if isinstance(reply, Rejected)
        ]
        mentions: list[Any] = []
        relations: list[Any] = []
        costs: list[Any] = []
        for proposal in proposals:
            reply = found.get(proposal.chunk_id)
            tokens = reply[1] if isinstance(reply, tuple) else 0
            costs.append({"chunk_id": proposal.chunk_id, "stage": self.name, "tokens": tokens})
            if isinstance(reply, tuple):
                rows, links = mentions_of(_kept(proposal, reply[0]), proposal.chunk_id, self.split_homonyms)
                mentions.extend(rows)
                relations.extend(links)
        return {
            "mentions": pa.Table.from_pylist(mentions, MENTIONS),
            "relation_mentions": pa.Table.from_pylist(relations, RELATION_MENTIONS),
            "rejects": pa.Table.from_pylist(rejects, REJECTS),
            "costs": pa.Table.from_pylist(costs, EXTRACTION_COSTS),
        }

    def _unit(self, proposal: _Proposal, form: str | None, services: Services) -> PackableUnit[_Checked]:
        names, pairs = proposal.names(), list(proposal.relations)
        text = proposal.text if self.whole_text else proposal.excerpt()
        request = verification_request(text, names, pairs, self.prompts, self.entity_types, form)
        own_prompt = VERIFY_TASK in self.prompts.instructions  # may ask for a language
        read = text if self.same_language and not own_prompt else ""
        shown = services.count_tokens(request.messages[1].content)

        def parse(reply: ChatReply) -> _Checked:
            checked = parse_verification(reply, names, pairs, read)
            own = reply.text.replace(DONE, "").strip()  # a part of a shared reply has no such mark
            return checked, shown + services.count_tokens(own)

        return PackableUnit(request, parse)


def _proposals(tables: Tables) -> list[_Proposal]:
    """Return the proposals of all chunks, in their order."""
    entities: dict[str, list[dict[str, Any]]] = {}
    for row in tables["mentions"].sort_by([("chunk_id", "ascending"), ("position", "ascending")]).to_pylist():
        entities.setdefault(row["chunk_id"], []).append(row)
    relations: dict[str, list[dict[str, Any]]] = {}
    for row in tables["relation_mentions"].sort_by([("chunk_id", "ascending"), ("position", "ascending")]).to_pylist():
        relations.setdefault(row["chunk_id"], []).append(row)
    found = []
    for chunk in tables["chunks"].to_pylist():
        own = entities.get(chunk["chunk_id"], [])
        place = {row["name_key"]: at for at, row in enumerate(own)}
        pairs: dict[Pair, dict[str, Any]] = {}
        for row in relations.get(chunk["chunk_id"], []):
            one, other = sorted((place[row["source_key"]], place[row["target_key"]]))
            pairs[one, other] = row
        found.append(_Proposal(chunk["chunk_id"], chunk["text"], own, pairs))
    return found


def _kept(proposal: _Proposal, checked: Verification) -> ExtractionReply:
    """Return the records that are left of a proposal."""
    entities = []
    for kept in sorted(checked.entities, key=lambda kept: kept.candidate):
        row = proposal.entities[kept.candidate]
        entities.append(EntityRecord(row["name"], kept.type or row["type"], kept.description or row["description"]))
    names = proposal.names()
    relations = []
    for one, other in sorted(checked.pairs):
        row = proposal.relations[one, other]
        relations.append(RelationRecord(names[one], names[other], row["description"], row["strength"]))
    return ExtractionReply(tuple(entities), tuple(relations))
