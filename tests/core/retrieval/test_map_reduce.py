"""Material of a corpus at a level, cut into parts without loss; parsed replies; points gathered for an answer."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from hirag_dist.core.prompts.reply_validation import MalformedReply
from hirag_dist.core.retrieval.map_reduce import AnswerPoint, PartBudget, gather_points, parse_points, reports_at
from hirag_dist.types import ChatReply
from tests.core.graphs import community_index

# 0 is split into 2 and 3, of which 3 is into 4 and 5; 1 is not split; entity 6 is in none, as after an import
MEMBERS = [[0, 1, 2, 3], [4, 5], [0, 1], [2, 3], [2], [3]]
TREE = community_index(7, [0, 0, 1, 1, 2, 2], MEMBERS)


def count(text: str) -> int:
    return len(text.split())


@pytest.mark.parametrize(
    ("level", "untold", "chosen", "bare"),
    [
        ("0", [], [0, 1], []),
        ("1", [], [1, 2, 3], []),
        ("9", [], [1, 2, 4, 5], []),
        ("all", [], [0, 1, 2, 3, 4, 5], []),
        ("0", [0], [1, 2, 3], []),
        ("0", [1], [0], [1]),
        ("leaf", [4], [1, 2, 5], [4]),
        ("all", [1, 3, 4], [0, 2, 5], [1, 4]),
        ("0", [0, 2, 3, 4, 5], [1], [2, 4, 5]),
    ],
)
def test_reports_that_stand_for_the_corpus_at_a_level(
    level: str, untold: list[int], chosen: list[int], bare: list[int]
) -> None:
    told = np.ones(6, np.bool_)
    told[untold] = False
    found, missing = reports_at(TREE, level, told)
    assert (found.tolist(), missing.tolist()) == (chosen, bare)


def cut(texts: list[str], max_tokens: int) -> PartBudget:
    made = PartBudget("## Sources", max_tokens, count)
    for number, text in enumerate(texts, 1):
        made.add(f"S{number}", f" {text}", count(text))
    return made


@pytest.mark.parametrize("max_tokens", [12, 20, 57, 1000])
def test_nothing_is_lost_and_no_part_is_too_large(max_tokens: int) -> None:
    choose = np.random.default_rng(max_tokens)
    texts = [" ".join(f"w{number}-{at}" for at in range(choose.integers(1, 120))) for number in range(12)]
    parts = cut(texts, max_tokens).finish()
    assert all(count(part.context) <= part.tokens <= max_tokens for part in parts)
    said: dict[str, list[str]] = {}
    for part in parts:
        assert part.context.startswith("## Sources\n[S")
        found = re.findall(r"^\[(S\d+)\](.*)$", part.context, re.MULTILINE)
        assert tuple(dict.fromkeys(ref for ref, _ in found)) == part.refs
        for ref, text in found:
            said.setdefault(ref, []).extend(text.replace("…", " ").split())
    assert said == {f"S{number}": text.split() for number, text in enumerate(texts, 1)}


def test_a_text_without_white_space_is_cut_all_the_same() -> None:
    made = PartBudget("## Sources", 30, len)
    made.add("S1", " " + "x" * 100, 101)
    parts = made.finish()
    assert len(parts) > 3
    assert sum(part.context.count("x") for part in parts) == 100
    assert all(len(part.context) <= 30 for part in parts)


def reply(*points: object) -> ChatReply:
    return ChatReply(json.dumps({"points": points}))


def point(text: str, helpfulness: object) -> dict[str, object]:
    return {"text": text, "helpfulness": helpfulness}


def test_points_keep_what_they_cite() -> None:
    found = parse_points(
        reply(point("It is so\n[C1, C9].", 80), point("And [C2].", "7"), point("Nothing.", 0), point("No ref.", 50)),
        {"C1", "C2"},
    )
    assert found.points == (AnswerPoint("It is so [C1].", 80.0, ("C1",)), AnswerPoint("And [C2].", 7.0, ("C2",)))
    assert (found.uncited, found.dropped) == (1, 1)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (ChatReply("I looked, and found a lot."), "no JSON object"),
        (ChatReply('{"points": {"text": "x"}}'), "no JSON object"),
        (ChatReply('{"points": []}', "length"), "cut off"),
        (reply("It is so [C1]."), "not an object"),
        (reply({"text": "It is so [C1]."}), "'None', not a number"),
        (reply(point("It is so [C1].", "high")), "'high', not a number"),
        (reply(point("It is so [C1].", 101)), "not from 0 to 100"),
        (reply(point("…", 80)), "has no text"),
        (reply(point("It is so [C7].", 80)), "no point cites"),
    ],
)
def test_a_reply_that_is_not_in_the_form_is_refused_with_its_reason(wrong: ChatReply, why: str) -> None:
    with pytest.raises(MalformedReply, match=why):
        parse_points(wrong, {"C1"})


def test_the_most_helpful_points_make_the_context_and_references_are_numbered_anew() -> None:
    points = [
        AnswerPoint("Of little help [C9].", 5.0, ("C9",)),
        AnswerPoint("The best [C7][C3].", 90.0, ("C7", "C3")),
        AnswerPoint("As good, but later [C3].", 90.0, ("C3",)),
    ]
    found = gather_points(points, 100, count)
    assert found.context.splitlines() == [
        "## Points",
        "- (helpfulness 90) The best [C1][C2].",
        "- (helpfulness 90) As good, but later [C2].",
        "- (helpfulness 5) Of little help [C3].",
    ]
    assert found.refs == {"C1": "C7", "C2": "C3", "C3": "C9"}
    assert found.helpfulness == {"C1": 90.0, "C2": 90.0, "C3": 5.0}
    assert found.cited_by == {"C1": 1, "C2": 2, "C3": 1}
    assert count(found.context) <= found.tokens


def test_a_point_longer_than_the_context_is_cut_and_still_cites() -> None:
    found = gather_points(
        [AnswerPoint("word " * 300 + "[C5]", 80.0, ("C5",)), AnswerPoint("next [C6]", 70.0, ("C6",))], 200, count
    )
    assert found.refs["C1"] == "C5"
    assert found.context.splitlines()[1].endswith("word…[C1]")
    assert count(found.context) <= found.tokens <= 200
