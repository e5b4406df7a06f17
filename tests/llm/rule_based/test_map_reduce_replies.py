"""Replies to map-answer and reduce-answer: points in the form, from what matches; an answer from the best of them."""

from __future__ import annotations

from hirag_dist.core.prompts.requests import map_request, reduce_request
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.core.retrieval.map_reduce import AnswerPoint, MappedPart, gather_points, parse_points
from hirag_dist.llm.rule_based import reply_to
from hirag_dist.types import ChatReply

REPORTS = """\
## Communities
[C4] Marley and Scrooge (level 0, rating 7.5)
Jacob Marley was the partner of Scrooge. Marley has been dead for seven years.
[C9] The Cratchits (level 0, rating 6)
Bob Cratchit is the clerk of Scrooge. Tiny Tim is his youngest son.
"""


def mapped(question: str, context: str = REPORTS) -> MappedPart:
    request = map_request(question, context, Prompts(), 1000)
    return parse_points(ChatReply(reply_to(request.messages, request.form)), {"C4", "C9"})


def test_points_are_sentences_with_the_record_they_are_from() -> None:
    found = mapped("Who was the partner of Scrooge?")
    assert found.points[0] == AnswerPoint("Jacob Marley was the partner of Scrooge. [C4]", 100.0, ("C4",))
    assert all(0 < point.helpfulness <= 100 for point in found.points)
    assert (found.uncited, found.dropped) == (0, 0)


def test_a_part_that_holds_nothing_of_the_question_has_no_points() -> None:
    assert mapped("Which volcano erupted in Iceland?").points == ()
    assert mapped("???").points == ()


def reduced(points: list[AnswerPoint], question: str = "Who was the partner of Scrooge?") -> str:
    found = gather_points(points, 1000, lambda text: len(text.split()))
    return reply_to(reduce_request(question, found.context, Prompts()).messages, None)


def test_the_answer_is_the_best_points_and_says_nothing_twice() -> None:
    points = [
        AnswerPoint("Bob Cratchit is the clerk of Scrooge. [C9]", 40.0, ("C9",)),
        AnswerPoint("Jacob Marley was the partner of Scrooge. [C4][C9]", 100.0, ("C4", "C9")),
        AnswerPoint("Jacob Marley was once the partner of Scrooge. [C2]", 90.0, ("C2",)),
    ]
    best, other = "Jacob Marley was the partner of Scrooge. [C1][C2]", "Bob Cratchit is the clerk of Scrooge. [C2]"
    assert reduced(points) == f"{best} {other}"
