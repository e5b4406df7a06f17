"""Bounds of replies and prompts: JSON schemas for strict structured outputs, maximum tokens and records, windows.

Every property of a schema is required, and no others are allowed. Every text, list and number is bounded, so that a
reply ends whatever a model does: one that repeats itself is stopped by the schema and not by the token limit. The
bounds are above everything that was good in the recorded replies of gpt-3.5-turbo, gpt-4o, gpt-4o-mini and Llama 3.1 8B
(6,219 entities and 2,802 relations of 567 replies, 922 findings of 161 reports, 190 claims) and in 12,872 descriptions
of LightRAG's recorded graph of Mix.

A reply that is not repeating itself stays far below its token limit, so a limit costs nothing but the time and money of
the reply that would never end. The figures were checked on recorded replies of language models; each function says
which. A limit is no part of a request's hash: a reply that was given under another one is used all the same.

Prompts have to fit a model's context window. A fifth of it stays free, since the model's own tokenizer counts a text
differently, and a chat template adds marks of its own. Of the rest, a task's instructions and its reply have their
place; what is left is for the text. Sizes are tokens of the local tokenizer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hirag_dist.core.text.normalize import shorten

NAME_CHARS: Final = 160  # 99.9 % have 87 or fewer, the longest 146
TYPE_CHARS: Final = 60  # 99.9 % of entities have 15 or fewer; of claims, the longest has 46
DESCRIPTION_CHARS: Final = 500  # of an entity's description: 99.9 % have 307 or fewer, the longest 489
RELATION_CHARS: Final = 300  # 99.9 % have 196 or fewer, the longest 206
CLAIM_CHARS: Final = 600  # the longest has 329
QUOTE_CHARS: Final = 1200  # of the text that states a claim: 99 % have 1,149 or fewer
SUMMARY_CHARS: Final = 800  # of a summary entity, in up to three sentences
TITLE_CHARS: Final = 200  # of a report: the longest has 87
REPORT_CHARS: Final = 1200  # of a report's summary: the longest has 951
FINDING_CHARS: Final = 250  # of a finding's sentence: the longest has 93
EXPLANATION_CHARS: Final = 1200  # of a finding: the longest has 916
POINT_CHARS: Final = 1000  # of a point of an answer, in one to three sentences
REASON_CHARS: Final = 300
MAX_FINDINGS: Final = 10  # the most that a report has
MAX_SUMMARIES: Final = 5  # summaries of a cluster; one to three are asked for
MAX_PAIRS: Final = 30  # pairs that one sentence relates
MAX_POINTS: Final = 30
MAX_ITEMS: Final = 256  # entities, relations or claims of a chunk; the longest recorded list, a loop, has 201
MAX_MEMBERS: Final = 1024  # members of a cluster
OTHER: Final = "other"  # type of an entity that none of the configured ones fits

_NUMBER: Final = 9999  # the highest of an entity or a member
_REFERENCE_CHARS, _MAX_REFERENCES = 8, 30
_DATE_CHARS = 32


def text_schema(max_chars: int) -> dict[str, Any]:
    """Return the schema of a text of at most `max_chars` characters."""
    return {"type": "string", "maxLength": max_chars}


def integer_schema(minimum: int, maximum: int) -> dict[str, Any]:
    """Return the schema of a whole number between two bounds."""
    return {"type": "integer", "minimum": minimum, "maximum": maximum}


def object_schema(**properties: Any) -> dict[str, Any]:
    """Return the schema of an object with these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def array_schema(item: dict[str, Any], max_items: int, min_items: int = 0) -> dict[str, Any]:
    """Return the schema of a list of at most `max_items` and at least `min_items`."""
    return {"type": "array", "items": item, "minItems": min_items, "maxItems": max_items}


