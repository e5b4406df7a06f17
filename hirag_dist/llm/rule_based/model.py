"""The built-in model: a conversation in, the reply text out. Rules and counting, no language model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hirag_dist.errors import RequestRejected
from hirag_dist.llm.rule_based.answers import answer, map_answer, reduce_answer, short_answer
from hirag_dist.llm.rule_based.descriptions import describe, same_entity
from hirag_dist.llm.rule_based.extraction import entity_types, extract, meta_types
from hirag_dist.llm.rule_based.reports import report
from hirag_dist.llm.rule_based.requests import ParsedRequest, asked, each_unit
from hirag_dist.llm.rule_based.summaries import summarise
from hirag_dist.types import Message

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
