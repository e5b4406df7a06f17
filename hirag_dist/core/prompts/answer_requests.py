"""Requests that answer a question from what was retrieved: at length, in a few words, or part by part and together.

A question may carry what was said before it, which is shortened where it does not fit.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from hirag_dist.core.prompts.reply_limits import ANSWER_TOKENS, SHORT_ANSWER_TOKENS
from hirag_dist.core.prompts.templates import Prompts, tagged
from hirag_dist.core.text.ids import unit_id
from hirag_dist.core.text.normalize import one_line
from hirag_dist.types import ChatRequest, Message

EARLIER: Final = "Earlier questions:"
LAST_REPLY: Final = "Last reply: "
QUESTION: Final = "Question: "


def shorter_history(question: str, fits: Callable[[str], bool]) -> str:
    r"""Return a question with as much of what was said before it as fits; the question itself stays whole.

    The oldest of the earlier questions go first, then the last reply. A text without a history stays as it is.

    Args:
        question: Lines that begin with `EARLIER`, "- " for each earlier question, `LAST_REPLY` and `QUESTION`.
        fits: Whether a text is short enough.

    >>> shorter_history("Earlier questions:\n- Who?\n- Where?\nQuestion: When?", lambda text: len(text) < 45)
    'Earlier questions:\n- Where?\nQuestion: When?'
    """
    before, mark, last = question.partition(f"\n{QUESTION}")
    if not mark or not before.startswith(f"{EARLIER}\n"):
        return question
    lines = before.split("\n")[1:]
    while lines and not fits(question):
        lines.pop(0)
        asked = any(not line.startswith(LAST_REPLY) for line in lines)
        head = [EARLIER, *lines] if asked else lines
        question = "\n".join([*head, f"{QUESTION}{last}"]) if lines else last
    return question


_ANSWER_TAG = re.compile(r"<(/?\s*(?:context|question)\s*>)", re.IGNORECASE)


def answer_request(question: str, context: str, prompts: Prompts) -> ChatRequest:
    """Return the request that answers a question from a rendered context. Neither can hold a tag of the other."""
    return _question_request("answer", question, context, prompts)


def short_answer_request(question: str, context: str, prompts: Prompts) -> ChatRequest:
    """Return the request that answers a question from a rendered context in a few words, for `eval qa`."""
    request = _question_request("short-answer", question, context, prompts)
    unit = unit_id(f"short-answer\n{request.messages[1].content}")  # a recorded answer at length is none of these
    return replace(request, unit=unit, max_tokens=SHORT_ANSWER_TOKENS)


def map_request(question: str, context: str, prompts: Prompts, max_tokens: int) -> ChatRequest:
    """Return the request that finds in a part of the corpus what helps to answer a question.

    The prompt also describes the form of the reply in words, since endpoints of this role are not probed for schemas.

    Args:
        context: of the part.
        max_tokens: of the reply.
    """
    request = _question_request("map-answer", question, context, prompts)
    return replace(request, form="map-answer", max_tokens=max_tokens)


def reduce_request(question: str, context: str, prompts: Prompts) -> ChatRequest:
    """Return the request that answers a question from the points that were found in the parts of the corpus."""
    return _question_request("reduce-answer", question, context, prompts)


def _question_request(task: str, question: str, context: str, prompts: Prompts) -> ChatRequest:
    context, question = (_ANSWER_TAG.sub(r"< \1", text) for text in (context, one_line(question)))
    body = tagged("context", context) + "\n" + tagged("question", question)
    return ChatRequest(
        role="answer",
        messages=(prompts.system(task, None), Message("user", body)),
        unit=unit_id(body),
        max_tokens=ANSWER_TOKENS,
    )
