"""Refusals of a prompt that is larger than the model's context window, in the words of many servers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from hirag_dist.llm.reply_store.codec import token_count

_CODES = frozenset({"context_length_exceeded", "context_window_exceeded", "exceed_context_size_error"})
_SAID = re.compile(
    r"maximum (?:context|model|prompt|input) length|exceeds? (?:the )?(?:model's )?(?:available |maximum |max )*context"
    r"|exceeds? (?:the )?context (?:window|size|length|limit)|context (?:window|length|size) exceeded"
    r"|(?:prompt|input|request|conversation) (?:is )?too long|input (?:\(\d+ tokens\) )?is too (?:long|large)"
    r"|exceed context limit|longer than the (?:maximum |model)|too large for model with|must have less than \d+ tokens"
    r"|`max_new_tokens` must be <=|input token count|context length of only|context length is only|context overflow"
    r"|exceeded max context|number of tokens in the prompt",
    re.IGNORECASE,
)
_WINDOW = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"context (?:length|size|window|limit)(?: is| of)?(?: only)? \(?(\d+)",
        r"(?:model|prompt|input) length (?:is|of) (\d+)",
        r"> (\d+) maximum",
        r"\d \+ \d+ > (\d+)",
        r"with (\d+) maximum context",
        r"tokens allowed \((\d+)",
        r"must be <= (\d+)",
        r"less than (\d+) tokens",
        r"cannot exceed (\d+)",
        r"batch size: (\d+)",
    )
)
_PROMPT = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"(\d+) (?:tokens )?(?:in|of|from) (?:the )?(?:messages|text input|input|prompt)",
        r"(?:has|passed|contains) (\d+) (?:input )?tokens",
        r"resulted in (\d+) tokens",
        r"(?:request|input|prompt) \((?:length )?(\d+)(?: tokens)?\)",
        r"too long: (\d+) tokens",
        r": (\d+) \+ \d+ >",
        r"token count \((\d+)",
        r"given: (\d+)",
        r"keep the first (\d+) tokens",
    )
)


def refused_window(
    status: int, detail: Mapping[str, Any], codes: Sequence[str], said: str
) -> tuple[int | None, int | None] | None:
    """Return the tokens of the window and of the prompt, as far as named, where a prompt is larger than the window.

    None for any other refusal.

    Args:
        status: HTTP status. Some servers answer 413 or 500.
        detail: the error object. llama.cpp gives n_ctx and n_prompt_tokens.
        codes: its code and type.
        said: its message.
    """
    if status == 429 or not (_CODES.intersection(codes) or _SAID.search(said)):
        return None
    words = re.sub(r"(?<=\d),(?=\d{3})", "", said)
    return (
        token_count(detail.get("n_ctx")) or _first(_WINDOW, words),
        token_count(detail.get("n_prompt_tokens")) or _first(_PROMPT, words),
    )


def _first(patterns: Sequence[re.Pattern[str]], said: str) -> int | None:
    found = (pattern.search(said) for pattern in patterns)
    return next((token_count(int(match[1])) for match in found if match), None)
