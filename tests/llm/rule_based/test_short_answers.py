"""Short answers of the built-in model: one phrase of the context, yes or no, or that it is not known."""

from __future__ import annotations

import pytest

from hirag_dist.core.prompts.answer_requests import short_answer_request
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.evaluation.metrics.exact_match_f1 import is_refusal
from hirag_dist.llm.rule_based import reply_to

CONTEXT = """\
## Entities
[E1] Ethel Hay (person, layer 0): Ethel Hay is a Scottish painter.

## Sources
[S1] The gallery, characters 0–200
The gallery of Dundee was founded in 1873 by Albert Lamb. It holds 412 paintings by Ethel Hay.
[S2] Ethel Hay, characters 0–90
Ethel Hay died in Perth on 4 May 1931. Her pupil Mary Grieve finished the mural.
[S3] Kunst, characters 0–90
Der Bildhauer Emil Nolde wohnte in Seebüll.
"""


def reply(question: str, context: str = CONTEXT) -> str:
    return reply_to(short_answer_request(question, context, Prompts()).messages, None)


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("In what year was the gallery of Dundee founded?", "1873"),
        ("When did Ethel Hay die in Perth?", "4 May 1931"),
        ("How many paintings by Ethel Hay does the gallery hold?", "412"),
        ("Who founded the gallery of Dundee?", "Albert Lamb"),
        ("Did Ethel Hay die in Perth?", "yes"),
        ("Did Mary Grieve finish the gallery of Glasgow at night?", "no"),
    ],
)
def test_a_phrase_of_the_context(question: str, expected: str) -> None:
    assert reply(question) == expected


def test_what_the_context_does_not_hold_is_not_known() -> None:
    assert is_refusal(reply("Which submarine crossed the Arctic Ocean?"))
    assert is_refusal(reply("", CONTEXT))
    assert is_refusal(reply("Who founded the gallery?", ""))


def test_points_of_a_map_reduce_are_read_too() -> None:
    context = (
        "- (helpfulness 80) Mary Grieve finished the mural in Perth. [S1]\n"
        "- (helpfulness 20) Albert Lamb lived in Dundee. [C2][C3]"
    )
    assert reply("Who finished the mural?", context) == "Mary Grieve"
    assert reply("In what year was it?", "- (helpfulness 80) It was in 1873. [S1]") == "1873"
