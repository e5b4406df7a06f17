"""Simulated faults: errors of a server, texts damaged in the ways that models damage them, texts cut off."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from hirag_dist.core.prompts.templates import BAR, DONE, FIELD
from hirag_dist.core.text.normalize import one_line, shorten
from hirag_dist.testing.simulator.openai_schema import ApiError, server_error
from hirag_dist.testing.simulator.options import FAULT_RATES, SimulatorOptions
from hirag_dist.types import ChatReply

FAIL, HANG, MALFORMED, TRUNCATE = "fail", "hang", "malformed", "truncate"
CHAT_FAULTS = frozenset({FAIL, HANG, MALFORMED, TRUNCATE})
EMBEDDING_FAULTS = frozenset({FAIL, HANG})


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """Course of one call.

    Attributes:
        delay_s: how long the reply takes.
        fault: what goes wrong, or None.
        form: [0, 1), chooses among the forms of the fault.
        share: [0, 1), where in the reply it strikes.
    """

    delay_s: float
    fault: str | None = None
    form: float = 0.0
    share: float = 0.0


def plan_of(options: SimulatorOptions, request: str, attempt: int, kinds: Collection[str] = CHAT_FAULTS) -> FaultPlan:
    """Return how a call goes.

    Args:
        request: hash of what is asked.
        attempt: 0 the first time that this is asked, then 1, 2, ….
        kinds: the faults that such a call can have; another that is drawn is none.
    """
    share = 0.0
    if options.jitter:
        share = options.jitter * (2.0 * draw(options.seed, request, attempt, "latency") - 1.0)
    delay_s = options.latency_ms / 1000.0 * (1.0 + share)
    fault = _fault(options, request, attempt)
    if fault is None or fault not in kinds:
        return FaultPlan(delay_s)
    form, place = (draw(options.seed, request, attempt, name) for name in ("form", "share"))
    return FaultPlan(delay_s, fault, form, place)


def draw(seed: int, request: str, attempt: int, name: str) -> float:
    """Return a number in [0, 1) that depends on all arguments and nothing else."""
    digest = hashlib.sha256(f"{seed}/{request}/{attempt}/{name}".encode()).digest()
    return int.from_bytes(digest[:7], "big") / 2**56


def _fault(options: SimulatorOptions, request: str, attempt: int) -> str | None:
    """One draw for all kinds, so that each has exactly its share."""
    edges = 0.0
    drawn: float | None = None
    for name in FAULT_RATES:
        rate: float = getattr(options, name)
        if rate:
            drawn = draw(options.seed, request, attempt, "fault") if drawn is None else drawn
            edges += rate
            if drawn < edges:
                return name.removesuffix("_rate")
    return None


_MARKUP = re.compile(r"<\|[^>]*>|[{}\[\]<>|`#\"]+")
_RETRY_AFTER_S = 1
_BAD_GATEWAY = (
    b"<html><head><title>502 Bad Gateway</title></head><body><center><h1>502 Bad Gateway</h1></center></body></html>"
)
_REFUSALS = (
    "I'm sorry, but I can't help with that.",
    "I cannot assist with this request.",
    "As an AI language model, I am not able to process this text.",
)


@dataclass(frozen=True, slots=True)
class InjectedFailure:
    """A 5xx: an error object, or a gateway's page."""

    error: ApiError
    retry_after_s: int | None = None
    page: bytes | None = None


def failure(form: float, share: float) -> InjectedFailure:
    """Return one of the ways that a server fails.

    Args:
        form: [0, 1), chooses between 500, 502, 503 and 529.
        share: [0, 1), below a half an overloaded server says when to come back.
    """
    wait_s = _RETRY_AFTER_S if share < 0.5 else None
    busy = "The engine is currently overloaded, please try again later."
    kinds = (
        InjectedFailure(server_error()),
        InjectedFailure(ApiError(502, "Bad Gateway", kind="server_error"), page=_BAD_GATEWAY),
        InjectedFailure(ApiError(503, busy, kind="server_error"), wait_s),
        InjectedFailure(ApiError(529, "Overloaded", kind="overloaded_error"), wait_s),
    )
    return kinds[int(form * len(kinds))]


def truncated(reply: ChatReply, share: float) -> ChatReply:
    """Return a reply that the token limit cut off, after a tenth to nine tenths of its characters."""
    kept = round(len(reply.text) * (0.1 + 0.8 * share))
    return replace(reply, text=reply.text[: max(kept, 1)], finish_reason="length")


def damaged(reply: ChatReply, form: float, share: float) -> ChatReply:
    """Return a reply that is in no requested form; its finish_reason is "stop", or "refusal".

    Args:
        form: [0, 1), chooses among the damages that the reply's form allows; see `damages`.
        share: [0, 1), chooses the wording or the place.
    """
    ways = damages(reply.text)
    text = tuple(ways.values())[int(form * len(ways))](reply.text, share)
    refused = text in _REFUSALS and _is_json(reply.text)
    return replace(reply, text=text, finish_reason="refusal" if refused else "stop")


def damages(text: str) -> Mapping[str, Callable[[str, float], str]]:
    """Return the possible damages of a reply's text, by name. A plain text has no form that could be missed."""
    anywhere = {"thinking": _thinking, "empty": _empty, "refusal": _refusal}
    if _is_json(text):
        return {"prose": _prose, "broken": _broken_json, **anywhere}
    return {"prose": _prose, "delimiters": _delimiters, **anywhere} if text.endswith(DONE) else anywhere


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _prose(text: str, share: float) -> str:
    openings = ("Here is what I found.", "Certainly! The text can be described as follows.", "Overview:")
    return f"{_chosen(openings, share)}\n\n{_words(text, 1200)}"


def _thinking(text: str, share: float) -> str:
    thought = f"Okay, I need to read this closely. {_words(text, 600)} Let me check again."
    return f"<think>\n{thought}\n" + ("</think>\n" if share < 0.5 else "")


def _empty(text: str, share: float) -> str:
    return _chosen(("", "\n", "  \n\n"), share)


def _refusal(text: str, share: float) -> str:
    return _chosen(_REFUSALS, share)


def _delimiters(text: str, share: float) -> str:
    """Return the reply with other separators than the ones that were asked for."""
    mark = FIELD if FIELD in text else BAR
    separator = _chosen((" :: ", "\t", "<||>", "; "), share)
    return text.replace(DONE, "").replace(mark, separator).strip() or _prose(text, share)


def _broken_json(text: str, share: float) -> str:
    """Closing brackets are missing, keys are in single quotes, or a value's quotes are not escaped."""
    if share < 0.4:
        return text.rstrip("]} \n")
    if share < 0.7:
        return repr(json.loads(text))
    return re.sub(r'":\s*("|\[|\{|[\d\-tfn])', r'": as "stated" \1', text, count=1)


def _words(text: str, n_chars: int) -> str:
    """Return the words of a reply's records without any markup."""
    said = one_line(_MARKUP.sub(" ", text.replace(FIELD, " ")))
    return shorten(said, n_chars) or "The passage mentions nothing that could be listed here."


def _chosen(options: tuple[str, ...], share: float) -> str:
    return options[int(share * len(options))]
