"""Stages of entity resolution: what a change reaches gives what resolving all names gives; keys renamed."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hirag_dist.core.text.ids import entity_id
from hirag_dist.execution.stage import Stage, Tables
from hirag_dist.indexing.stages.resolve import (
    CHUNK_IDS,
    NAME_KEYS,
    PAIRS,
    GroupNames,
    ProposePairs,
    RenameMentions,
    RenameRelations,
)
from hirag_dist.schemas import ALIASES, MENTIONS, RELATION_MENTIONS
from tests.core.entities.resolution.graphs import mention, statement

FIRM, PERSON, PLACE = "organization", "person", "location"
POOL: list[tuple[str, str, str]] = [
    ("World Health Organization", FIRM, "An agency of the United Nations in Geneva."),
    ("WHO", FIRM, "The World Health Organization (WHO) advises."),
    ("Women Helping Others", FIRM, "A charity of women."),
    ("World Health Organisation", FIRM, "An agency of the United Nations in Geneva."),
    ("Geneva", PLACE, "A city on a lake."),
    ("Marley", PERSON, "Jacob Marley was dead, to begin with."),
    ("Jacob Marley", PERSON, "A partner of Scrooge."),
    ("Anna Marley", PERSON, "A singer of songs from Russia."),
    ("Mr. Marley", PERSON, "A partner of Scrooge."),
    ("Scrooge", PERSON, "A man of business and a miser."),
    ("Georgia", PLACE, "A state of the south beside Florida."),
    ("Georgia", FIRM, "A company."),
    ("Republic of Georgia", PLACE, "A country beside the Black Sea."),
    ("State of Georgia", PLACE, "A state of the south beside Florida."),
    ("Rosetta stone", "object", "A stone with three scripts."),
    ("Rossetta stone", "object", "A stone of many signs."),
]
SURNAME = [(f"{chr(65 + at % 26)}{'aeiou'[at % 5]}l{'aeiou'[at // 26]} Marley", PERSON, "") for at in range(66)]
Chunk = Sequence[tuple[str, str, str]]


async def run(stage: Stage, **tables: pa.Table) -> Tables:
    services: Any = None
    return await stage.run(dict(tables), services)


class Resolved:
    """An index of names alone: what changed is resolved on what was resolved before."""

    def __init__(self, decided: tuple[tuple[str, str, bool], ...] = ()) -> None:
        self.decided = decided
        self.tables = [MENTIONS.empty_table(), RELATION_MENTIONS.empty_table()]
        self.aliases = ALIASES.empty_table()
        self.n_asked = 0

    def update(self, new: dict[str, Chunk], stale: Iterable[str] = ()) -> list[dict[str, Any]]:
        """Add the mentions of chunks and remove those of others; return the aliases."""
        rows = [mention(*own[:2], chunk, own[2], at) for chunk, names in new.items() for at, own in enumerate(names)]
        pairs = [
            statement(one[0], names[0][0], chunk, at)
            for chunk, names in new.items()
            for at, one in enumerate(names)
            if one[0] != names[0][0]
        ]
        added = pa.Table.from_pylist(rows, MENTIONS)
        stated = pa.Table.from_pylist(pairs, RELATION_MENTIONS)
        mentions, statements = map(pa.concat_tables, zip(self.tables, (added, stated), strict=True))
        gone = pa.table({"chunk_id": pa.array(sorted({*stale, *new}), pa.string())}, CHUNK_IDS)
        proposed = asyncio.run(
            run(
                ProposePairs(self.decided),
                mentions=mentions,
                relation_mentions=statements,
                new=added.select(["chunk_id"]),
                new_relations=stated.select(["chunk_id"]),
                stale=gone,
                again=NAME_KEYS.empty_table(),
                aliases=self.aliases,
            )
        )
        self.n_asked = proposed["questions"].num_rows
        answers = pa.Table.from_pylist([answered(row) for row in proposed["questions"].to_pylist()], PAIRS)
        tables = {name: proposed[name] for name in ("names", "pairs", "kept")}
        self.aliases = asyncio.run(run(GroupNames(), answers=answers, **tables))["aliases"]
        left = [each.filter(pc.invert(pc.is_in(each["chunk_id"], gone["chunk_id"]))) for each in self.tables]
        self.tables = [pa.concat_tables(pair) for pair in zip(left, (added, stated), strict=True)]
        return list(self.aliases.to_pylist())


def answered(question: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of a model that goes by the texts that it is shown."""
    row = {name: question[name] for name in PAIRS.names if name != "same"}
    return row | {"same": zlib.crc32((question["left_text"] + question["right_text"]).encode()) % 2 == 0}


