"""Claims: what is asked, and what replies hold."""

from __future__ import annotations

import json

import pytest

from hirag_dist.core.entities.claims import ClaimRecord, claims_request, parse_claims
from hirag_dist.core.prompts.reply_validation import MalformedReply
from hirag_dist.core.prompts.templates import DONE, FORMATS, Prompts
from hirag_dist.core.text.ids import unit_id
from hirag_dist.types import ChatReply

LINE = "claim<|>Scrooge<|>Marley<|>DEBT<|>SUSPECTED<|>1843-12-24<|>NONE<|>Scrooge may owe Marley.<|>“He owes him.”"


def parsed(text: str, read: str = "", finish_reason: str = "stop") -> tuple[ClaimRecord, ...]:
    return parse_claims(ChatReply(text, finish_reason), read)


def test_the_call_shows_names_and_text_and_is_no_other_call_about_the_text() -> None:
    request = claims_request("He owes him.", ["Scrooge", "Jacob\nMarley"], Prompts(), None)
    assert request.messages[1].content == (
        "<entities>\nScrooge\nJacob Marley\n</entities>\n<text>\nHe owes him.\n</text>"
    )
    assert request.messages[0].content.endswith(FORMATS["extract-claims"])
    assert request.unit != unit_id("He owes him."), "or a recording would answer with its extraction"
    assert claims_request("x", [], Prompts(), "extract-claims").form == "extract-claims"


@pytest.mark.parametrize(
    "reply",
    [
        f"{LINE}\n{DONE}",
        f'("claim"<|>{LINE.removeprefix("claim<|>")})##{DONE}',
        json.dumps(
            {
                "claims": [
                    {"subject": "Scrooge", "object": "Marley", "type": "Debt", "status": "Suspected."}
                    | {"start_date": "1843-12-24", "end_date": None, "description": "Scrooge may owe Marley."}
                    | {"source_text": "“He owes him.”"},
                    "not a claim",
                ]
            }
        ),
    ],
)
def test_claims_are_read_in_every_form(reply: str) -> None:
    (found,) = parsed(reply)
    assert found.source_text.strip("“”") == "He owes him."
    assert (found.subject, found.object, found.type, found.status) == ("Scrooge", "Marley", "debt", "suspected")
    assert (found.start_date, found.end_date, found.description) == ("1843-12-24", "", "Scrooge may owe Marley.")


@pytest.mark.parametrize("reply", [DONE, '{"claims": []}'])
def test_there_may_be_none(reply: str) -> None:
    assert parsed(reply) == ()


@pytest.mark.parametrize("reply", ["I found no claims.", LINE.replace("Scrooge may owe Marley.", "NONE") + "\n" + DONE])
def test_a_reply_without_a_usable_claim_is_refused(reply: str) -> None:
    with pytest.raises(MalformedReply, match="holds no claim"):
        parsed(reply)


@pytest.mark.parametrize(
    ("written", "kept"),
    [("1843", "1843"), ("1843-12-24T00:00:00", "1843-12-24T00:00:00"), ("last winter", ""), ("", "")],
)
def test_days_are_iso_8601_or_not_told(written: str, kept: str) -> None:
    (found,) = parsed(LINE.replace("1843-12-24", written))
    assert found.start_date == kept
