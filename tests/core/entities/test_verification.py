from __future__ import annotations

import json

import pytest

from hirag_dist.core.entities.verification import (
    VERIFY_TASK,
    Verification,
    VerifiedEntity,
    listed_pairs,
    parse_verification,
    verification_request,
)
from hirag_dist.core.prompts.reply_validation import MalformedReply
from hirag_dist.core.prompts.templates import DONE, FORMATS, Prompts
from hirag_dist.types import ChatReply

NAMES = ["Ada Lovelace", "London", "thing", "Charles Babbage"]
PAIRS = [(0, 1), (0, 3), (1, 2)]
ADA = VerifiedEntity(0, "person", "Wrote programs.")
LONDON = VerifiedEntity(1, "location", "A city.")


def parse(text: str, read: str = "") -> Verification:
    return parse_verification(ChatReply(text), NAMES, PAIRS, read)


def test_the_request_numbers_candidates_and_pairs_from_one() -> None:
    request = verification_request("Ada </text> lived.", NAMES, PAIRS, Prompts(), ("person", "place"), None)
    system, user = request.messages
    assert user.content == (
        "<candidates>\n1. Ada Lovelace\n2. London\n3. thing\n4. Charles Babbage\n</candidates>\n"
        "<pairs>\n1-2,4 2-3\n</pairs>\n<text>\nAda < /text> lived.\n</text>"
    )
    assert system.content.startswith(f"Task: {VERIFY_TASK}\n")
    assert "person, place" in system.content
    assert FORMATS[VERIFY_TASK] in system.content
    assert request.role == "extract"
    as_json = verification_request("x", NAMES, PAIRS, Prompts(), ("person",), VERIFY_TASK)
    assert (as_json.form, FORMATS[VERIFY_TASK] in as_json.messages[0].content) == (VERIFY_TASK, False)


JSON = {
    "entities": [
        {"id": 1, "type": "Person", "text": "Wrote programs."},
        {"number": 2, "type": "location", "description": "A city."},
    ],
    "unrelated": "1-4 7-9",
}


@pytest.mark.parametrize(
    "text",
    [
        f"1|person|Wrote programs.\n2|location|A city.\nunrelated|1-4\n{DONE}",
        f"1|person|Wrote programs.\n2|location|A city.\nunrelated|2-3 1-9,4{DONE}",
        "entity|1|person|Wrote programs.\n- 2.|location|A city.\n**unrelated**|4 - 1, 2-3",
        "|id|type|text|\n|--|--|--|\n| 1 | Person | Wrote programs. |\n| 2 | location | A city. |\n| unrelated | 1-4 |",
        "Here are 2|3 of them:\nAda Lovelace|person|Wrote programs.\n2|location|A city.\nunrelated|1|4",
        f"1<|>person<|>Wrote programs.\n2<|>location<|>A city.\nunrelated<|>1-4\n{DONE}",
        f"entity<|>1<|>person<|>Wrote programs.\n- entity<|>2.<|>location<|>A city.\nunrelated<|>4–1{DONE}",
        "[1]<|>Person<|>Wrote programs.\n* 2<|>location<|>A city.\nunrelated<|>1<|>4\n",
        "Ada Lovelace<|>person<|>Wrote programs.\n“london”<|>location<|>A city.\n(unrelated<|>1-4 2-3)\nIs that all?",
        json.dumps(JSON),
        "```json\n" + json.dumps(JSON | {"unrelated": [[4, 1]]}) + "\n```",
        json.dumps(JSON | {"unrelated": [{"source": 4, "target": 1}, "7-9", None]}),
        json.dumps(JSON | {"unrelated": ["1-4", "1-3"]}),
    ],
)
def test_what_is_kept_in_any_spelling(text: str) -> None:
    assert parse(text) == Verification((ADA, LONDON), ((0, 1),))


def test_pairs_are_kept_but_for_those_called_unrelated() -> None:
    kept = "1|person|A.\n2|location|B.\n4|person|C."
    assert parse(kept).pairs == ((0, 1), (0, 3))
    assert parse(f"{kept}\nunrelated|4-1").pairs == ((0, 1),)
    assert parse(f"{kept}\nunrelated|1-2,4").pairs == ()
    assert parse(f"{kept}\nunrelated|none").pairs == ((0, 1), (0, 3))


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("1-2,4 2-3", [(0, 1), (0, 3), (1, 2)]),
        ("1-2, 4-3", [(0, 1), (2, 3)]),
        ("1-2, 4", [(0, 1), (0, 3)]),
        ("2–1; 3 / 4", [(0, 1), (2, 3)]),
        ("1-2-3 2020-01-05", []),
    ],
)
def test_pairs_are_listed_one_by_one_or_by_their_first_number(text: str, pairs: list[tuple[int, int]]) -> None:
    assert listed_pairs(text) == pairs


@pytest.mark.parametrize("mark", ["|", "<|>"])
def test_a_name_that_is_repeated_is_no_type(mark: str) -> None:
    record = mark.join(("1", "Ada Lovelace", "person", "Wrote programs."))
    assert parse(record).entities == (ADA,)
    assert parse(mark.join(("1", "ada lovelace", "Wrote programs."))).entities == (
        VerifiedEntity(0, "", "Wrote programs."),
    )
    assert parse(mark.join(("3", "thing", ""))).entities == (VerifiedEntity(2, "", ""),)


def test_a_description_may_hold_the_mark_between_fields() -> None:
    assert parse("1|person|Wrote a|b.\nentity|4|person|c|d").entities == (
        VerifiedEntity(0, "person", "Wrote a|b."),
        VerifiedEntity(3, "person", "c|d"),
    )


def test_a_repeated_candidate_counts_once_and_an_unknown_one_not() -> None:
    found = parse("1|person|Wrote programs.\n1|place|Again.\n9|person|Who?\nPrague|location|A city.")
    assert found == Verification((ADA,), ())


def test_a_kept_candidate_needs_no_description() -> None:
    assert parse("4|person").entities == (VerifiedEntity(3, "person", ""),)


@pytest.mark.parametrize("text", [DONE, "none", '{"entities": [], "unrelated": ""}'])
def test_none_may_be_kept(text: str) -> None:
    assert parse(text) == Verification((), ())


@pytest.mark.parametrize(
    "text",
    ["No lists today.", FORMATS[VERIFY_TASK], '{"entities": [{"id": 70}]}', "unrelated|1-2", "So much for 1|2."],
)
def test_a_reply_that_keeps_nothing_and_does_not_say_so_is_refused(text: str) -> None:
    with pytest.raises(MalformedReply, match="keeps no candidate"):
        parse(text)


def test_descriptions_stay_in_the_language_of_the_text() -> None:
    read = "Ada Lovelace lived in London and worked with Charles Babbage on the machine. " * 20
    description = "花果山的美猴王孙悟空神通广大，护送唐僧前往西天取经，一路降妖伏魔。" * 3
    with pytest.raises(MalformedReply, match="language"):
        parse(f"1|person|{description}", read)
    assert parse(f"1|person|{description}").entities
