"""The request that proposes entity types, and examples of extraction as text for a prompt."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from hirag_dist.core.prompts.reply_parsing import ExtractionReply
from hirag_dist.core.prompts.templates import DONE, FIELD, Prompts, tagged
from hirag_dist.core.text.ids import unit_id
from hirag_dist.core.text.normalize import one_line
from hirag_dist.types import ChatRequest, Message


def entity_types_request(excerpts: Sequence[str], prompts: Prompts) -> ChatRequest:
    """Return the request that proposes entity types from excerpts of the corpus."""
    body = "\n".join(tagged("excerpt", text) for text in excerpts)
    return ChatRequest(
        role="extract",
        messages=(prompts.system("entity-types", None), Message("user", body)),
        unit=unit_id(body),
    )


def example_text(passage: str, found: ExtractionReply, form: str | None, *, relations: bool = True) -> str:
    """Return an example of extraction: a passage, and the reply in the form that the endpoint is asked for.

    Args:
        form: the task's name for a JSON reply, None for delimited records.
        relations: whether the task asks for relations too.
    """
    return f"{tagged('text', passage)}\nReply:\n{_reply(found, form, relations=relations)}"


def _reply(found: ExtractionReply, form: str | None, *, relations: bool) -> str:
    if form is not None:
        data = {"entities": [asdict(entity) for entity in found.entities]}
        data |= {"relations": [asdict(relation) for relation in found.relations]} if relations else {}
        return json.dumps(data, ensure_ascii=False)
    lines = [FIELD.join(("entity", one.name, one.type, one_line(one.description))) for one in found.entities]
    if relations:
        lines += [
            FIELD.join(("relation", one.source, one.target, one_line(one.description), f"{one.strength:g}"))
            for one in found.relations
        ]
    return "\n".join([*lines, DONE])
