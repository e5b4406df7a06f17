"""Mentions → entities and relations of layer 0, and descriptions that grew too long made one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from hirag_dist.core.entities.merging import (
    CHARS_PER_TOKEN,
    SEPARATOR,
    DescriptionBound,
    bound_descriptions,
    join_descriptions,
    merge_entities,
    merge_relations,
)
from hirag_dist.core.entities.summaries import split_descriptions
from hirag_dist.core.prompts.reply_limits import cut_text
from hirag_dist.core.prompts.reply_parsing import parse_text
from hirag_dist.core.prompts.templates import Prompts, describe_request
from hirag_dist.core.text.ids import entity_id, relation_id
from hirag_dist.core.text.normalize import one_line
from hirag_dist.execution.dataset import Dataset, TableSet
from hirag_dist.execution.stage import ByKey, ByRows, Services, Split, Tables, gather_calls, reject_row
from hirag_dist.schemas import ENTITIES, MENTIONS, REJECTS, RELATION_MENTIONS, RELATIONS
from hirag_dist.types import Rejected

_PARTITION_ROWS = 100_000
# A hub has a description in every chunk that names it, and a model makes one of them, batch by batch. The largest
# entity of five hundred chunks had 65, of 11,000 characters.
MERGED = DescriptionBound(count=1000, chars=200_000)
LONG = pa.schema(  # entities with more descriptions than are joined; `description` is the first of them joined
    [
        *ENTITIES,
        pa.field("n_descriptions", pa.int32(), nullable=False),
        pa.field("n_bytes", pa.int64(), nullable=False),  # total bytes of all descriptions
    ]
)
_START_CHARS = 6  # for each token of the limit: characters of a text that are counted first
CUT = pa.schema([pa.field("id", pa.string(), nullable=False)])  # what had more descriptions than the bound


@dataclass(frozen=True)
class MergeEntities:
    """Mentions → entities of layer 0, with their distinct descriptions up to a bound. Paper: §4.1, Eq. 5.

    What a task holds is bounded by its partition and its largest entity: about 100 bytes a mention, whatever was said.
    """

    name: ClassVar[str] = "merge_entities"
    version: ClassVar[int] = 2
    split: ClassVar[Split] = ByKey("name_key", _PARTITION_ROWS)

    class Inputs(TableSet):
        mentions: Annotated[Dataset, MENTIONS]

    class Outputs(TableSet):
        entities: Annotated[Dataset, ENTITIES]
        cut: Annotated[Dataset, CUT]

    def combine(self, name: str, rows: pa.Table) -> pa.Table:
        """Return mentions without the descriptions that cannot be among an entity's first."""
        return bound_descriptions(rows, ("name_key",), MERGED, spare=1)[0]

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the entities of this partition of names."""
        mentions, cut = bound_descriptions(tables["mentions"], ("name_key",), MERGED)
        ids = [entity_id(0, key) for key in cut["name_key"].to_pylist()]
        return {"entities": merge_entities(mentions), "cut": pa.table({"id": sorted(ids)}, schema=CUT)}


@dataclass(frozen=True)
class MergeRelations:
    """Relation mentions → relations of layer 0. Paper: §4.1."""

    name: ClassVar[str] = "merge_relations"
    version: ClassVar[int] = 2
    split: ClassVar[Split] = ByKey("source_key", _PARTITION_ROWS)

    class Inputs(TableSet):
        relation_mentions: Annotated[Dataset, RELATION_MENTIONS]

    class Outputs(TableSet):
        relations: Annotated[Dataset, RELATIONS]
        cut: Annotated[Dataset, CUT]

    max_tokens: int

    def combine(self, name: str, rows: pa.Table) -> pa.Table:
        """Return mentions without the descriptions that cannot be among a relation's strongest."""
        return bound_descriptions(rows, ("source_key", "target_key"), MERGED, spare=1)[0]

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the relations whose first name falls into this partition."""
        mentions, cut = bound_descriptions(tables["relation_mentions"], ("source_key", "target_key"), MERGED)
        ends = zip(cut["source_key"].to_pylist(), cut["target_key"].to_pylist(), strict=True)
        ids = [relation_id("extracted", *sorted(entity_id(0, key) for key in pair)) for pair in ends]
        return {
            "relations": merge_relations(mentions, self.max_tokens * CHARS_PER_TOKEN),
            "cut": pa.table({"id": sorted(ids)}, schema=CUT),
        }


@dataclass(frozen=True)
class JoinDescriptions:
    """Descriptions within the limit are joined; of longer ones, which are for a model, the first are, as a stand-in."""

    name: ClassVar[str] = "join_descriptions"
    version: ClassVar[int] = 1
    split: ClassVar[Split] = ByRows(512)

    class Inputs(TableSet):
        entities: Annotated[Dataset, ENTITIES]

    class Outputs(TableSet):
        entities: Annotated[Dataset, ENTITIES]
        long: Annotated[Dataset, LONG]

    max_tokens: int
    tokenizer: str

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the entities with one description each, apart from those whose descriptions are too long."""
        entities = tables["entities"]
        texts, short, counts = [], [], []
        for text in entities["description"].to_pylist():
            pieces = split_descriptions(text)
            fits = SEPARATOR not in text or is_short(pieces, self.max_tokens, services.count_tokens)
            joined = " ".join(pieces) if fits else join_descriptions(pieces, self.max_tokens * CHARS_PER_TOKEN)
            texts.append(joined if SEPARATOR in text else text)
            short.append(fits)
            counts.append(len(pieces))
        sizes = pc.binary_length(entities["description"])
        table = with_descriptions(entities, texts)
        is_short_row = pa.array(short, pa.bool_())
        long = table.append_column(LONG.field("n_descriptions"), pa.array(counts, pa.int32()))
        long = long.append_column(LONG.field("n_bytes"), sizes.cast(pa.int64()))
        return {"entities": table.filter(is_short_row), "long": long.filter(pc.invert(is_short_row)).cast(LONG)}


