"""Replies to report and answer."""

from __future__ import annotations

import re

import pytest

from hirag_dist.core.prompts.reply_parsing import COVERED, ReportRecord, parse_report
from hirag_dist.core.prompts.requests import answer_request
from hirag_dist.core.prompts.templates import Prompts, report_request
from hirag_dist.llm.rule_based import reply_to
from hirag_dist.types import ChatReply

ENTITIES = [
    "E1. Ebenezer Scrooge (person): Ebenezer Scrooge is a miser in London.",
    "E2. Bob Cratchit (person): Bob Cratchit is the clerk of Scrooge.",
    "E3. Tiny Tim (person): Tiny Tim is the youngest son of Bob Cratchit.",
]
RELATIONS = [
    "R1. E1-E2: Scrooge employs Bob Cratchit for fifteen shillings a week.",
    "R2. Bob Cratchit — Tiny Tim: Bob Cratchit carries Tiny Tim on his shoulder.",
]
REPORTS = ["C1. Marley's ghost (level 1): The ghost of Jacob Marley warns Scrooge.\nIt drags a chain."]
CONTEXT = """\
## Entities
[E1] Ebenezer Scrooge (person, layer 0): Ebenezer Scrooge is a miser in London.
[E2] Bob Cratchit (person, layer 0): Bob Cratchit is the clerk of Scrooge.

## Relations
[R1] Ebenezer Scrooge — Bob Cratchit: Scrooge employs Bob Cratchit for fifteen shillings a week.

## Reports
[C1] Marley and Scrooge (level 0, rating 7.5)
Jacob Marley was the partner of Scrooge. Marley has been dead for seven years.

## Sources
[S1] A Christmas Carol, characters 10–200
Marley was dead, to begin with. The register of his burial was signed by the clergyman and the undertaker.
[S2] A Christmas Carol, characters 300–900
The cold within him froze his old features. Foul weather did not know where to have him [1].
"""


def report_of(entities: list[str], relations: list[str], reports: list[str]) -> ReportRecord:
    """Return the report, which is the same in both forms."""
    read = []
    for form in (None, "report"):
        request = report_request(entities, relations, reports, Prompts(), form)
        read.append(parse_report(ChatReply(reply_to(request.messages, form))))
    assert read[0] == read[1]
    return read[0]


def answer_to(question: str, context: str = CONTEXT) -> str:
    request = answer_request(question, context, Prompts())
    return reply_to(request.messages, None)


def test_report_names_its_main_entities_and_cites_its_records() -> None:
    report = report_of(ENTITIES, RELATIONS, REPORTS)
    assert "Bob Cratchit" in report.title
    assert "clerk" in report.summary
    assert report.rating is None, "it is not asked for"
    assert 2 <= len(report.findings) <= 6
    known = {line.split(".")[0] for line in (*ENTITIES, *RELATIONS, *REPORTS)}
    assert all(finding.references and set(finding.references) <= known for finding in report.findings)
    assert any("R1" in finding.references for finding in report.findings)


@pytest.mark.parametrize(
    ("question", "words", "reference"),
    [
        ("Who signed the register of Marley's burial?", "clergyman", "[S1]"),
        ("How much does Scrooge pay Bob Cratchit, how many shillings a week?", "fifteen shillings", "[R1]"),
    ],
)
def test_answers_with_cited_sentences(question: str, words: str, reference: str) -> None:
    text = answer_to(question)
    assert words in text
    assert reference in text
    cited = re.findall(r"\[([A-Z]\d+)\]", text)
    assert 1 <= len(cited) <= 5
    assert set(cited) <= {"E1", "E2", "R1", "C1", "S1", "S2"}


def test_a_link_to_a_member_is_no_sentence_of_an_answer() -> None:
    link = f"[R2] Bob Cratchit — Clerks of Scrooge: {COVERED}\n\n## Reports"
    text = answer_to("Who are the clerks of Scrooge?", CONTEXT.replace("\n## Reports", link))
    assert "Bob Cratchit is the clerk of Scrooge. [E2]" in text
    assert COVERED not in text


@pytest.mark.parametrize("question", ["What is the capital of Mongolia?", "Who?", "", "Which enzymes digest lactose?"])
def test_says_that_it_does_not_know(question: str) -> None:
    assert answer_to(question) == "I do not know."
