"""Request that extracts claims from a chunk, and what its reply holds (GraphRAG paper §3.1.2)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hirag_dist.core.prompts.records import json_object, record_lines
from hirag_dist.core.prompts.reply_limits import (
    MIN_DIVISIBLE_TOKENS,
    approximate_tokens,
    extraction_items,
    extraction_tokens,
)
from hirag_dist.core.prompts.reply_validation import MalformedReply, refuse_other_language, usable_text
from hirag_dist.core.prompts.templates import DONE, FIELD, FORMATS, Prompts, tagged
from hirag_dist.core.text.normalize import clean_name, is_name, one_line
from hirag_dist.types import ChatReply, ChatRequest

CLAIM_TASK = "extract-claims"
STATUSES = ("true", "false", "suspected")
_NOTHING = frozenset({"", "none", "null", "n/a", "unknown", "…"})
_COLUMNS = ("subject", "object", "type", "status", "start_date", "end_date", "description", "source_text")
_KIND = re.compile(r"""^[\s\-*•>(\["'`]{0,20}claim["'`*]*\s*$""", re.IGNORECASE)
_DAY = re.compile(r"-?\d{4,}(?:-\d\d(?:-\d\d(?:T[\d:.+Z-]+)?)?)?")  # ISO 8601: a year, a month, a day, or a moment
_EDGES = " \t\"'`“”()[]{}"
_FORM = frozenset(line for line in FORMATS[CLAIM_TASK].splitlines() if FIELD in line)


@dataclass(frozen=True, slots=True)
class ClaimRecord:
    """A claim as the model gave it; what it does not tell is empty."""

    subject: str
    object: str
    type: str
    status: str
    start_date: str
    end_date: str
    description: str
    source_text: str


def claims_request(text: str, names: Sequence[str], prompts: Prompts, form: str | None) -> ChatRequest:
    """Return the request that lists what a chunk claims of the entities found in it.

    Args:
        form: the task's name for a JSON reply, None for delimited records.
    """
    body = tagged("entities", "\n".join(map(one_line, names))) + "\n" + tagged("text", text)
    size = approximate_tokens(text)
    return replace(
        prompts.request("extract", CLAIM_TASK, body, form),
        max_tokens=extraction_tokens(size),
        max_items=extraction_items(size),
        divisible=size >= MIN_DIVISIBLE_TOKENS,
    )


def parse_claims(reply: ChatReply, read: str = "") -> tuple[ClaimRecord, ...]:
    """Return the claims of a reply in JSON or delimited form, each once; one without subject or description is dropped.

    Args:
        read: the text that the model read, to compare languages with; empty: they are not compared.

    Raises:
        MalformedReply: the reply has no claim in the requested form and does not say that there is none, or its
            descriptions are surely in another language than the text.
    """
    text = usable_text(reply)
    data = json_object(text)
    if data is not None and isinstance(data.get("claims"), list):
        rows = [item for item in data["claims"] if isinstance(item, dict)]
        said_none = not data["claims"]
    else:
        lines = [line for line in record_lines(text.replace(DONE, "\n")) if line.strip() not in _FORM]
        records = [[part.strip(_EDGES) for part in line.split(FIELD)] for line in lines]
        rows = [
            dict(zip(_COLUMNS, fields, strict=False))
            for kind, *fields in records
            if _KIND.match(kind) and len(fields) >= len(_COLUMNS) - 1
        ]
        said_none = text.strip() == DONE
    claims = tuple(dict.fromkeys(claim for row in rows if (claim := _claim(row)) is not None))
    if not claims and not said_none:
        raise MalformedReply("the reply holds no claim in the requested form, and does not say that there is none")
    refuse_other_language((claim.description for claim in claims), read)
    return claims


def _claim(row: Mapping[str, Any]) -> ClaimRecord | None:
    values = {name: _stated(row.get(name)) for name in _COLUMNS}
    subject, thing = clean_name(values["subject"]), clean_name(values["object"])
    if not is_name(subject) or not values["description"]:
        return None
    status = values["status"].lower().rstrip(".")
    return ClaimRecord(
        subject,
        thing if is_name(thing) else "",
        values["type"].lower(),
        status if status in STATUSES else "",
        _day(values["start_date"]),
        _day(values["end_date"]),
        values["description"],
        values["source_text"],
    )


def _day(text: str) -> str:
    return text if _DAY.fullmatch(text) else ""


def _stated(value: object) -> str:
    text = one_line(value) if isinstance(value, str) else ""
    return "" if text.casefold() in _NOTHING else text
