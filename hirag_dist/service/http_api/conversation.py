"""Conversations as one question: the rule that makes the last message of a user stand alone. Pure functions.

The index is searched with one question, and a message such as "And when was it built?" names nothing to search for. So
the questions before it, and the reply that it follows, go in front of it, shortened:

    Earlier questions:
    - Who lit the lamp?
    Last reply: The keeper lit it.
    Question: And when was it built?

The first message of a conversation is the question as it stands. Messages of the system are left out: the service has
its own instructions for the model that answers, and they are no part of what is searched for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hirag_dist.core.retrieval.question_history import EARLIER, LAST_REPLY, QUESTION

MAX_QUESTIONS = 3  # earlier questions that are kept, the last ones
MAX_QUESTION_CHARACTERS = 300  # of each of them
MAX_REPLY_CHARACTERS = 600  # of the last reply
_CITATION = re.compile(r"\s*\[[ERKCS]\d+\]")
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
    question = turns[asked[-1]].text
    if not history or len(asked) == 1:
        return question
    lines = [EARLIER]
    lines += [f"- {_shortened(turns[at].text, MAX_QUESTION_CHARACTERS)}" for at in asked[:-1][-MAX_QUESTIONS:]]
    replies = [turn.text for turn in turns[asked[-2] : asked[-1]] if turn.role == "assistant" and turn.text.strip()]
    if replies:
        lines.append(f"{LAST_REPLY}{_shortened(_CITATION.sub('', replies[-1]), MAX_REPLY_CHARACTERS)}")
    return "\n".join([*lines, f"{QUESTION}{question.strip()}"])


def _shortened(text: str, limit: int) -> str:
    """Return a text on one line, cut after a word."""
    line = _SPACE.sub(" ", text).strip()
    if len(line) <= limit:
        return line
    return line[:limit].rsplit(" ", 1)[0].rstrip() + "…"
