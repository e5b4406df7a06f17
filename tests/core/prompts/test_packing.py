"""Assignment of units to calls, and the split of a packed reply."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hirag_dist.core.prompts.packing import packs, split_reply
from hirag_dist.core.prompts.reply_parsing import MalformedReply, parse_report, parse_summary
from hirag_dist.types import ChatReply

TWO = """\
unit<|>1
entity<|>Family<|>concept<|>Kin.
relation<|>1<|>Family<|>One of it.<|>5
unit<|>2
entity<|>Town<|>location<|>A place.
relation<|>1<|>Town<|>In it.<|>4
<|COMPLETE|>"""


def texts(reply: ChatReply, n_units: int) -> list[str]:
    """The text of each unit's reply, or the reason why there is none in brackets."""
    return [f"[{part}]" if isinstance(part, MalformedReply) else part.text for part in split_reply(reply, n_units)]


@settings(derandomize=True, deadline=None)
@given(st.lists(st.integers(0, 12)), st.integers(0, 20), st.integers(0, 6))
def test_packs_hold_every_unit_once_in_order_within_their_limits(sizes: list[int], tokens: int, units: int) -> None:
    found = packs(sizes, tokens, units)
    assert [at for pack in found for at in pack] == list(range(len(sizes)))
    for pack in found:
        assert len(pack) == 1 or (len(pack) <= units and sum(sizes[at] for at in pack) <= tokens)


@pytest.mark.parametrize(
    "text",
    [
        TWO,
        TWO.replace("\n", "##"),
        TWO.replace("unit<|>", "**unit**<|>").replace("entity", "- entity"),
        TWO.replace("unit<|>1", '("unit"<|>1)').replace("unit<|>2", '("unit"<|>2)'),
        "\n".join(TWO.splitlines()[3:6] + TWO.splitlines()[:3]),
    ],
)
def test_delimited_units_are_told_apart(text: str) -> None:
    first, second = split_reply(ChatReply(text), 2)
    assert isinstance(first, ChatReply)
    assert isinstance(second, ChatReply)
    one, two = parse_summary(first, 1, ["a"]), parse_summary(second, 1, ["a"])
    assert [entity.name for entity in (*one.entities, *two.entities)] == ["Family", "Town"]
    assert (one.covers[0].description, two.covers[0].description) == ("One of it.", "In it.")


def report(number: int) -> dict[str, object]:
    return {"unit": number, "title": f"T{number}", "summary": 'A braced } and quoted " text.', "findings": []}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"units": [report(1), report(2)]}),
        json.dumps(report(1)) + "\n" + json.dumps(report(2), indent=2),
        "```json\n" + json.dumps([report(2), report(1)]) + "\n```",
    ],
)
def test_json_units_are_told_apart(text: str) -> None:
    parts = split_reply(ChatReply(text), 2)
    assert [parse_report(part).title for part in parts if isinstance(part, ChatReply)] == ["T1", "T2"]


def test_a_unit_that_is_broken_missing_or_twice_does_not_harm_the_others() -> None:
    broken = json.dumps(report(1)) + '\n{"unit": 2, "title": "un"quoted"}\n' + json.dumps(report(3))
    assert texts(ChatReply(broken), 3)[1] == "[the reply leaves this unit out]"
    assert [text[:1] for text in texts(ChatReply(broken), 3)] == ["{", "[", "{"]
    twice = TWO.replace("unit<|>2", "unit<|>1") + "\nunit<|>3\nentity<|>Sea<|>x<|>Salt."
    assert texts(ChatReply(twice), 3)[:2] == ["[the reply holds this unit 2 times]", "[the reply leaves this unit out]"]
    assert texts(ChatReply(twice), 3)[2] == "entity<|>Sea<|>x<|>Salt."


def test_records_before_the_first_unit_line_belong_to_no_unit() -> None:
    stray = "entity<|>Stray<|>x<|>Whose?\n" + TWO
    assert not any("Stray" in text for text in texts(ChatReply(stray), 2))
    assert texts(ChatReply("entity<|>Stray<|>x<|>Whose?"), 2) == ["[the reply leaves this unit out]"] * 2


def test_of_a_reply_that_was_cut_off_the_finished_units_are_kept() -> None:
    cut = TWO[: TWO.index("<|>location")]
    kept, lost = texts(ChatReply(cut, finish_reason="length"), 2)
    assert kept.startswith("entity<|>Family")
    assert lost == "[the reply was cut off before this unit was done]"
    cut = json.dumps({"units": [report(1), report(2)]})[:-20]
    kept, lost = texts(ChatReply(cut, finish_reason="length"), 2)
    assert json.loads(kept)["title"] == "T1"
    assert lost == "[the reply was cut off before this unit was done]"


def test_a_reply_that_is_of_no_use_gives_every_unit_the_reason() -> None:
    said = texts(ChatReply(TWO, finish_reason="content_filter"), 3)
    assert said == ["[the endpoint's content filter withheld the reply]"] * 3
