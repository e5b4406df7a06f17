"""Sizes of prompts and replies that fit a model's context window. All sizes are tokens of the local tokenizer.

A fifth of the window stays free, since the model's own tokenizer counts a text differently, and a chat template adds
marks of its own. Of the rest, a task's instructions and its reply have their place; what is left is for the text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hirag_dist.core.text.normalize import shorten

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
    """Return the tokens that a prompt may show besides its instructions; 0 or less where nothing fits.

    Args:
        window: tokens of the model's context window.
        instructions: tokens of the system message.
        reply: tokens that are kept for the reply.
    """
    return usable_tokens(window) - instructions - reply - FRAME


def text_room(window: int, instructions: int, written: float, shown: float = 0.0) -> int:
    """Return the tokens of a text whose reply grows with it.

    Args:
        window: tokens of the model's context window.
        instructions: tokens of the system message.
        written: tokens of the reply for each token of the text.
        shown: tokens that the prompt shows besides the text, for each token of it.

    >>> text_room(1024, 216, 2.0)
    193
    """
    return int(prompt_room(window, instructions, 0) / (1.0 + shown + written))


def reply_room(window: int, prompt: int, ratio: float = RATIO) -> int:
    """Return the maximum tokens, as the model counts them, that a request may ask for as its reply.

    Args:
        window: tokens of the model's context window.
        prompt: tokens of the prompt.
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