def with_descriptions(entities: pa.Table, texts: Sequence[str]) -> pa.Table:
    """Return ENTITIES, or a table with their columns, with other descriptions."""
    at = entities.schema.get_field_index("description")
    return entities.set_column(at, entities.schema.field(at), pa.array(texts, pa.string()))


def is_short(pieces: Sequence[str], max_tokens: int, count: Callable[[str], int]) -> bool:
    """Return whether several descriptions are joined, without a call."""
    n_chars = sum(len(piece) + 1 for piece in pieces)
    if n_chars <= max_tokens:  # no text has more tokens than characters
        return True
    whole = " ".join(pieces)
    start = whole[: _START_CHARS * max_tokens]
    if len(start) < len(whole) and count(start) > 1.125 * max_tokens:  # the rest cannot make it less
        return False
    return count(whole) <= max_tokens


@dataclass(frozen=True)
class DescribeEntities:
    """Descriptions longer than the limit → one description by a model; shorter ones are joined."""

    name: ClassVar[str] = "describe"
    version: ClassVar[int] = 1
    split: ClassVar[Split] = ByRows(512)

    class Inputs(TableSet):
        entities: Annotated[Dataset, ENTITIES]

    class Outputs(TableSet):
        entities: Annotated[Dataset, ENTITIES]
        rejects: Annotated[Dataset, REJECTS]

    max_tokens: int
    prompt_tokens: int
    tokenizer: str
    prompts: Prompts
    models: tuple[str, ...]

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the entities with one description each; where the model fails, the joined ones up to the limit."""
        entities = tables["entities"]
        rows = entities.select(["entity_id", "name", "type", "description"]).to_pylist()
        results = await gather_calls(self._describe(row, services) for row in rows)
        rejects = []
        texts = []
        for row, result in zip(rows, results, strict=True):
            if isinstance(result, Rejected):
                rejects.append(reject_row(self.name, result) | {"unit_id": row["entity_id"]})
                pieces = split_descriptions(row["description"])
                texts.append(join_descriptions(pieces, self.max_tokens * CHARS_PER_TOKEN))
            else:
                texts.append(result)
        return {"entities": with_descriptions(entities, texts), "rejects": pa.Table.from_pylist(rejects, REJECTS)}

    async def _describe(self, row: dict[str, Any], services: Services) -> str | Rejected:
        if SEPARATOR not in row["description"]:
            return str(row["description"])
        pieces = split_descriptions(row["description"])
        while True:
            n_chars = sum(len(piece) + 1 for piece in pieces)
            if is_short(pieces, self.max_tokens, services.count_tokens):
                return " ".join(pieces)
            shorter = []
            for batch in self._batches(pieces, services):
                result = await self._written(row, batch, services)
                if isinstance(result, Rejected):
                    return result
                shorter += result
            if len(shorter) == 1 or sum(map(len, shorter)) > 0.8 * n_chars:  # one call did it, or none ever will
                return join_descriptions(shorter, self.max_tokens * CHARS_PER_TOKEN * 2)
            pieces = shorter

    async def _written(self, row: dict[str, Any], batch: list[str], services: Services) -> list[str] | Rejected:
        """Return the one description that is made of a batch, or those of its halves where it is too long."""
        request = describe_request(row["name"], row["type"], batch, self.prompts, self.max_tokens // 2)
        result = await services.chat.ask(request, parse_text)
        if not isinstance(result, Rejected):
            return [one_line(result)]
        middle = len(batch) // 2
        if not result.too_long or not middle:
            return result
        written: list[str] = []
        for half in (batch[:middle], batch[middle:]):
            found = await self._written(row, half, services)
            if isinstance(found, Rejected):
                return found
            written += found
        return written

    def _batches(self, pieces: list[str], services: Services) -> list[list[str]]:
        batches: list[list[str]] = [[]]
        room = self.prompt_tokens
        for piece in pieces:
            piece = cut_text(piece, self.prompt_tokens - 2, services.count_tokens)
            cost = services.count_tokens(piece) + 2
            if batches[-1] and cost > room:
                batches.append([])
                room = self.prompt_tokens
            batches[-1].append(piece)
            room -= cost
        return batches
