"""Chunks → mentions of entities and relations, by a model or without a call, and claims about the entities."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar, Literal

import pyarrow as pa

from hirag_dist.core.entities.association import with_strengths
from hirag_dist.core.entities.claims import CLAIM_TASK, ClaimRecord, claims_request, parse_claims
from hirag_dist.core.entities.merging import mentions_of
from hirag_dist.core.prompts.reply_limits import MIN_DIVISIBLE_TOKENS, approximate_tokens
from hirag_dist.core.prompts.reply_parsing import EntityRecord, ExtractionReply, parse_extraction
from hirag_dist.core.prompts.templates import Prompts, extraction_request, gleaning_request
from hirag_dist.core.text.ids import content_id, entity_id
from hirag_dist.core.text.normalize import count_noun, name_key
from hirag_dist.core.text.tokens import text_halves
from hirag_dist.execution.dataset import Dataset, TableSet
from hirag_dist.execution.stage import ByKey, ByRows, Services, Split, Tables, gather_calls, reject_row
from hirag_dist.llm.rule_based.finder import extract_records
from hirag_dist.schemas import ALIASES, CHUNKS, CLAIMS, EXTRACTION_COSTS, MENTIONS, REJECTS, RELATION_MENTIONS
from hirag_dist.types import ChatReply, ChatRequest, Rejected

logger = logging.getLogger(__name__)
_Extracted = tuple[ExtractionReply, list[Rejected], int]  # records, refused calls, tokens of accepted replies


@dataclass(frozen=True)
class ExtractGraph:
    """Chunks → mentions. Paper: §4.1; `two_step` is the paper's entity call and relation call, `joint` is one."""

    name: ClassVar[str] = "extract"
    version: ClassVar[int] = 5
    split: ClassVar[Split] = ByRows(16)

    class Inputs(TableSet):
        chunks: Annotated[Dataset, CHUNKS]

    class Outputs(TableSet):
        mentions: Annotated[Dataset, MENTIONS]
        relation_mentions: Annotated[Dataset, RELATION_MENTIONS]
        rejects: Annotated[Dataset, REJECTS]
        costs: Annotated[Dataset, EXTRACTION_COSTS]

    method: Literal["joint", "two_step"]
    structured: bool
    gleaning_rounds: int
    entity_types: tuple[str, ...]
    same_language: bool
    prompts: Prompts
    models: tuple[str, ...]

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the mentions in chunk order, and the chunks whose reply was refused to the last."""
        chunks = tables["chunks"].select(["chunk_id", "text"]).to_pylist()
        results = await gather_calls(self._chunk(chunk["text"], services) for chunk in chunks)
        mentions: list[Any] = []
        relations: list[Any] = []
        rejects: list[Any] = []
        costs: list[Any] = []
        n_dropped = sum(extraction.n_dropped for extraction, _, _ in results)
        if n_dropped:
            logger.info(
                "left out %s of %s: relations by numbers of no entity, or beyond the longest list",
                count_noun(n_dropped, "record"),
                count_noun(len(chunks), "chunk"),
            )
        for chunk, result in zip(chunks, results, strict=True):
            extraction, refused, tokens = result
            costs.append({"chunk_id": chunk["chunk_id"], "stage": self.name, "tokens": tokens})
            rejects.extend(reject_row(self.name, each) | {"unit_id": chunk["chunk_id"]} for each in refused)
            complete = with_strengths(extraction, chunk["text"])
            rows, links = mentions_of(complete, chunk["chunk_id"])
            mentions.extend(rows)
            relations.extend(links)
        return {
            "mentions": pa.Table.from_pylist(mentions, MENTIONS),
            "relation_mentions": pa.Table.from_pylist(relations, RELATION_MENTIONS),
            "rejects": pa.Table.from_pylist(rejects, REJECTS),
            "costs": pa.Table.from_pylist(costs, EXTRACTION_COSTS),
        }

    async def _chunk(self, text: str, services: Services) -> _Extracted:
        """Return the parsed records, and the calls whose last reply was refused; both may be present.

        A chunk that is too long for the model is read in two halves, down to some 64 tokens; one of the calls that
        were refused then stands for all.
        """
        extraction, refused, tokens = await self._whole(text, services)
        if not any(one.too_long for one in refused) or approximate_tokens(text) < MIN_DIVISIBLE_TOKENS:
            return extraction, refused, tokens
        (one, one_refused, one_tokens), (other, other_refused, other_tokens) = await gather_calls(
            self._chunk(half, services) for half in text_halves(text)
        )
        both = _both(one, other)
        return both, (one_refused + other_refused)[:1], tokens + one_tokens + other_tokens

    async def _whole(self, text: str, services: Services) -> _Extracted:
        if self.method == "joint":
            return await self._glean(self._request("extract-graph", text), text, services)
        entities, refused, tokens = await self._glean(self._request("extract-entities", text), text, services)
        if not entities.entities:
            return entities, refused, tokens
        named = {name_key(entity.name): (entity.name, entity.type) for entity in reversed(entities.entities)}
        pairs = tuple(reversed(named.values()))
        listed = tuple(EntityRecord(*pair, "") for pair in pairs)
        relations, more, other_tokens = await self._glean(
            self._request("extract-relations", text, pairs), text, services, listed
        )
        n_dropped = entities.n_dropped + relations.n_dropped
        both = ExtractionReply(entities.entities, relations.relations, n_dropped)
        return both, refused + more, tokens + other_tokens

    def _request(self, task: str, text: str, entities: tuple[tuple[str, str], ...] = ()) -> ChatRequest:
        form = task if self.structured else None
        return extraction_request(task, text, self.prompts, self.entity_types, form, entities)

    async def _glean(
        self, request: ChatRequest, text: str, services: Services, listed: tuple[EntityRecord, ...] = ()
    ) -> _Extracted:
        """Ask, and ask again for what was missed; a refused gleaning loses nothing of what came before.

        Args:
            listed: entities that the request numbers; those of a reply are numbered on from them.
        """
        own_prompt = any(task.startswith("extract-") for task in self.prompts.instructions)  # may ask for a language
        read = text if self.same_language and not own_prompt else ""

        def accept(reply: ChatReply) -> tuple[ExtractionReply, ChatReply]:
            return parse_extraction(reply, read, (*listed, *extraction.entities), self.entity_types), reply

        extraction = ExtractionReply((), ())
        found = await services.chat.ask(request, accept)
        if isinstance(found, Rejected):
            return ExtractionReply((), ()), [found], 0
        extraction, reply = found
        tokens = reply.input_tokens + reply.output_tokens
        for _ in range(self.gleaning_rounds):
            if reply.kept_from is not None:
                break
            request = gleaning_request(request, reply.text)
            more = await services.chat.ask(request, accept)
            if isinstance(more, Rejected):
                return extraction, [more], tokens
            found_more, reply = more
            tokens += reply.input_tokens + reply.output_tokens
            if not (found_more.entities or found_more.relations):
                break
            extraction = _both(extraction, found_more)
        return extraction, [reply.kept_from] if reply.kept_from is not None else [], tokens


def _both(one: ExtractionReply, other: ExtractionReply) -> ExtractionReply:
    n_dropped = one.n_dropped + other.n_dropped
    return ExtractionReply(one.entities + other.entities, one.relations + other.relations, n_dropped)


@dataclass(frozen=True)
class ExtractNames:
    """Chunks → mentions: names and noun phrases, the sentences about them, and their co-occurrence.

    A chunk's rows depend on its text alone.
    """

    name: ClassVar[str] = "extract_nlp"
    version: ClassVar[int] = 3
    split: ClassVar[Split] = ByRows(64)

    class Inputs(TableSet):
        chunks: Annotated[Dataset, CHUNKS]

    class Outputs(TableSet):
        mentions: Annotated[Dataset, MENTIONS]
        relation_mentions: Annotated[Dataset, RELATION_MENTIONS]
        costs: Annotated[Dataset, EXTRACTION_COSTS]

    entity_types: tuple[str, ...]

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the mentions in chunk order; each chunk costs no token."""
        chunks = tables["chunks"].select(["chunk_id", "text"]).to_pylist()
        replies = await asyncio.to_thread(
            lambda: [extract_records(chunk["text"], self.entity_types) for chunk in chunks]
        )
        mentions: list[Any] = []
        relations: list[Any] = []
        for chunk, reply in zip(chunks, replies, strict=True):
            rows, links = mentions_of(reply, chunk["chunk_id"])
            mentions.extend(rows)
            relations.extend(links)
        costs = [{"chunk_id": chunk["chunk_id"], "stage": self.name, "tokens": 0} for chunk in chunks]
        return {
            "mentions": pa.Table.from_pylist(mentions, MENTIONS),
            "relation_mentions": pa.Table.from_pylist(relations, RELATION_MENTIONS),
            "costs": pa.Table.from_pylist(costs, EXTRACTION_COSTS),
        }


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
