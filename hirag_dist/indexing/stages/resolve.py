"""Entities of layer 0 under several names → which are one: pairs proposed, the doubtful ones asked about, groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from hirag_dist.core.entities.resolution.candidate_pairs import LLM, MERGED_FROM, USER, CandidatePair, propose_pairs
from hirag_dist.core.entities.resolution.clusters import group_pairs
from hirag_dist.core.entities.resolution.entity_features import EntityFeatures
from hirag_dist.core.prompts.reply_parsing import SameEntityReply, parse_same
from hirag_dist.core.prompts.templates import PACKED, Prompts, same_entity_request
from hirag_dist.core.text.ids import content_id, entity_id
from hirag_dist.core.text.normalize import name_key, one_line, shorten
from hirag_dist.execution.dataset import Dataset, TableSet
from hirag_dist.execution.stage import ByRows, Services, Split, Tables, Whole, reject_row
from hirag_dist.indexing.stages.packed_calls import PackableUnit, PackingOptions, ask_packed
from hirag_dist.schemas import ALIASES, ENTITIES, MENTIONS, REJECTS, RELATION_MENTIONS, RELATIONS
from hirag_dist.types import Rejected

_DESCRIPTION_CHARS = 320  # of an entity that is asked about
_NEIGHBOURS = 6  # of an entity that is asked about, by name
PAIRS_PER_CALL = 20

_PAIR = [
    pa.field("left_id", pa.string(), nullable=False),
    pa.field("right_id", pa.string(), nullable=False),
    pa.field("tier", pa.string(), nullable=False),
    pa.field("score", pa.float64(), nullable=False),
    pa.field("evidence", pa.string(), nullable=False),
]
PAIRS = pa.schema(_PAIR)
QUESTIONS = pa.schema(
    [
        *_PAIR,
        pa.field("left_text", pa.string(), nullable=False),  # description of each in the prompt
        pa.field("right_text", pa.string(), nullable=False),
    ]
)
ANSWERS = pa.schema([*_PAIR, pa.field("same", pa.bool_(), nullable=False)])
_NAME_KEYS = pa.schema([MENTIONS.field("name_key")])


@dataclass(frozen=True)
class ProposePairs:
    """Entities → pairs that are surely one, and questions about those that may be."""

    name: ClassVar[str] = "propose_pairs"
    version: ClassVar[int] = 3
    split: ClassVar[Split] = Whole("a million entities: 3 GB")

    class Inputs(TableSet):
        entities: Annotated[Dataset, ENTITIES]
        relations: Annotated[Dataset, RELATIONS]

    class Outputs(TableSet):
        pairs: Annotated[Dataset, PAIRS]
        questions: Annotated[Dataset, QUESTIONS]

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return pairs and questions, sorted by id."""
        entities = tables["entities"].sort_by("entity_id")
        view = EntityFeatures(entities, tables["relations"])
        ids: list[str] = entities["entity_id"].to_pylist()
        pairs: list[dict[str, Any]] = []
        questions: list[dict[str, Any]] = []
        for pair in propose_pairs(view):
            row = {
                "left_id": ids[pair.left],
                "right_id": ids[pair.right],
                "tier": pair.tier,
                "score": pair.score,
                "evidence": pair.evidence,
            }
            if pair.score < MERGED_FROM:
                questions.append(row | {"left_text": _told(view, pair.left), "right_text": _told(view, pair.right)})
            else:
                pairs.append(row)
        return {
            "pairs": pa.Table.from_pylist(pairs, PAIRS),
            "questions": pa.Table.from_pylist(questions, QUESTIONS),
        }


def _told(view: EntityFeatures, row: int) -> str:
    """Return the line that tells a model of an entity."""
    told = f"{view.names[row]} ({view.types[row]})"
    if view.descriptions[row]:
        told += f": {shorten(one_line(view.descriptions[row]), _DESCRIPTION_CHARS)}"
    near = [view.names[other] for other in view.first(list(view.neighbours(row)))[:_NEIGHBOURS]]
    return f"{told} [related to: {'; '.join(near)}]" if near else told


@dataclass(frozen=True)
class AskPairs:
    """Questions → whether each pair is one entity. One that is refused to the last stays apart, as a dead letter."""

    name: ClassVar[str] = "resolve"
    version: ClassVar[int] = 1
    split: ClassVar[Split] = ByRows(240)  # packs end where a task ends

    class Inputs(TableSet):
        questions: Annotated[Dataset, QUESTIONS]

    class Outputs(TableSet):
        answers: Annotated[Dataset, ANSWERS]
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
                unit = content_id("pair", row["left_id"], row["right_id"])
                rejects.append(reject_row(self.name, result) | {"unit_id": unit})
                continue
            said = {name: row[name] for name in PAIRS.names}
            said["evidence"] = "; ".join(filter(None, (row["evidence"], shorten(result.reason, 200))))
            answers.append(said | {"same": result.same})
        return {
            "answers": pa.Table.from_pylist(answers, ANSWERS),
            "rejects": pa.Table.from_pylist(rejects, REJECTS),
        }


