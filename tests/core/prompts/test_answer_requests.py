"""A question with what was said before it, made shorter."""

from __future__ import annotations

from hirag_dist.core.prompts.requests import shorter_history
from hirag_dist.service.http_api.openai_requests import Turn, standalone_question

CONVERSATION = [Turn("user", "Who lit it?"), Turn("assistant", "The keeper."), Turn("user", "When?")]


def test_the_earlier_questions_go_first_and_the_question_stays_whole() -> None:
    whole = standalone_question([Turn("user", "Where is it?"), *CONVERSATION])
    sizes = range(len(whole), 0, -1)
    shorter = list(dict.fromkeys(shorter_history(whole, lambda text, n=n: len(text) <= n) for n in sizes))  # type: ignore[misc]
    assert shorter == [
        whole,
        "Earlier questions:\n- Who lit it?\nLast reply: The keeper.\nQuestion: When?",
        "Last reply: The keeper.\nQuestion: When?",
        "When?",
    ]


def test_a_question_without_a_history_is_never_cut() -> None:
    assert shorter_history("Earlier questions: which?\nAnd when?", lambda text: False) == (
        "Earlier questions: which?\nAnd when?"
    )
