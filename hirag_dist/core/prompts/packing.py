"""Packing of several units into one call, and splitting of its reply into one reply per unit.

A unit is a cluster to summarise or a community to report on. In a pack it stands between its own tags and has a
numbering of its own; each unit's part of the reply is then read by the parser that reads its reply alone, so nothing
of one unit can get into another's record. A unit whose part is missing or twice is for its caller to ask alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace

from hirag_dist.core.prompts.records import json_objects, record_lines
from hirag_dist.core.prompts.reply_limits import approximate_tokens as approximate_tokens
from hirag_dist.core.prompts.reply_validation import MalformedReply, RepeatedReply, finished_text
from hirag_dist.core.prompts.templates import DONE, FIELD
from hirag_dist.core.text.thinking import without_thinking
from hirag_dist.types import ChatReply

_SECTION = re.compile(
    rf"""^[ \t\-*•>|(\["'`“”#]*unit["'`“”*]*[ \t]*(?:{re.escape(FIELD)}|\|)[ \t"'`“”*]*(\d+)[^\n|]*\|?[ \t]*$""",
    re.MULTILINE | re.IGNORECASE,
)


def packs(sizes: Sequence[int], max_tokens: int, max_units: int) -> list[range]:
    """Group consecutive units into calls: a call takes units until the next one does not fit.

    Units keep their order and are never weighed against each other, so that one more or less changes the adjacent
    packs and not those far away: where two runs begin a pack at the same unit, all that follow are the same, and their
    replies are in the ledger.

    Args:
        sizes: tokens of each unit; a larger one than `max_tokens` goes alone.
        max_units: in one call; 1 or less packs nothing.

    >>> packs([4, 4, 4, 9], max_tokens=8, max_units=5)
    [range(0, 2), range(2, 3), range(3, 4)]
    """
    found: list[range] = []
    start = total = 0
    for at, size in enumerate(sizes):
        if at > start and (total + size > max_tokens or at - start >= max_units):
            found.append(range(start, at))
            start, total = at, 0
        total += size
    if sizes:
        found.append(range(start, len(sizes)))
    return found


def split_reply(reply: ChatReply, n_units: int) -> list[ChatReply | MalformedReply]:
    """Return for each unit of a pack its own reply, or why there is none.

    Of a reply that was cut off at the token limit, or that repeats itself to its end, the units that were finished
    before are kept. Where the whole reply cannot be used (refused, empty, only thinking) every unit gets that reason.
    """
    cut_off = reply.finish_reason == "length"
    loop = ""
    try:
        text = finished_text(reply)
    except RepeatedReply as refusal:
        text, cut_off, loop = without_thinking(reply.text), True, str(refusal)
    except MalformedReply as refusal:
        return [refusal] * n_units
    parts: dict[int, list[str]] = {}
    for number, part in _sections(text, cut_off) or _objects(text):
        parts.setdefault(number, []).append(part)
    missing = "the reply was cut off before this unit was done" if cut_off else "the reply leaves this unit out"
    found: list[ChatReply | MalformedReply] = []
    for number in range(1, n_units + 1):
        here = parts.get(number, [])
        if len(here) == 1:
            found.append(replace(reply, text=here[0], finish_reason="stop"))
        else:
            found.append(MalformedReply(f"the reply holds this unit {len(here)} times" if here else loop or missing))
    return found


def _sections(text: str, cut_off: bool) -> list[tuple[int, str]]:
    """Return (unit, its records) of delimited text. Of a text that was cut off the last one is not finished."""
    text = "\n".join(record_lines(text))
    heads = list(_SECTION.finditer(text))
    ends = [*(head.start() for head in heads[1:]), *([len(text)] if heads else [])]
    found = [
        (int(head.group(1)), text[head.end() : end].replace(DONE, "").strip())
        for head, end in zip(heads, ends, strict=True)
    ]
    return found[:-1] if cut_off else found


def _objects(text: str) -> list[tuple[int, str]]:
    """Return (unit, its JSON object), whether they stand in one object's list or one after another."""
    found: list[tuple[int, str]] = []
    for data in json_objects(text):
        items = data.get("units")
        for item in items if isinstance(items, list) else [data]:
            written = str(item.get("unit", "")).strip() if isinstance(item, dict) else ""
            if written.isdecimal() and len(written) < 6:
                found.append((int(written), json.dumps({key: item[key] for key in item if key != "unit"})))
    return found
