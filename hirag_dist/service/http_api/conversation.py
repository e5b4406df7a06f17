"""Conversations as one question: the rule that makes the last message of a user stand alone. Pure functions.

The index is searched with one question, and a message such as "And when was it built?" names nothing to search for. So
the questions before it, and the reply that it follows, go in front of it, shortened:

    Earlier questions:
    - Who lit the lamp?
    Last reply: The keeper lit it.
    Question: And when was it built?

The first message of a conversation is the question as it stands. Where a client wraps a message of the user in much
other text (instructions, a map of files, passages of its own), what is searched for is the question in it: see
`question_in`. Messages of the system are left out: the service has
its own instructions for the model that answers, and they are no part of what is searched for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hirag_dist.core.retrieval.question_history import EARLIER, LAST_REPLY, QUESTION

MAX_CHARACTERS = 2000  # of a message that is asked whole
MAX_PART_CHARACTERS = 600  # of the questions in a longer one; of its first and of its last paragraph if it has none
MAX_QUESTIONS = 3  # earlier questions that are kept, the last ones
MAX_QUESTION_CHARACTERS = 300  # of each of them
MAX_REPLY_CHARACTERS = 600  # of the last reply
_CITATION = re.compile(r"\s*\[[ERKCS]\d+\]")
_LABELLED = re.compile(
    r"^[^\w\n]{0,8}(?:user )?(?:question|query)[^\w\n]{0,4}:[ \t]*(\S.*)$", re.IGNORECASE | re.MULTILINE
)
_SENTENCE = re.compile(r"(?:[^.!?。！？؟\n<>]|[.!?](?=\w))+[.!?。！？؟]*")
_PARAGRAPHS = re.compile(r"\n\s*\n")
_SPACE = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Turn:
    """A message of a conversation.

    Attributes:
        role: system, developer, user, assistant, tool or function.
        text: its text.
    """

    role: str
    text: str


def standalone_question(turns: Sequence[Turn], *, history: bool = True) -> str:
    """Return the question that a conversation ends with, in a form that needs no other message.

    Args:
        turns: the messages, the oldest first; after the last one of the user there may be others.
        history: whether earlier messages go in front; otherwise the last message of the user is the question.

    Raises:
        ValueError: no message of the user has a text.

    >>> standalone_question([Turn("system", "Be brief."), Turn("user", "Who lit the lamp?")])
    'Who lit the lamp?'
    """
    asked = [at for at, turn in enumerate(turns) if turn.role == "user" and turn.text.strip()]
    if not asked:
        raise ValueError("a message of the role user with a text is needed")
    question = question_in(turns[asked[-1]].text)
    earlier = [turns[at].text for at in asked[:-1] if _asks(turns[at].text)]
    if not history or not earlier:
        return question
    lines = [EARLIER]
    lines += [f"- {_shortened(question_in(text), MAX_QUESTION_CHARACTERS)}" for text in earlier[-MAX_QUESTIONS:]]
    replies = [turn.text for turn in turns[asked[-2] : asked[-1]] if turn.role == "assistant" and turn.text.strip()]
    if replies:
        lines.append(f"{LAST_REPLY}{_shortened(_CITATION.sub('', replies[-1]), MAX_REPLY_CHARACTERS)}")
    return "\n".join([*lines, f"{QUESTION}{question.strip()}"])


def question_in(text: str) -> str:
    r"""Return the question in a message: the message itself, or what a long one asks.

    Of a message of more than `MAX_CHARACTERS` that is the last line that begins with "Question:" or "Query:", else the
    last sentences with a question mark, else the first and the last paragraph.

    >>> question_in("Rules: be brief. " * 200 + "\n\nWho lit the lamp?\n\n" + "Answer in JSON. " * 200)
    'Who lit the lamp?'
    """
    if len(text.strip()) <= MAX_CHARACTERS:
        return text
    if labelled := _LABELLED.findall(text):
        return _shortened(labelled[-1], MAX_PART_CHARACTERS)
    if questions := _questions(text):
        return "\n".join(questions)
    paragraphs = [paragraph for paragraph in _PARAGRAPHS.split(text) if paragraph.strip()]
    return "\n".join(_shortened(part, MAX_PART_CHARACTERS) for part in dict.fromkeys((paragraphs[0], paragraphs[-1])))


def _questions(text: str) -> list[str]:
    """Return the last sentences with a question mark, as many as fit."""
    kept: list[str] = []
    for sentence in reversed(_SENTENCE.findall(text)):
        if sentence[-1] not in "?？؟" or not re.search(r"[^\W\d_]", sentence):
            continue
        line = _shortened(sentence, MAX_PART_CHARACTERS)
        if sum(map(len, kept)) + len(line) > MAX_PART_CHARACTERS:
            break
        kept.insert(0, line)
    return kept


def _asks(text: str) -> bool:
    """Return whether an earlier message may be a question: a long one without any is material for its client."""
    return len(text) <= MAX_CHARACTERS or bool(_LABELLED.search(text) or _questions(text))


def _shortened(text: str, limit: int) -> str:
    """Return a text on one line, cut after a word."""
    line = _SPACE.sub(" ", text).strip()
    if len(line) <= limit:
        return line
    return line[:limit].rsplit(" ", 1)[0].rstrip() + "…"
