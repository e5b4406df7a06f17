"""Chunks, and the entities found in them → claims about these entities (GraphRAG paper §3.1.2)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar

import pyarrow as pa

from hirag_dist.core.entities.claims import CLAIM_TASK, ClaimRecord, claims_request, parse_claims
from hirag_dist.core.prompts.reply_limits import MIN_DIVISIBLE_TOKENS, approximate_tokens
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.core.text.ids import content_id, entity_id
from hirag_dist.core.text.normalize import name_key
from hirag_dist.core.text.tokens import text_halves
from hirag_dist.execution.dataset import Dataset, TableSet
from hirag_dist.execution.stage import ByKey, Services, Split, Tables, gather_calls, reject_row
from hirag_dist.schemas import ALIASES, CHUNKS, CLAIMS, EXTRACTION_COSTS, MENTIONS, REJECTS
from hirag_dist.types import ChatReply, Rejected

CLAIM_CHUNKS = pa.schema([CHUNKS.field(name) for name in ("chunk_id", "text")])
CLAIM_MENTIONS = pa.schema([MENTIONS.field(name) for name in ("name_key", "chunk_id", "position", "name")])
CLAIM_ALIASES = pa.schema([ALIASES.field(name) for name in ("name_key", "entity_id")])


@dataclass(frozen=True)
class ExtractClaims:
    """Chunks → claims, one call a chunk in which an entity was found.

    The model is given the names found in the chunk, and a claim is about the entities of those names. A name that the
    chunk's extraction does not know stays a name.
    """

    name: ClassVar[str] = "claims"
    version: ClassVar[int] = 3
    split: ClassVar[Split] = ByKey("chunk_id", 16)

    class Inputs(TableSet):
        chunks: Annotated[Dataset, CLAIM_CHUNKS]
        mentions: Annotated[Dataset, CLAIM_MENTIONS]
        aliases: Annotated[Dataset, CLAIM_ALIASES]

    class Outputs(TableSet):
        claims: Annotated[Dataset, CLAIMS]
        rejects: Annotated[Dataset, REJECTS]
        costs: Annotated[Dataset, EXTRACTION_COSTS]

    structured: bool
    same_language: bool
    prompts: Prompts
    models: tuple[str, ...]

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the claims, sorted by id, and the chunks whose reply was refused to the last."""
        aliases = dict(zip(*(tables["aliases"][name].to_pylist() for name in CLAIM_ALIASES.names), strict=True))
        named: dict[str, dict[str, tuple[str, str]]] = {}  # chunk → key of a name → the name, and its entity
        in_order = tables["mentions"].sort_by([("chunk_id", "ascending"), ("position", "ascending")])
        for row in in_order.to_pylist():
            own = aliases.get(row["name_key"]) or entity_id(0, row["name_key"])
            named.setdefault(row["chunk_id"], {}).setdefault(name_key(row["name"]), (row["name"], own))
        chunks = [chunk for chunk in tables["chunks"].to_pylist() if chunk["chunk_id"] in named]
        found = await gather_calls(
            self._ask(chunk["text"], [name for name, _ in named[chunk["chunk_id"]].values()], services)
            for chunk in chunks
        )
        claims: dict[str, dict[str, Any]] = {}
        rejects, costs = [], []
        for chunk, result in zip(chunks, found, strict=True):
            own = chunk["chunk_id"]
            if isinstance(result, Rejected):
                rejects.append(reject_row(self.name, result) | {"unit_id": own})
                continue
            records, tokens, cut = result
            rejects += [] if cut is None else [reject_row(self.name, cut) | {"unit_id": own}]
            costs.append({"chunk_id": own, "stage": self.name, "tokens": tokens})
            for record in records:
                row = _row(record, own, {key: entity for key, (_, entity) in named[own].items()})
                claims[row["claim_id"]] = row
        return {
            "claims": pa.Table.from_pylist([claims[own] for own in sorted(claims)], CLAIMS),
            "rejects": pa.Table.from_pylist(rejects, REJECTS),
            "costs": pa.Table.from_pylist(costs, EXTRACTION_COSTS),
        }

    async def _ask(
        self, text: str, names: list[str], services: Services
    ) -> tuple[tuple[ClaimRecord, ...], int, Rejected | None] | Rejected:
        """Return the claims and the tokens of the reply that has them, or of those to the halves of a long chunk.

        The third value is the dead letter of a reply of which only the complete claims were kept.
        """
        request = claims_request(text, names, self.prompts, CLAIM_TASK if self.structured else None)
        read = text if self.same_language and CLAIM_TASK not in self.prompts.instructions else ""

        def accept(reply: ChatReply) -> tuple[tuple[ClaimRecord, ...], int, Rejected | None]:
            return parse_claims(reply, read), reply.input_tokens + reply.output_tokens, reply.kept_from

        found = await services.chat.ask(request, accept)
        if not isinstance(found, Rejected) or not found.too_long or approximate_tokens(text) < MIN_DIVISIBLE_TOKENS:
            return found
        claims: list[ClaimRecord] = []
        tokens = 0
        cut: Rejected | None = None
        for result in await gather_calls(self._ask(half, names, services) for half in text_halves(text)):
            if isinstance(result, Rejected):
                return result
            claims += result[0]
            tokens += result[1]
            cut = cut or result[2]
        return tuple(claims), tokens, cut


def _row(record: ClaimRecord, chunk: str, entities: dict[str, str]) -> dict[str, Any]:
    ends = (name_key(record.subject), name_key(record.object))
    said = (record.type, record.status, record.start_date, record.end_date, record.description)
    return asdict(record) | {
        "claim_id": content_id("claim", chunk, *ends, *said),
        "subject_id": entities.get(ends[0]),
        "object_id": entities.get(ends[1]),
        "chunk_id": chunk,
    }
