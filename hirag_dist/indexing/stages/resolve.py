"""Names of layer 0 → which are one entity's: pairs proposed, the doubtful ones asked about, groups.

What is proposed for an index depends on its mentions alone. After a change only the names are looked at that it can
reach: those whose mentions came or went, their candidates, and whatever pairs join with these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hirag_dist.core.entities.resolution.blocks import Mask, NameBlocks
from hirag_dist.core.entities.resolution.clusters import group_pairs
from hirag_dist.core.entities.resolution.name_forms import name_form
from hirag_dist.core.entities.resolution.scores import LLM, MERGED_FROM, USER, Names, PairScores, ScoredPair
from hirag_dist.core.prompts.reply_parsing import SameEntityReply, parse_same
from hirag_dist.core.prompts.templates import PACKED, Prompts, same_entity_request
from hirag_dist.core.text.ids import entity_id
from hirag_dist.core.text.normalize import name_key, one_line, shorten
from hirag_dist.execution.dataset import Dataset, TableSet
from hirag_dist.execution.stage import ByRows, Services, Split, Tables, Whole, reject_row
from hirag_dist.indexing.stages.packed_calls import PackableUnit, PackingOptions, ask_packed
from hirag_dist.schemas import ALIASES, CHUNKS, ENTITIES, MENTIONS, REJECTS, RELATION_MENTIONS
from hirag_dist.types import IntVector, Rejected

_DESCRIPTION_CHARS = 320  # of an entity that is asked about
_NEIGHBOURS = 6  # of an entity that is asked about, by name
PAIRS_PER_CALL = 20
_APART = "\t"  # between two keys, which hold no white space but single spaces

_PAIR = [
    pa.field("left_key", pa.string(), nullable=False),
    pa.field("right_key", pa.string(), nullable=False),
    pa.field("tier", pa.string(), nullable=False),
    pa.field("score", pa.float64(), nullable=False),
    pa.field("evidence", pa.string(), nullable=False),
]
PAIRS = pa.schema([*_PAIR, pa.field("same", pa.bool_(), nullable=False)])
QUESTIONS = pa.schema([*_PAIR, *(pa.field(name, pa.string(), nullable=False) for name in ("left_text", "right_text"))])
NAME_KEYS = pa.schema([MENTIONS.field("name_key")])
CHUNK_IDS = pa.schema([CHUNKS.field("chunk_id")])
_NAMES = pa.schema([*(MENTIONS.field(name) for name in ("name_key", "name", "type")), ENTITIES.field("n_mentions")])


@dataclass(frozen=True)
class ProposePairs:
    """Mentions of an index, and which are new → pairs that are surely one entity, and questions about the doubtful.

    Only pairs that the change can reach are proposed; `kept` are the aliases of the others.
    """

    name: ClassVar[str] = "propose_pairs"
    version: ClassVar[int] = 4
    split: ClassVar[Split] = Whole("a million entities: 5 GB")

    class Inputs(TableSet):
        mentions: Annotated[Dataset, MENTIONS]  # of the base, and new ones
        relation_mentions: Annotated[Dataset, RELATION_MENTIONS]
        new: Annotated[Dataset, CHUNK_IDS]  # the new ones again
        new_relations: Annotated[Dataset, CHUNK_IDS]
        stale: Annotated[Dataset, CHUNK_IDS]  # chunks whose mentions of the base do not count any more
        again: Annotated[Dataset, NAME_KEYS]  # names to look at in any case
        aliases: Annotated[Dataset, ALIASES]  # of the base

    class Outputs(TableSet):
        names: Annotated[Dataset, _NAMES]
        pairs: Annotated[Dataset, PAIRS]
        questions: Annotated[Dataset, QUESTIONS]
        kept: Annotated[Dataset, ALIASES]

    decided: tuple[tuple[str, str, bool], ...] = ()  # two names, and whether a user says that they are one entity's

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return pairs and questions, sorted by key, the names in them, and the aliases that stay."""
        mentions, statements = tables["mentions"], tables["relation_mentions"]
        arrived, is_stale = _changes(mentions, tables["new"], tables["stale"])
        keys = pc.unique(mentions["name_key"])
        keys = keys.take(pc.sort_indices(keys))
        rows = pc.index_in(mentions["name_key"], value_set=keys).to_numpy().astype(np.int64)
        now = arrived | ~is_stale
        blocks = NameBlocks(keys, rows, mentions["description"].combine_chunks())
        found = blocks.pairs(now)
        reached = np.zeros(len(keys), bool)
        reached[rows[arrived | is_stale]] = True
        reached[_places(tables["again"]["name_key"], keys)] = True
        if not reached.all():
            _reach(reached, blocks.pairs(~arrived), found)
        decided = self._decisions(keys, reached)
        present = np.zeros(len(keys), bool)
        present[rows[now]] = True
        decided = {pair: same for pair, same in decided.items() if present[list(pair)].all()}
        new, gone = _changes(statements, tables["new_relations"], tables["stale"])
        names = Names(keys, rows[now], mentions.filter(pa.array(now)), statements.filter(pa.array(new | ~gone)))
        pairs = _closed(PairScores(names, found, len(keys)), reached, decided)
        names.load(np.array(sorted({row for pair, _ in pairs for row in (pair.left, pair.right)}), np.int64))
        kept = tables["aliases"]
        resolved = np.isin(pc.index_in(kept["name_key"], value_set=keys).to_numpy(), np.flatnonzero(reached))
        return _proposed(names, pairs) | {"kept": kept.filter(pa.array(~resolved))}

    def _decisions(self, keys: pa.Array, reached: Mask) -> dict[tuple[int, int], bool]:
        """Return a user's decisions by rows, of two about one pair the last; a change of one name reaches the other."""
        names = [name_key(name) for *both, _ in self.decided for name in both]
        rows = pc.index_in(pa.array(names, pa.string()), value_set=keys).fill_null(-1).to_pylist()
        decided = {}
        for one, other, (_, _, same) in zip(rows[::2], rows[1::2], self.decided, strict=True):
            if min(one, other) >= 0 and one != other:
                decided[min(one, other), max(one, other)] = same
                reached[[one, other]] |= reached[[one, other]].any()
        return decided


