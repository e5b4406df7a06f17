"""The built-in model: a conversation in, the reply out. Rules and counting, no language model."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

from hirag_dist.errors import RequestRejected
from hirag_dist.llm.rule_based.answers import answer, map_answer, reduce_answer, short_answer
from hirag_dist.llm.rule_based.descriptions import describe, same_entity
from hirag_dist.llm.rule_based.extraction import entity_types, extract, meta_types
from hirag_dist.llm.rule_based.reports import report
from hirag_dist.llm.rule_based.requests import ParsedRequest, asked, each_unit
from hirag_dist.llm.rule_based.summaries import summarise
from hirag_dist.types import ChatReply, ChatRequest, Message, RateLimits

_PIECES = re.compile(r"\s*\S{1,24}|\s+")

_TASKS: Mapping[str, Callable[[ParsedRequest], str]] = {
    "extract-graph": extract,
    "extract-entities": extract,
    "extract-relations": extract,
    "describe": describe,
    "meta-types": meta_types,
    "entity-types": entity_types,
    "short-answer": short_answer,
    "summarise": summarise,
    "summarise-pack": each_unit(summarise),
    "report": report,
    "report-pack": each_unit(report),
    "same-entity": same_entity,
    "same-entity-pack": each_unit(same_entity),
    "answer": answer,
    "map-answer": map_answer,
    "reduce-answer": reduce_answer,
}


def reply_to(messages: Sequence[Message], form: str | None, seed: int = 0) -> str:
    """Return the reply to a conversation: the same text for the same input, on any machine.

    Args:
        messages: system message first; its first line ("Task: extract-graph") says what is asked.
        form: name of the JSON form that is asked for, None for delimited or plain text.
        seed: chooses what a first extraction overlooks.

    Raises:
        RequestRejected: the task is one of those that need a language model, or none of this package's.
    """
    ask = asked(messages, form, seed)
    task = _TASKS.get(ask.task)
    if task is None:
        what = f"the task {ask.task!r}" if ask.task else "a message without a 'Task:' line"
        raise RequestRejected(
            f"{what} needs a language model; configure an endpoint for its role: the built-in model 'extractive' "
            f"does only {', '.join(_TASKS)}"
        )
    return task(ask)


class ExtractiveModel:
    """Replies made by rules and counting from the messages alone. This is not a language model.

    It finds names and terms by their form and frequency, relations by words that stand close together, and puts
    summaries, reports and answers together from sentences that are already there. It understands nothing: it makes
    demonstrations, tests and throughput measurements possible where no model is configured, and says nothing about
    the quality that a language model would give. Tasks that need judgement (judge, claims, questions) it refuses.
    """

    rate_limits: RateLimits | None = None

    def __init__(self, count_tokens: Callable[[str], int], seed: int = 0) -> None:
        """Take how tokens are counted, and what chooses the entities that a first pass overlooks."""
        self.name = "extractive" if seed == 0 else f"extractive-{seed}"
        self._count_tokens = count_tokens
        self._seed = seed

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Return the reply. Raises RequestRejected for a task that needs a language model."""
        text = reply_to(request.messages, request.form, self._seed)
        return ChatReply(
            text=text,
            model=self.name,
            input_tokens=sum(self._count_tokens(message.content) for message in request.messages),
            output_tokens=self._count_tokens(text),
        )

    async def stream(self, request: ChatRequest) -> AsyncGenerator[str | ChatReply]:
        """Yield the text in pieces of about a word, white space kept, and then the reply."""
        reply = await self.complete(request)
        for piece in _PIECES.findall(reply.text):
            yield piece
        yield reply

    async def close(self) -> None:
        """Do nothing: no connection is open."""