NAMES = st.lists(st.sampled_from(POOL), min_size=1, max_size=5)
HISTORIES = st.lists(
    st.tuples(st.dictionaries(st.sampled_from("abcdef"), NAMES, max_size=3), st.sets(st.sampled_from("abcdef")))
)
DECIDED = (("Marley", "Scrooge", True), ("WHO", "World Health Organization", False), ("Nobody", "Geneva", True))


def check_history(steps: Sequence[tuple[dict[str, Chunk], Iterable[str]]], decided: Any) -> None:
    """Check after each step, of chunks that come and go, that the aliases are those of resolving all names."""
    living, now = Resolved(decided), dict[str, tuple[str, Chunk]]()
    for step, (new, removed) in enumerate(steps):
        stale = {now.pop(name)[0] for name in {*removed, *new} if name in now}
        own = {f"{name}{step}": names for name, names in new.items()}
        found = living.update(own, stale)
        now |= {name: (f"{name}{step}", names) for name, names in new.items()}
        assert found == Resolved(decided).update(dict(now.values()))


@settings(max_examples=15)
@given(HISTORIES, st.sampled_from([(), DECIDED]))
@example([({"a": SURNAME[:40], "b": POOL}, ()), ({"c": SURNAME[40:]}, ()), ({}, {"a"}), ({"d": POOL[5:7]}, "b")], ())
def test_what_a_change_reaches_gives_what_resolving_all_names_gives(
    steps: list[tuple[dict[str, Chunk], set[str]]], decided: Any
) -> None:
    check_history(steps, decided)


def test_a_change_looks_at_the_names_that_it_reaches_alone() -> None:
    living = Resolved()
    living.update({"a": POOL[:5], "b": [*POOL[10:11], *POOL[12:14]]})
    assert living.n_asked
    before = living.aliases
    living.update({"c": POOL[9:10]})
    assert living.n_asked == 0
    assert living.aliases.equals(before)


def test_a_surname_of_too_many_people_is_no_candidate_until_they_are_fewer() -> None:
    living = Resolved()
    pair = {"marley", "jacob marley"}
    alone = living.update({"a": POOL[5:7]})
    assert [{row["name_key"], row["canonical_key"]} for row in alone] == [pair]
    assert not living.update({"b": SURNAME})
    assert living.update({}, ["b"]) == alone


@pytest.mark.parametrize("same", [True, False])
def test_a_users_decision_holds_when_one_of_the_names_comes_or_goes(same: bool) -> None:
    living = Resolved((("Marley", "Scrooge", True), ("Marley", "Jacob Marley", same)))
    living.update({"a": POOL[5:6]})
    joined = living.update({"b": POOL[9:10], "c": POOL[6:7]})
    assert ({row["canonical_key"] for row in joined}, len(joined)) == ({"jacob marley" if same else "marley"}, 1 + same)
    assert not living.update({}, ["a"]), "without Marley nothing joins Scrooge and Jacob Marley"


def aliases(**canonical: str) -> pa.Table:
    rows = [
        {"name_key": key, "canonical_key": to, "name": key, "canonical_name": to, "entity_id": entity_id(0, to)}
        | {"tier": "alias", "score": 1.0, "evidence": ""}
        for key, to in canonical.items()
    ]
    return pa.Table.from_pylist(rows, ALIASES)


async def test_mentions_keep_their_names() -> None:
    mentions = pa.Table.from_pylist([mention(name, PERSON, "c") for name in "ABC"], MENTIONS)
    found = (await run(RenameMentions(), mentions=mentions, aliases=aliases(b="a")))["mentions"]
    assert [(row["name_key"], row["name"]) for row in found.to_pylist()] == [("a", "A"), ("a", "B"), ("c", "C")]
    assert found.schema.equals(MENTIONS)


async def test_relations_are_sorted_again_and_those_within_an_entity_go() -> None:
    mentions = pa.Table.from_pylist([statement(*pair) for pair in ("ab", "bc", "cd")], RELATION_MENTIONS)
    found = (await run(RenameRelations(), relation_mentions=mentions, aliases=aliases(b="z", a="z")))[
        "relation_mentions"
    ]
    assert [(row["source_key"], row["target_key"]) for row in found.to_pylist()] == [("c", "z"), ("c", "d")]
    assert found.schema.equals(RELATION_MENTIONS)