def unit_properties(form: str, types: tuple[str, ...], max_items: int) -> dict[str, Any]:
    """Return the properties of the reply to one unit.

    Args:
        types: values that a `type` may have; empty for any.

    Raises:
        KeyError: no such form.
    """
    name, number = text_schema(NAME_CHARS), integer_schema(1, _NUMBER)
    short = {"type": "string", "enum": list(dict.fromkeys(types))} if types else text_schema(TYPE_CHARS)
    described = dict(name=name, type=short, description=text_schema(DESCRIPTION_CHARS))
    match form:
        case "extract-graph":
            return dict(
                entities=array_schema(object_schema(id=number, **described), max_items), relations=_relations(max_items)
            )
        case "extract-entities":
            return dict(entities=array_schema(object_schema(**described), max_items))
        case "extract-relations":
            return dict(relations=_relations(max_items))
        case "extract-claims":
            day = text_schema(_DATE_CHARS)
            claim = object_schema(
                subject=name,
                object=name,
                type=text_schema(TYPE_CHARS),
                status={"type": "string", "enum": ["TRUE", "FALSE", "SUSPECTED"]},
                start_date=day,
                end_date=day,
                description=text_schema(CLAIM_CHARS),
                source_text=text_schema(QUOTE_CHARS),
            )
            return dict(claims=array_schema(claim, max_items))
        case "summarise":
            summary = object_schema(
                name=name,
                type=short,
                description=text_schema(SUMMARY_CHARS),
                members=array_schema(number, max_items, min_items=1),
            )
            return dict(entities=array_schema(summary, MAX_SUMMARIES, min_items=1))
        case "same-entity":
            return dict(same={"type": "boolean"}, reason=text_schema(REASON_CHARS))
        case "report":
            finding = object_schema(
                summary=text_schema(FINDING_CHARS),
                explanation=text_schema(EXPLANATION_CHARS),
                references=array_schema(text_schema(_REFERENCE_CHARS), _MAX_REFERENCES),
            )
            return dict(
                title=text_schema(TITLE_CHARS),
                summary=text_schema(REPORT_CHARS),
                findings=array_schema(finding, MAX_FINDINGS, min_items=1),
            )
        case "map-answer":
            point = object_schema(text=text_schema(POINT_CHARS), helpfulness=integer_schema(0, 100))
            return dict(points=array_schema(point, MAX_POINTS))
    raise KeyError(form)


def _relations(max_items: int) -> dict[str, Any]:
    pair = array_schema(integer_schema(1, _NUMBER), 2, min_items=2)
    relation = object_schema(pairs=array_schema(pair, MAX_PAIRS, min_items=1), description=text_schema(RELATION_CHARS))
    return array_schema(relation, max_items)


_BYTES_PER_TOKEN = 4  # of UTF-8, in o200k: English 4.4, Chinese 3.9, Russian 6.5
_FEWEST_ITEMS = 16
_TOKENS_PER_ITEM = 25  # of a chunk
MIN_DIVISIBLE_TOKENS: Final = 128  # of a text that is read in halves where the whole is too long
LIST_TOKENS: Final = 512  # of a reply that lists types
REPORT_TOKENS: Final = 2400  # of 161 recorded reports 99 % have 1,694 or fewer, the longest 2,063
SAME_ENTITY_TOKENS: Final = 256  # tokens of the answer whether two entities are one, with its reason
ANSWER_TOKENS: Final = 4096  # the longest of 1,027 recorded answers to questions about a corpus has about 1,400
SHORT_ANSWER_TOKENS: Final = 512
EVALUATION_TOKENS: Final = 4096  # verdicts with reasons, claims of an answer, questions


