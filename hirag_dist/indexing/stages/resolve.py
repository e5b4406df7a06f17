"""Names of layer 0 → which are one entity's: pairs proposed, the doubtful ones asked about, groups.

What is proposed depends on the mentions of an index alone, so an update proposes what a build from nothing would. A
question that was answered before is answered from the reply store.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from hirag_dist.core.entities.resolution.name_forms import name_form
from hirag_dist.core.entities.resolution.names import Name, Names
from hirag_dist.core.entities.resolution.scores import LLM, MERGED_FROM, USER, ScoredPair, group_pairs, scored_pairs
from hirag_dist.core.prompts.reply_parsing import SameEntityReply, parse_same
from hirag_dist.core.prompts.templates import PACKED, Prompts, same_entity_request
from hirag_dist.core.text.ids import entity_id
from hirag_dist.core.text.normalize import name_key, one_line, shorten
from hirag_dist.execution.dataset import Dataset, TableSet
from hirag_dist.execution.stage import ByRows, Services, Split, Tables, Whole, reject_row
from hirag_dist.indexing.stages.packed_calls import PackableUnit, PackingOptions, ask_packed
from hirag_dist.schemas import ALIASES, ENTITIES, MENTIONS, REJECTS, RELATION_MENTIONS
from hirag_dist.types import Rejected

_DESCRIPTION_CHARS = 320  # of an entity that is asked about
_NEIGHBOURS = 6  # of an entity that is asked about, by name
PAIRS_PER_CALL = 20

_PAIR = [
    pa.field("left_key", pa.string(), nullable=False),
    pa.field("right_key", pa.string(), nullable=False),
    pa.field("tier", pa.string(), nullable=False),
    pa.field("score", pa.float64(), nullable=False),
    pa.field("evidence", pa.string(), nullable=False),
]
PAIRS = pa.schema([*_PAIR, pa.field("same", pa.bool_(), nullable=False)])
QUESTIONS = pa.schema([*_PAIR, *(pa.field(name, pa.string(), nullable=False) for name in ("left_text", "right_text"))])
_NAMES = pa.schema([*(MENTIONS.field(name) for name in ("name_key", "name", "type")), ENTITIES.field("n_mentions")])


@dataclass(frozen=True)
class ProposePairs:
    """Mentions of an index → pairs that are surely one entity, and questions about the doubtful."""

    name: ClassVar[str] = "propose_pairs"
    version: ClassVar[int] = 6
    split: ClassVar[Split] = Whole("a million entities: 3 GB")

    class Inputs(TableSet):
        mentions: Annotated[Dataset, MENTIONS]
        relation_mentions: Annotated[Dataset, RELATION_MENTIONS]

    class Outputs(TableSet):
        names: Annotated[Dataset, _NAMES]
        pairs: Annotated[Dataset, PAIRS]
        questions: Annotated[Dataset, QUESTIONS]

    decided: tuple[tuple[str, str, bool], ...] = ()  # two names, and whether a user says that they are one entity's

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return pairs and questions, sorted by key, and the names in them."""
        names = Names(tables["mentions"], tables["relation_mentions"])
        row_of = {name.key: name.row for name in names.rows}
        decided = {}
        for *both, same in self.decided:  # the last of two decisions about one pair holds
            low, high = sorted(row_of.get(name_key(name), -1) for name in both)
            if 0 <= low < high:
                decided[low, high] = same
        pairs = [ScoredPair(*ends, USER, 1.0, "a decision of yours") for ends in decided]
        pairs += [pair for pair in scored_pairs(names) if (pair.left, pair.right) not in decided]
        sure, questions = [], []
        for pair in sorted(pairs, key=lambda pair: (pair.left, pair.right)):
            left, right = names.rows[pair.left], names.rows[pair.right]
            row: dict[str, Any] = {"left_key": left.key, "right_key": right.key, "tier": pair.tier}
            row |= {"score": pair.score, "evidence": pair.evidence}
            if pair.score < MERGED_FROM:
                questions.append(row | {"left_text": _told(names, left), "right_text": _told(names, right)})
            else:
                sure.append(row | {"same": decided.get((pair.left, pair.right), True)})
        told = [names.rows[row] for row in sorted({row for pair in pairs for row in (pair.left, pair.right)})]
        rows = [{"name_key": own.key, "name": own.text, "type": own.type, "n_mentions": own.n_mentions} for own in told]
        return {
            "names": pa.Table.from_pylist(rows, _NAMES),
            "pairs": pa.Table.from_pylist(sure, PAIRS),
            "questions": pa.Table.from_pylist(questions, QUESTIONS),
        }


def _told(names: Names, own: Name) -> str:
    """Return the line that tells a model of a name: of its own mentions, so that no other change asks again."""
    told = f"{own.text} ({own.type})"
    if own.description:
        told += f": {shorten(one_line(own.description), _DESCRIPTION_CHARS)}"
    near = names.nearest(own.row, _NEIGHBOURS)
    return f"{told} [related to: {'; '.join(near)}]" if near else told


