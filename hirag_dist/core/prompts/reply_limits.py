"""Maximum tokens of a reply, and maximum records of a list, derived from what a request asks for.

A reply that is not repeating itself stays far below its limit, so a limit costs nothing but the time and money of the
reply that would never end. The figures were checked on recorded replies of language models; each function says which.
A limit is no part of a request's hash: a reply that was given under another one is used all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hirag_dist.core.prompts.schemas import MAX_ITEMS, MAX_MEMBERS

_BYTES_PER_TOKEN = 4  # of UTF-8, in o200k: English 4.4, Chinese 3.9, Russian 6.5
_FEWEST_ITEMS = 16
_TOKENS_PER_ITEM = 25  # of a chunk
MIN_DIVISIBLE_TOKENS: Final = 128  # of a text that is read in halves where the whole is too long
LIST_TOKENS: Final = 512  # of a reply that lists types
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


def report_tokens() -> int:
    """Return the maximum tokens of a report: of 161 recorded ones, 99 % have 1,694 or fewer, the longest 2,063."""
    return 2400


def same_entity_tokens() -> int:
    """Return the maximum tokens of an answer to whether two entities are one, with its reason."""
    return 256


def pack_tokens(limits: Sequence[int]) -> int:
    """Return the maximum tokens of a reply to several units: what is left of one unit's limit is there for others."""
    return max(*limits, sum(limits) * 2 // 3) if len(limits) > 1 else sum(limits)


def description_tokens(max_words: int) -> int:
    """Return the maximum tokens of a description of at most so many words, of which models write up to half more."""
    return 4 * max_words + 64