def _changes(mentions: pa.Table, new: pa.Table, stale: pa.Table) -> tuple[Mask, Mask]:
    """Return masks of the mentions that are new, which are the last ones, and of those of stale chunks."""
    arrived = np.arange(mentions.num_rows) >= mentions.num_rows - new.num_rows
    return arrived, pc.is_in(mentions["chunk_id"], value_set=stale["chunk_id"].combine_chunks()).to_numpy()


def _places(column: pa.ChunkedArray, keys: pa.Array) -> IntVector:
    """Return the places of those values that are among the keys."""
    found: IntVector = pc.index_in(column, value_set=keys).drop_null().to_numpy().astype(np.int64)
    return found


def _reach(reached: Mask, was: IntVector, found: IntVector) -> None:
    """Mark the names whose candidates are others now, and the candidates, before and now, of those that are marked."""
    both = np.union1d(was, found)
    left, right = np.divmod(both, len(reached))
    touched = reached[left] | reached[right] | np.isin(both, np.setxor1d(was, found, assume_unique=True))
    reached[left[touched]] = reached[right[touched]] = True


def _closed(
    scores: PairScores, reached: Mask, decided: Mapping[tuple[int, int], bool]
) -> list[tuple[ScoredPair, bool | None]]:
    """Return the pairs of marked names, with what a user says of them; names that pairs join with these are marked."""
    while True:
        pairs: list[tuple[ScoredPair, bool | None]] = [
            (ScoredPair(*pair, USER, 1.0, "a decision of yours"), same)
            for pair, same in sorted(decided.items())
            if reached[list(pair)].any()
        ]
        pairs += [(pair, None) for pair in scores.of(reached) if (pair.left, pair.right) not in decided]
        ends = [row for pair, _ in pairs for row in (pair.left, pair.right)]
        if reached[ends].all():
            return pairs
        reached[ends] = True


