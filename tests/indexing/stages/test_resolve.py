"""Stages of entity resolution: aliases of names, keys renamed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from hirag_dist.execution.stage import Stage, Tables
from hirag_dist.indexing.stages.resolve import PAIRS, GroupNames, ProposePairs, RenameRelations
from hirag_dist.schemas import ALIASES, MENTIONS, RELATION_MENTIONS
from tests.core.entities.resolution.graphs import mention, statement
from tests.table_rows import filled_table

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
MARLEYS = POOL[3:5]
SURNAME = [
    (f"{chr(65 + at % 26)}{'aeiou'[at % 5]}l{'aeiou'[at // 26]} Marley", PERSON, f"Born in {at}.") for at in range(66)
]
Chunk = Sequence[tuple[str, str, str]]


async def run(stage: Stage, **tables: pa.Table) -> Tables:
    services: Any = None
    return await stage.run(dict(tables), services)


def resolved(chunks: dict[str, Chunk]) -> tuple[list[dict[str, Any]], int]:
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
    proposed = asyncio.run(run(ProposePairs(), **tables))
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


async def test_relations_are_sorted_again_and_those_within_an_entity_go() -> None:
    mentions = pa.Table.from_pylist([statement(*pair) for pair in ("ab", "bc", "cd")], RELATION_MENTIONS)
    aliases = filled_table(ALIASES, [{"name_key": key, "canonical_key": "z"} for key in "ab"])
    found = (await run(RenameRelations(), relation_mentions=mentions, aliases=aliases))["relation_mentions"]
    assert [(row["source_key"], row["target_key"]) for row in found.to_pylist()] == [("c", "z"), ("c", "d")]
    assert found.schema.equals(RELATION_MENTIONS)
