"""Contexts cut to the window of the model that answers."""

from __future__ import annotations

import pytest

from hirag_dist.config.sections import RetrievalConfig
from hirag_dist.core.prompts.reply_limits import ANSWER, reply_tokens, usable_tokens
from hirag_dist.core.prompts.requests import answer_request
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.core.text.tokens import counter
from hirag_dist.errors import InvalidQuery
from hirag_dist.retrieval.answer_stream import AnswerWindow

COUNT = counter("o200k_base")
QUESTION = "Who sailed on the Lone Star?"


def window(tokens: int | None) -> AnswerWindow:
    return AnswerWindow(tokens, Prompts(), COUNT)


def size(question: str, context: str) -> int:
    return sum(COUNT(message.content) for message in answer_request(question, context, Prompts()).messages)


@pytest.mark.parametrize("tokens", [1024, 2048, 4096])
def test_instructions_question_context_and_reply_fit(tokens: int) -> None:
    room = window(tokens).cut(RetrievalConfig(), QUESTION).context_tokens
    prompt = size(QUESTION, " word" * room)
    assert tokens * 0.2 < prompt
    assert prompt + reply_tokens(tokens, ANSWER) <= usable_tokens(tokens)


@pytest.mark.parametrize("tokens", [None, 131_072])
def test_an_unknown_or_a_large_window_cuts_nothing(tokens: int | None) -> None:
    limits = RetrievalConfig()
    assert window(tokens).cut(limits, QUESTION) == limits
    assert window(tokens).cut_parts(limits, QUESTION) == limits


def test_a_question_without_room_for_a_context_is_refused_by_its_size() -> None:
    with pytest.raises(InvalidQuery, match=r"window of 1,024 .* shorten the question"):
        window(1024).cut(RetrievalConfig(), "why " * 500)


def test_a_long_conversation_loses_its_beginning_and_never_its_question() -> None:
    history = "\n".join(["Earlier questions:", *(f"- {'Where is it, and why? ' * 20}" for _ in range(3))])
    asked = f"{history}\nLast reply: {'At sea. ' * 40}\nQuestion: {QUESTION}"
    shorter = window(2048).shortened(asked)
    assert shorter.endswith(QUESTION)
    assert len(QUESTION) < len(shorter) < len(asked)
    assert window(1024).shortened(asked) == QUESTION
    assert window(None).shortened(asked) == asked
