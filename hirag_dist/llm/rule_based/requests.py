"""A conversation read: which task, which round, and what the user message holds between its tags."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hirag_dist.core.prompts.templates import CONTINUE
from hirag_dist.types import Message

_TASK = re.compile(r"\s*Task:\s*([\w-]+)")
_GLEANS = CONTINUE.partition("{things}")[2]


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """Request of a conversation.

    Attributes:
        task: named in the first line of the system message; empty where it is not.
        form: name of the reply's JSON form, None for delimited or plain text.
        round: how often what was missing has been asked for: 0 for a first pass. A question to reply again, because a
            reply could not be used, begins no round.
    """

    task: str
    form: str | None
    system: str
    body: str
    round: int
    seed: int

    def between(self, tag: str) -> str:
        """Return the text between a tag and its end, or an empty text."""
        start = self.body.find(f"<{tag}>")
        if start < 0:
            return ""
        start += len(tag) + 2
        end = self.body.find(f"</{tag}>", start)
        return self.body[start : end if end >= 0 else len(self.body)].strip("\n")


def asked(messages: Sequence[Message], form: str | None, seed: int) -> ParsedRequest:
    """Return the request of a conversation."""
    system = "\n".join(message.content for message in messages if message.role in ("system", "developer"))
    body = next((message.content for message in messages if message.role == "user"), "")
    match = _TASK.match(system)
    rounds = sum(message.role == "user" and message.content.endswith(_GLEANS) for message in messages)
    return ParsedRequest(match.group(1) if match else form or "", form, system, body, rounds, seed)
