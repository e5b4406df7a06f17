"""Requests that answer a question from what was retrieved, and requests that judge answers and make questions.

A question may carry what was said before it, which is shortened where it does not fit. What is judged was written by
others, and may be written for the judge: question and answers stand between tags that they cannot leave, and no text
holds another's tag.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from hirag_dist.core.prompts.records import json_object
from hirag_dist.core.prompts.reply_limits import ANSWER_TOKENS, EVALUATION_TOKENS, SHORT_ANSWER_TOKENS
from hirag_dist.core.prompts.reply_validation import MalformedReply, usable_text
from hirag_dist.core.prompts.templates import CRITERIA, Prompts, tagged
from hirag_dist.core.text.ids import unit_id
from hirag_dist.core.text.normalize import one_line
from hirag_dist.types import ChatReply, ChatRequest

EARLIER: Final = "Earlier questions:"
LAST_REPLY: Final = "Last reply: "
QUESTION: Final = "Question: "


def shorter_history(question: str, fits: Callable[[str], bool]) -> str:
    r"""Return a question with as much of what was said before it as fits; the question itself stays whole.

    The oldest of the earlier questions go first, then the last reply. A text without a history stays as it is.

    Args:
        question: Lines that begin with `EARLIER`, "- " for each earlier question, `LAST_REPLY` and `QUESTION`.

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
    """
    request = _question_request("map-answer", question, context, prompts)
    return replace(request, form="map-answer", max_tokens=max_tokens)


def reduce_request(question: str, context: str, prompts: Prompts) -> ChatRequest:
    """Return the request that answers a question from the points that were found in the parts of the corpus."""
    return _question_request("reduce-answer", question, context, prompts)


def _question_request(task: str, question: str, context: str, prompts: Prompts) -> ChatRequest:
    context, question = (_ANSWER_TAG.sub(r"< \1", text) for text in (context, one_line(question)))
    body = tagged("context", context) + "\n" + tagged("question", question)
    return replace(prompts.request("answer", task, body), max_tokens=ANSWER_TOKENS)


_TAGS = re.compile(r"<(/?\s*(?:question|answer|answer-1|answer-2|description|user|task)\s*>)", re.IGNORECASE)
_ITEM = re.compile(r"\s*(?:[-*•–]|\(?\d{1,3}[.):])\s+(.+)")
_FENCED = re.compile(r"\A```[a-z]*\s*\n(.*?)\n?```\s*\Z", re.DOTALL | re.IGNORECASE)


def judge_request(
    question: str,
    answers: tuple[str, str],
    criteria: Sequence[str],
    prompts: Prompts,
    *,
    form: str | None = "judge",
    replicate: int = 0,
) -> ChatRequest:
    """Return the request that compares two answers.

    Args:
        answers: as they are shown, the first first.
        criteria: keys of `templates.CRITERIA`.
        form: "judge" to ask for structured output, None where the endpoint has none. The prompt has it in words too,
            since some endpoints take a schema and do not keep to it.
        replicate: 1, 2, … to ask the same again.
    """
    listed = "\n".join(f"- {name}: {CRITERIA[name]}" for name in criteria)
    parts = [("question", one_line(question)), ("answer-1", answers[0]), ("answer-2", answers[1])]
    return _request("judge", parts, prompts, form, replicate=replicate, criteria=listed)


def answer_claims_request(question: str, answer: str, prompts: Prompts, *, form: str | None = "claims") -> ChatRequest:
    """Return the request that lists the claims of an answer."""
    return _request("claims", [("question", one_line(question)), ("answer", answer)], prompts, form)


def listing_request(
    task: str,
    parts: Sequence[tuple[str, str]],
    count: int,
    prompts: Prompts,
    *,
    form: str | None,
) -> ChatRequest:
    """Return the request that thinks of users, of tasks of a user, or of questions of a user in a task.

    Paper: GraphRAG, Algorithm 1. Role `judge`: the evaluating model writes the questions, not the
    model whose answers they test.

    Args:
        task: "personas", "tasks" or "sensemaking-questions".
        parts: (tag, text): description; then user; then task.
        form: the task, to ask for structured output, or None.
    """
    return _request(task, parts, prompts, form, count=str(count))


def _request(
    task: str,
    parts: Sequence[tuple[str, str]],
    prompts: Prompts,
    form: str | None,
    *,
    replicate: int = 0,
    **values: str,
) -> ChatRequest:
    body = "\n".join(tagged(tag, _TAGS.sub(r"< \1", text)) for tag, text in parts)
    # the instructions describe the form of the reply too: not all endpoints keep to a schema
    request = prompts.request("judge", task, body, **values)
    return replace(request, form=form, max_tokens=EVALUATION_TOKENS, replicate=replicate)


def parse_list(reply: ChatReply, key: str, *, may_be_empty: bool = False) -> list[str]:
    """Return the texts that a reply lists: in an object under `key`, in a JSON list, or as marked lines.

    Texts are made one line each; what is empty is left out.

    Raises:
        MalformedReply: the reply can't be used, holds no list, or an empty one where there should be something.
    """
    text = usable_text(reply)
    found = _listed(text, key)
    if found is None:
        raise MalformedReply(f"there is no list of {key}")
    texts = [line for item in found if (line := one_line(_text_of(item, key)))]
    if not texts and not may_be_empty:
        raise MalformedReply(f"the list of {key} is empty")
    return texts


def _listed(text: str, key: str) -> list[Any] | None:
    bare = fenced[1].strip() if (fenced := _FENCED.match(text)) else text
    if bare.startswith("["):
        try:
            found = json.loads(bare, strict=False)
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, list) else None
    data = json_object(text)
    if data is not None:
        lists = [value for name, value in data.items() if isinstance(value, list) and name.casefold() == key]
        lists = lists or [value for value in data.values() if isinstance(value, list)]
        return lists[0] if len(lists) == 1 else None
    if bare.startswith("{"):  # JSON that broke: its lines are no list
        return None
    return [match[1] for line in bare.splitlines() if (match := _ITEM.match(line))] or None


def _text_of(item: object, key: str) -> str:
    """Return the text of an item that may be wrapped in an object, as {"id": 1, "question": "…"} in "questions".

    Where no key of the object says which of its texts is meant, the longest is: the others are numbers and names.
    """
    if isinstance(item, dict):
        texts = {name.casefold(): value for name, value in item.items() if isinstance(value, str)}
        meant = (texts[name] for name in (key.removesuffix("s"), "text", "description") if texts.get(name))
        item = next(meant, max(texts.values(), key=len, default=""))
    return item if isinstance(item, str) else ""