def approximate_tokens(text: str) -> int:
    """Return the approximate number of tokens of a text, from its length in bytes.

    >>> approximate_tokens("eight by")
    2
    """
    return -(-len(text.encode("utf-8", "surrogatepass")) // _BYTES_PER_TOKEN)


def extraction_tokens(chunk_tokens: int) -> int:
    """Return the maximum tokens of a reply with the entities and relations, or the claims, of a chunk.

    Of 314 recorded replies of gpt-3.5-turbo and gpt-4o to chunks of 72 to 1,740 tokens, which also repeat names and
    strengths that are not asked for any more, the largest has 0.8 of this.
    """
    return 2 * chunk_tokens + 512


def extraction_items(chunk_tokens: int) -> int:
    """Return the maximum entities, relations or claims of a chunk, as a multiple of 16.

    Few different values keep schemas few, which endpoints compile on first use. Of 314 recorded replies of
    gpt-3.5-turbo and gpt-4o none has more than 0.6 of this, of 35 first replies of Llama 3.1 8B none more than 0.8.

    >>> extraction_items(1200)
    48
    """
    return min(-(-chunk_tokens // (_TOKENS_PER_ITEM * _FEWEST_ITEMS)) * _FEWEST_ITEMS or _FEWEST_ITEMS, MAX_ITEMS)


def member_items(n_members: int) -> int:
    """Return the maximum members that a summary entity lists, as a power of two."""
    items = _FEWEST_ITEMS
    while items < min(n_members, MAX_MEMBERS):
        items *= 2
    return items


def summary_tokens(n_members: int) -> int:
    """Return the maximum tokens of the summary entities of a cluster: three of three sentences, and member numbers."""
    return 600 + 8 * n_members


def pack_tokens(limits: Sequence[int]) -> int:
    """Return the maximum tokens of a reply to several units: what is left of one unit's limit is there for others."""
    return max(*limits, sum(limits) * 2 // 3) if len(limits) > 1 else sum(limits)


def description_tokens(max_words: int) -> int:
    """Return the maximum tokens of a description of at most so many words, of which models write up to half more."""
    return 4 * max_words + 64


RATIO = 1.25  # tokens that a model counts for each of ours, at most: what the free fifth is for
FRAME = 24  # tokens of tags and of the chat template around a message, in a prompt
_MIN_REPLY = 16


@dataclass(frozen=True, slots=True)
class ReplyShare:
    """The reply that a task has room for: a part of the usable window, up to a number of tokens that is plenty."""

    part: float
    enough: int


DESCRIPTION = ReplyShare(1 / 4, 400)
SUMMARY = ReplyShare(1 / 4, 600)
REPORT = ReplyShare(2 / 5, 1700)
ANSWER = ReplyShare(1 / 4, 1024)
META_TYPES = ReplyShare(1 / 8, 150)


def usable_tokens(window: int) -> int:
    """Return the tokens of a window that a prompt and its reply may take together.

    >>> usable_tokens(4096)
    3276
    """
    return window * 4 // 5


def reply_tokens(window: int, share: ReplyShare) -> int:
    """Return the tokens that are kept for the reply of a task.

    >>> reply_tokens(1024, REPORT), reply_tokens(131072, REPORT)
    (327, 1700)
    """
    return min(int(usable_tokens(window) * share.part), share.enough)


def prompt_room(window: int, instructions: int, reply: int) -> int:
    """Return the tokens that a prompt may show besides its instructions; 0 or less where nothing fits."""
    return usable_tokens(window) - instructions - reply - FRAME


def text_room(window: int, instructions: int, written: float, shown: float = 0.0) -> int:
    """Return the tokens of a text whose reply grows with it.

    Args:
        written: tokens of the reply for each token of the text.
        shown: tokens that the prompt shows besides the text, for each token of it.

    >>> text_room(1024, 216, 2.0)
    193
    """
    return int(prompt_room(window, instructions, 0) / (1.0 + shown + written))


def reply_room(window: int, prompt: int, ratio: float = RATIO) -> int:
    """Return the maximum tokens, as the model counts them, that a request may ask for as its reply.

    Args:
        ratio: tokens that the model counts for each of ours, at least; more where replies have shown more.

    >>> reply_room(1024, 500), reply_room(1024, 500, ratio=1.8)
    (383, 108)
    """
    return max(window - math.ceil(prompt * max(ratio, RATIO)) - _MIN_REPLY, _MIN_REPLY)


def cut_text(text: str, max_tokens: int, count_tokens: Callable[[str], int]) -> str:
    """Return the text, shortened at a word where it has more tokens; of no room a first character is left."""
    size = count_tokens(text)
    if size <= max_tokens:
        return text
    n_chars = max(len(text) * max_tokens // size, 1)
    while n_chars > 1 and count_tokens(shorten(text, n_chars)) > max_tokens:
        n_chars = n_chars * 9 // 10
    return shorten(text, n_chars)


def cut_evenly(texts: Sequence[str], max_tokens: int, count_tokens: Callable[[str], int]) -> list[str]:
    """Return texts that have at most `max_tokens` together: the longest ones are shortened, to the same length."""
    sizes = [count_tokens(text) for text in texts]
    if sum(sizes) <= max_tokens:
        return list(texts)
    left, limit = max_tokens, 0
    for number, size in enumerate(sorted(sizes)):
        limit = left // (len(sizes) - number)
        if size > limit:
            break
        left -= size
    return [
        text if size <= limit else cut_text(text, limit, count_tokens) for text, size in zip(texts, sizes, strict=True)
    ]
