"""Reasons of dead letters: those that are equal but for names and numbers, and the configuration key to change."""

from __future__ import annotations

import re
from collections.abc import Iterable

from hirag_dist.core.text.normalize import one_line

NOT_SENT = "not sent, because "  # beginning of the reason of a unit that no model was asked about
KEPT = "only its complete records were kept: "  # beginning of the reason where every reply was cut off
_VARIABLE = re.compile(r"'[^']*'|\"[^\"]*\"|(?<=times: ).*|\d[\d,.:]*")
_REMEDIES = tuple(
    (re.compile(signs), remedy)
    for signs, remedy in (
        (
            "cut off at the token limit|only thinking text",
            "raise {endpoint}.max_reply_tokens, turn thinking off by {endpoint}.extra_body, or lower chunk_tokens and "
            "pack_tokens",
        ),
        ("then none for", "raise {endpoint}.silence_timeout_s, or lower {endpoint}.max_concurrent"),
        (
            "in time|timed out|nothing came in",
            "raise {endpoint}.first_token_timeout_s, or lower {endpoint}.max_concurrent",
        ),
        ("language of the text", "set another {endpoint}.model, or reply_language: any"),
        ("withheld|model refused", "set another endpoint for the role in llm.roles"),
        ("context length|context window|context size|too long|too large", "lower chunk_tokens"),
        (
            r"answered 4\d\d|\(4\d\d\)",
            "read what the endpoint answered; {endpoint}.extra_body and {endpoint}.max_tokens_field change the request",
        ),
        ("reply is empty", "set another {endpoint}.model, or turn thinking off by {endpoint}.extra_body"),
        ("no recorded reply|no reply to it is stored", "set {endpoint}.fallback"),
        (
            "record|form|code|loop|repeat|summary|report|reply|answer",
            "set {endpoint}.output: json_schema where the endpoint supports it, pack_tokens: 0, or another "
            "{endpoint}.model",
        ),
    )
)


def without_details(reason: str) -> str:
    """Return a reason without its names and numbers: reasons with the same result are one.

    >>> without_details("endpoint 'llm' answered 1,024 bytes")
    'endpoint … answered … bytes'
    """
    return _VARIABLE.sub("…", reason)


def by_reason(reasons: Iterable[str]) -> dict[str, list[int]]:
    """Return the positions of the reasons that are one, the most frequent first, by the first of each.

    Reasons of units that were not sent come last: they follow from the others.

    >>> by_reason(["cut off after 10", "empty", "cut off after 20"])
    {'cut off after 10': [0, 2], 'empty': [1]}
    """
    groups: dict[str, tuple[str, list[int]]] = {}
    for position, reason in enumerate(reasons):
        key = NOT_SENT if reason.startswith(NOT_SENT) else without_details(reason)
        groups.setdefault(key, (reason, []))[1].append(position)
    ordered = sorted(groups.values(), key=lambda group: (group[0].startswith(NOT_SENT), -len(group[1])))
    return dict(ordered)


def remedy_of(reason: str, endpoint: str = "NAME") -> str:
    """Return what to change in the configuration, as an imperative; empty if nothing there helps.

    Args:
        endpoint: configured name of the endpoint that was asked.

    >>> remedy_of("English; descriptions stay in the language of the text", "local")
    'set another llm.endpoints.local.model, or reply_language: any'
    """
    remedy = next((remedy for signs, remedy in _REMEDIES if signs.search(reason)), "")
    return remedy.format(endpoint=f"llm.endpoints.{endpoint}")


def beginning(reply: str, n_chars: int) -> str:
    r"""Return the first characters of a reply on one line, with an ellipsis where it goes on.

    >>> beginning("Sure!\nHere it is", 8)
    'Sure! He…'
    """
    line = one_line(reply[: 4 * n_chars])
    return line[:n_chars] + ("…" if len(line) > n_chars or len(reply) > 4 * n_chars else "")