@dataclass(frozen=True)
class GroupNames:
    """Pairs and answers → for every name that is another name's entity, which."""

    name: ClassVar[str] = "group_names"
    version: ClassVar[int] = 2
    split: ClassVar[Split] = Whole("ten million pairs; entities as in propose_pairs")

    class Inputs(TableSet):
        pairs: Annotated[Dataset, PAIRS]
        answers: Annotated[Dataset, ANSWERS]
        entities: Annotated[Dataset, ENTITIES]
        mentions: Annotated[Dataset, _NAME_KEYS]

    class Outputs(TableSet):
        aliases: Annotated[Dataset, ALIASES]

    decided: tuple[tuple[str, str, bool], ...] = ()  # two names, and whether a user says that they are one entity's

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the aliases, by name."""
        decided = _decided(self.decided, tables["entities"]["entity_id"])
        known = {(row["left_id"], row["right_id"]) for row in decided}
        found = [*tables["pairs"].to_pylist(), *tables["answers"].to_pylist()]
        said = [row for row in found if (row["left_id"], row["right_id"]) not in known] + decided
        involved = pa.array(sorted({own for row in said for own in (row["left_id"], row["right_id"])}), pa.string())
        entities = tables["entities"]
        entities = entities.filter(pc.is_in(entities["entity_id"], involved)).sort_by("entity_id").combine_chunks()
        ids: list[str] = entities["entity_id"].to_pylist()
        place = {own: row for row, own in enumerate(ids)}
        view = EntityFeatures(entities, RELATIONS.empty_table())
        pairs, apart = [], set()
        for row in said:
            left, right = place[row["left_id"]], place[row["right_id"]]
            if row.get("same", True):
                tier = LLM if "same" in row and row["tier"] != USER else row["tier"]
                pairs.append(CandidatePair(left, right, tier, row["score"], row["evidence"]))
            else:
                apart.add((left, right))
        aliases = group_pairs(view, pairs, apart)
        wanted = {ids[row] for alias in aliases for row in (alias.row, alias.canonical)}
        keys = _keys(tables["mentions"], wanted)
        rows = [
            {
                "name_key": keys[ids[alias.row]],
                "canonical_key": keys[ids[alias.canonical]],
                "name": view.names[alias.row],
                "canonical_name": view.names[alias.canonical],
                "entity_id": ids[alias.canonical],
                "tier": alias.pair.tier,
                "score": alias.pair.score,
                "evidence": alias.pair.evidence
                + ("" if alias.via == alias.canonical else f" (with {view.names[alias.via]})"),
            }
            for alias in aliases
        ]
        return {"aliases": pa.Table.from_pylist(rows, ALIASES).sort_by("name_key")}


def _decided(decisions: tuple[tuple[str, str, bool], ...], entity_ids: pa.ChunkedArray) -> list[dict[str, Any]]:
    """Return ANSWERS of a user's decisions about two entities that are there; of two about one pair the last."""
    there = set(entity_ids.to_pylist())
    rows = {}
    for name, other, same in decisions:
        left, right = sorted((entity_id(0, name_key(name)), entity_id(0, name_key(other))))
        if left != right and {left, right} <= there:
            why = {"tier": USER, "score": 1.0, "evidence": "a decision of yours"}
            rows[left, right] = {"left_id": left, "right_id": right, **why, "same": same}
    return [rows[key] for key in sorted(rows)]


def _keys(mentions: pa.Table, wanted: set[str]) -> dict[str, str]:
    """Return entity id → the key that its mentions were merged by."""
    found = {}
    for key in pc.unique(mentions["name_key"]).to_pylist():
        own = entity_id(0, key)
        if own in wanted:
            found[own] = key
    return found


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
        mentions = tables["mentions"]
        keys = _renamed(mentions["name_key"], tables["aliases"])
        at = mentions.schema.get_field_index("name_key")
        return {"mentions": mentions.set_column(at, MENTIONS.field("name_key"), keys)}


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
        mentions, aliases = tables["relation_mentions"], tables["aliases"]
        sources = _renamed(mentions["source_key"], aliases)
        targets = _renamed(mentions["target_key"], aliases)
        swapped = pc.greater(sources, targets)
        for name, keys in (
            ("source_key", pc.if_else(swapped, targets, sources)),
            ("target_key", pc.if_else(swapped, sources, targets)),
        ):
            at = mentions.schema.get_field_index(name)
            mentions = mentions.set_column(at, RELATION_MENTIONS.field(name), keys)
        return {"relation_mentions": mentions.filter(pc.not_equal(mentions["source_key"], mentions["target_key"]))}


def _renamed(keys: pa.ChunkedArray, aliases: pa.Table) -> pa.Array:
    """Return keys with those of aliases replaced."""
    keys = keys.combine_chunks()
    found = pc.index_in(keys, value_set=aliases["name_key"].combine_chunks())
    return pc.coalesce(aliases["canonical_key"].combine_chunks().take(found), keys)