@dataclass(frozen=True)
class AskPairs:
    """Questions → whether each pair is one entity. One that is refused to the last stays apart, as a dead letter."""

    name: ClassVar[str] = "resolve"
    version: ClassVar[int] = 2
    split: ClassVar[Split] = ByRows(240)  # packs end where a task ends

    class Inputs(TableSet):
        questions: Annotated[Dataset, QUESTIONS]

    class Outputs(TableSet):
        answers: Annotated[Dataset, PAIRS]
        rejects: Annotated[Dataset, REJECTS]

    structured: bool
    packing: PackingOptions
    prompts: Prompts
    models: tuple[str, ...]

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return an answer for each pair, and the pairs whose reply was refused to the last."""
        questions = tables["questions"].to_pylist()
        alone = "same-entity" if self.structured else None
        task = PACKED["same-entity"]
        system = self.prompts.system(task, task if self.structured else None)
        units: list[PackableUnit[SameEntityReply]] = [
            PackableUnit(same_entity_request([row["left_text"], row["right_text"]], self.prompts, alone), parse_same)
            for row in questions
        ]
        results = await ask_packed(units, self.packing, "same-entity", system, services)
        answers, rejects = [], []
        for row, result in zip(questions, results, strict=True):
            if isinstance(result, Rejected):
                unit = f"{row['left_key']}\t{row['right_key']}"  # keys hold no white space but single spaces
                rejects.append(reject_row(self.name, result) | {"unit_id": unit})
                continue
            said = {name: row[name] for name in PAIRS.names if name != "same"}
            said["evidence"] = "; ".join(filter(None, (row["evidence"], shorten(result.reason, 200))))
            answers.append(said | {"same": result.same, "tier": LLM if result.same else row["tier"]})
        return {
            "answers": pa.Table.from_pylist(answers, PAIRS),
            "rejects": pa.Table.from_pylist(rejects, REJECTS),
        }


@dataclass(frozen=True)
class GroupNames:
    """Pairs and answers → for every name that is another name's entity, which."""

    name: ClassVar[str] = "group_names"
    version: ClassVar[int] = 5
    split: ClassVar[Split] = Whole("ten million pairs")

    class Inputs(TableSet):
        names: Annotated[Dataset, _NAMES]
        pairs: Annotated[Dataset, PAIRS]
        answers: Annotated[Dataset, PAIRS]

    class Outputs(TableSet):
        aliases: Annotated[Dataset, ALIASES]

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the aliases, by name."""
        names = tables["names"].to_pylist()
        place = {own["name_key"]: row for row, own in enumerate(names)}
        pairs, apart = [], set()
        for row in [*tables["pairs"].to_pylist(), *tables["answers"].to_pylist()]:
            ends = place[row["left_key"]], place[row["right_key"]]
            if row["same"]:
                pairs.append(ScoredPair(*ends, row["tier"], row["score"], row["evidence"]))
            else:
                apart.add(ends)
        forms = [name_form(own["name"], own["type"]) for own in names]
        rows = []
        for row, canonical, pair in group_pairs(forms, [own["n_mentions"] for own in names], pairs, apart):
            other = pair.left + pair.right - row
            rows.append(
                {
                    "name_key": names[row]["name_key"],
                    "canonical_key": names[canonical]["name_key"],
                    "name": names[row]["name"],
                    "canonical_name": names[canonical]["name"],
                    "entity_id": entity_id(0, names[canonical]["name_key"]),
                    "tier": pair.tier,
                    "score": pair.score,
                    "evidence": pair.evidence + ("" if other == canonical else f" (with {names[other]['name']})"),
                }
            )
        return {"aliases": pa.Table.from_pylist(rows, ALIASES).sort_by("name_key")}


@dataclass(frozen=True)
class RenameMentions:
    """Mentions → all, by the keys that their names were resolved to. The name itself stays."""

    name: ClassVar[str] = "rename_mentions"
    version: ClassVar[int] = 2
    split: ClassVar[Split] = ByRows(200_000)

    class Inputs(TableSet):
        mentions: Annotated[Dataset, MENTIONS]
        aliases: Annotated[Dataset, ALIASES]

    class Outputs(TableSet):
        mentions: Annotated[Dataset, MENTIONS]

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the mentions."""
        return {"mentions": renamed_mentions(tables["mentions"], tables["aliases"])}


@dataclass(frozen=True)
class RenameRelations:
    """Relation mentions → all, by the keys that their ends have now. One between two names of an entity goes."""

    name: ClassVar[str] = "rename_relations"
    version: ClassVar[int] = 1
    split: ClassVar[Split] = ByRows(200_000)

    class Inputs(TableSet):
        relation_mentions: Annotated[Dataset, RELATION_MENTIONS]
        aliases: Annotated[Dataset, ALIASES]

    class Outputs(TableSet):
        relation_mentions: Annotated[Dataset, RELATION_MENTIONS]

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the relation mentions, ends sorted again."""
        return {"relation_mentions": renamed_relations(tables["relation_mentions"], tables["aliases"])}


def renamed_mentions(mentions: pa.Table, aliases: pa.Table) -> pa.Table:
    """Return MENTIONS by the keys that their names were resolved to."""
    at = mentions.schema.get_field_index("name_key")
    return mentions.set_column(at, MENTIONS.field("name_key"), renamed(mentions["name_key"], aliases))


def renamed_relations(mentions: pa.Table, aliases: pa.Table) -> pa.Table:
    """Return RELATION_MENTIONS by the keys of their ends, which are sorted; without those within an entity."""
    sources = renamed(mentions["source_key"], aliases)
    targets = renamed(mentions["target_key"], aliases)
    swapped = pc.greater(sources, targets)
    for name, keys in (
        ("source_key", pc.if_else(swapped, targets, sources)),
        ("target_key", pc.if_else(swapped, sources, targets)),
    ):
        at = mentions.schema.get_field_index(name)
        mentions = mentions.set_column(at, RELATION_MENTIONS.field(name), keys)
    return mentions.filter(pc.not_equal(mentions["source_key"], mentions["target_key"]))


def renamed(keys: pa.ChunkedArray, aliases: pa.Table) -> pa.Array:
    """Return keys with those of aliases replaced."""
    keys = keys.combine_chunks()
    found = pc.index_in(keys, value_set=aliases["name_key"].combine_chunks())
    return pc.coalesce(aliases["canonical_key"].combine_chunks().take(found), keys)