def _proposed(names: Names, pairs: list[tuple[ScoredPair, bool | None]]) -> Tables:
    """Return the tables of names, pairs and questions."""
    sure: list[dict[str, Any]] = []
    questions: list[dict[str, Any]] = []
    told = sorted({row for pair, _ in pairs for row in (pair.left, pair.right)})
    for pair, same in sorted(pairs, key=lambda each: (each[0].left, each[0].right)):
        left, right = names[pair.left], names[pair.right]
        row = {"left_key": left.key, "right_key": right.key, "tier": pair.tier, "score": pair.score}
        row["evidence"] = pair.evidence
        if same is None and pair.score < MERGED_FROM:
            questions.append(row | {"left_text": _told(names, pair.left), "right_text": _told(names, pair.right)})
        else:
            sure.append(row | {"same": same is not False})
    rows = [
        {"name_key": own.key, "name": own.text, "type": own.type, "n_mentions": own.n_mentions}
        for own in map(names.__getitem__, told)
    ]
    return {
        "names": pa.Table.from_pylist(rows, _NAMES),
        "pairs": pa.Table.from_pylist(sure, PAIRS),
        "questions": pa.Table.from_pylist(questions, QUESTIONS),
    }


def _told(names: Names, row: int) -> str:
    """Return the line that tells a model of a name: of its own mentions, so that no other change asks again."""
    own = names[row]
    told = f"{own.text} ({own.type})"
    if own.description:
        told += f": {shorten(one_line(own.description), _DESCRIPTION_CHARS)}"
    near = names.nearest(row, _NEIGHBOURS)
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
                unit = f"{row['left_key']}{_APART}{row['right_key']}"
                rejects.append(reject_row(self.name, result) | {"unit_id": unit})
                continue
            said = {name: row[name] for name in PAIRS.names if name != "same"}
            said["evidence"] = "; ".join(filter(None, (row["evidence"], shorten(result.reason, 200))))
            answers.append(said | {"same": result.same, "tier": LLM if result.same else row["tier"]})
        return {
            "answers": pa.Table.from_pylist(answers, PAIRS),
            "rejects": pa.Table.from_pylist(rejects, REJECTS),
        }


def asked_names(letters: pa.Table) -> pa.Table:
    """Return NAME_KEYS of the pairs whose question is a dead letter."""
    units = letters.filter(pc.equal(letters["stage"], AskPairs.name))["unit_id"].to_pylist()
    return pa.table({"name_key": [key for unit in units for key in unit.split(_APART)]}, NAME_KEYS)


@dataclass(frozen=True)
class GroupNames:
    """Pairs and answers → for every name that is another name's entity, which."""

    name: ClassVar[str] = "group_names"
    version: ClassVar[int] = 3
    split: ClassVar[Split] = Whole("ten million pairs")

    class Inputs(TableSet):
        names: Annotated[Dataset, _NAMES]
        pairs: Annotated[Dataset, PAIRS]
        answers: Annotated[Dataset, PAIRS]
        kept: Annotated[Dataset, ALIASES]

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
        rows = [
            {
                "name_key": names[alias.row]["name_key"],
                "canonical_key": names[alias.canonical]["name_key"],
                "name": names[alias.row]["name"],
                "canonical_name": names[alias.canonical]["name"],
                "entity_id": entity_id(0, names[alias.canonical]["name_key"]),
                "tier": alias.pair.tier,
                "score": alias.pair.score,
                "evidence": alias.pair.evidence
                + ("" if alias.via == alias.canonical else f" (with {names[alias.via]['name']})"),
            }
            for alias in group_pairs(forms, [own["n_mentions"] for own in names], pairs, apart)
        ]
        found = pa.concat_tables([tables["kept"], pa.Table.from_pylist(rows, ALIASES)])
        return {"aliases": found.sort_by("name_key")}


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
