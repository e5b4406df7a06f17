"""Stages of entity resolution: aliases of names, decisions of a user, keys renamed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hirag_dist.core.text.ids import entity_id
from hirag_dist.execution.stage import Stage, Tables
from hirag_dist.indexing.stages.resolve import PAIRS, GroupNames, ProposePairs, RenameMentions, RenameRelations
from hirag_dist.schemas import ALIASES, MENTIONS, RELATION_MENTIONS
from tests.core.entities.resolution.graphs import mention, statement

FIRM, PERSON, PLACE = "organization", "person", "location"
POOL: list[tuple[str, str, str]] = [
    ("World Health Organization", FIRM, "An agency of the United Nations in Geneva."),
    ("WHO", FIRM, "The World Health Organization (WHO) advises."),
    ("Women Helping Others", FIRM, "A charity of women."),
    ("Marley", PERSON, "Jacob Marley was dead, to begin with."),
    ("Jacob Marley", PERSON, "A partner of Scrooge."),
    ("Anna Marley", PERSON, "A singer of songs from Russia."),
    ("Scrooge", PERSON, "A man of business and a miser."),
    ("Georgia", PLACE, "A state of the south beside Florida."),
    ("Georgia", FIRM, "A company."),
    ("Republic of Georgia", PLACE, "A country beside the Black Sea."),
    ("Rosetta stone", "object", "A stone with three scripts."),
    ("Rossetta stone", "object", "A stone of many signs."),
]
MARLEYS, SCROOGE = POOL[3:5], POOL[6:7]
SURNAME = [
    (f"{chr(65 + at % 26)}{'aeiou'[at % 5]}l{'aeiou'[at // 26]} Marley", PERSON, f"Born in {at}.") for at in range(66)
]
Chunk = Sequence[tuple[str, str, str]]


async def run(stage: Stage, **tables: pa.Table) -> Tables:
    services: Any = None
    return await stage.run(dict(tables), services)


def resolved(
    chunks: dict[str, Chunk], decided: tuple[tuple[str, str, bool], ...] = ()
) -> tuple[list[dict[str, Any]], int]:
    """Return the aliases of the names in chunks, and the number of questions, all of which are answered with no."""
    rows = [mention(*own[:2], chunk, own[2], at) for chunk, names in chunks.items() for at, own in enumerate(names)]
    pairs = [
        statement(one[0], names[0][0], chunk, at)
        for chunk, names in chunks.items()
        for at, one in enumerate(names)
        if one[0] != names[0][0]
    ]
    tables = {
        "mentions": pa.Table.from_pylist(rows, MENTIONS),
        "relation_mentions": pa.Table.from_pylist(pairs, RELATION_MENTIONS),
    }
    proposed = asyncio.run(run(ProposePairs(decided), **tables))
    questions = proposed.pop("questions").to_pylist()
    answers = [{name: row[name] for name in PAIRS.names if name != "same"} | {"same": False} for row in questions]
    found = asyncio.run(run(GroupNames(), answers=pa.Table.from_pylist(answers, PAIRS), **proposed))
    return found["aliases"].to_pylist(), len(questions)


@settings(max_examples=8, deadline=None)
@given(st.lists(st.lists(st.sampled_from(POOL), min_size=1, max_size=5), max_size=6), st.randoms())
def test_aliases_do_not_depend_on_the_order_of_mentions(chunks: list[Chunk], rng: random.Random) -> None:
    named = {f"{at}": names for at, names in enumerate(chunks)}
    shuffled = rng.sample(sorted(named.items()), len(named))
    assert resolved(named) == resolved(dict(shuffled))


def test_a_surname_of_too_many_people_is_no_candidate() -> None:
    pair = {"marley", "jacob marley"}
    alone, _ = resolved({"a": MARLEYS})
    assert [{row["name_key"], row["canonical_key"]} for row in alone] == [pair]
    assert resolved({"a": MARLEYS, "b": SURNAME}) == ([], 0)


@pytest.mark.parametrize("same", [True, False])
def test_a_users_decision_holds_where_both_names_are_there(same: bool) -> None:
    decided = (("Marley", "Scrooge", True), ("Marley", "Jacob Marley", same), ("Nobody", "Scrooge", True))
    joined, _ = resolved({"a": MARLEYS[:1], "b": SCROOGE, "c": MARLEYS[1:]}, decided)
    assert ({row["canonical_key"] for row in joined}, len(joined)) == ({"jacob marley" if same else "marley"}, 1 + same)
    assert resolved({"b": SCROOGE, "c": MARLEYS[1:]}, decided) == ([], 0), "without Marley nothing joins them"


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
