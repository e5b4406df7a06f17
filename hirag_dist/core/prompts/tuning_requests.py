"""The request that proposes entity types, and examples of extraction as text for a prompt."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from hirag_dist.core.prompts.reply_limits import LIST_TOKENS
from hirag_dist.core.prompts.reply_parsing import ExtractionReply
from hirag_dist.core.prompts.templates import BAR, DONE, Prompts, tagged
from hirag_dist.core.text.ids import unit_id
from hirag_dist.core.text.normalize import name_key, one_line
from hirag_dist.types import ChatRequest, Message


def entity_types_request(excerpts: Sequence[str], prompts: Prompts) -> ChatRequest:
    """Return the request that proposes entity types from excerpts of the corpus."""
    body = "\n".join(tagged("excerpt", text) for text in excerpts)
    return ChatRequest(
        role="extract",
        messages=(prompts.system("entity-types", None), Message("user", body)),
        unit=unit_id(body),
        max_tokens=LIST_TOKENS,
    )


def example_text(passage: str, found: ExtractionReply, form: str | None, *, relations: bool = True) -> str:
    """Return an example of extraction: a passage, and the reply in the form that the endpoint is asked for.

    Args:
        form: the task's name for a JSON reply, None for delimited records.
        relations: whether the task asks for relations too.
    """
    return f"{tagged('text', passage)}\nReply:\n{_reply(found, form, relations=relations)}"


def _reply(found: ExtractionReply, form: str | None, *, relations: bool) -> str:
    number_of = {name_key(one.name): at for at, one in reversed(list(enumerate(found.entities, start=1)))}
    stated: dict[str, list[str]] = {}
    for one in found.relations if relations else ():
        ends = [number_of.get(name_key(name)) for name in (one.source, one.target)]
        if None not in ends:
            known = one.description == found.entities[(ends[0] or 1) - 1].description
            stated.setdefault("" if known else one_line(one.description), []).append(f"{ends[0]}-{ends[1]}")
    if form is not None:
        entities = [({"id": at} if relations else {}) | asdict(one) for at, one in enumerate(found.entities, start=1)]
        told = [
            {"pairs": [list(map(int, pair.split("-"))) for pair in pairs], "description": text}
            for text, pairs in stated.items()
        ]
        return json.dumps({"entities": entities} | ({"relations": told} if relations else {}), ensure_ascii=False)
    lines = [
        BAR.join((str(at), one.name, one.type, one_line(one.description)))
        for at, one in enumerate(found.entities, start=1)
    ]
    lines += [BAR.join((" ".join(pairs), text)) for text, pairs in stated.items()]
    return "\n".join([*lines, DONE])
