"""Simulated faults: errors of a server, texts damaged in the ways that models damage them, texts cut off."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

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


def plan_of(
    options: SimulatorOptions, request: str, attempt: int, kinds: Collection[str] = CHAT_FAULTS, n_faults: int = 0
) -> FaultPlan:
    """Return how a call goes.

    Args:
        request: hash of what is asked.
        attempt: 0 the first time that this is asked, then 1, 2, ….
        kinds: the faults that such a call can have; another that is drawn is none.
        n_faults: how many faults earlier attempts got.
    """
    share = 0.0
    if options.jitter:
        share = options.jitter * (2.0 * draw(options.seed, request, attempt, "latency") - 1.0)
    delay_s = options.latency_ms / 1000.0 * (1.0 + share)
    fault = _fault(options, request, attempt)
    spared = options.max_faults_per_request is not None and n_faults >= options.max_faults_per_request
    if fault is None or fault not in kinds or spared:
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


_SENTENCE_CHARS = 25  # a text of a reply that is longer is a sentence of it, not a name
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
        return {"prose": _prose, "code": _code, "broken": _broken_json, "language": _translated_keys, **anywhere}
    if text.endswith(DONE):
        return {"prose": _prose, "code": _code, "delimiters": _delimiters, "language": _translated_kinds, **anywhere}
    return anywhere


def _is_json(text: str) -> bool:
    if not text.startswith("{"):
        return False
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _prose(text: str, share: float) -> str:
    said = " ".join(_sentences(text)) or "The passage mentions nothing that could be listed here."
    openings = ("Here is what I found.", "Certainly! The text can be described as follows.", "Overview:")
    return f"{_chosen(openings, share)}\n\n{shorten(said, 1200)}"


def _code(text: str, share: float) -> str:
    lines = [f"add_record({said!r})" for said in _sentences(text)[:8]] or ["print('nothing to add')"]
    head = ["```python", "records = list()", "add_record = records.append", ""]
    return "\n".join([*head, *lines, "```"])


def _thinking(text: str, share: float) -> str:
    thought = f"Okay, I need to read this closely. {shorten(' '.join(_sentences(text)), 600)} Let me check again."
    return f"<think>\n{thought}\n" + ("</think>\n" if share < 0.5 else "")


def _empty(text: str, share: float) -> str:
    return _chosen(("", "\n", "  \n\n"), share)


def _refusal(text: str, share: float) -> str:
    return _chosen(_REFUSALS, share)


def _delimiters(text: str, share: float) -> str:
    """Other separators than the ones that were asked for."""
    separator = _chosen((" :: ", "\t", "<||>", "; "), share)
    return text.replace(DONE, "").replace(_mark(text), separator).strip() or _prose(text, share)


def _mark(text: str) -> str:
    """Return the mark between the fields of a reply."""
    return FIELD if FIELD in text else BAR


def _broken_json(text: str, share: float) -> str:
    """Closing brackets are missing, keys are in single quotes, or a value's quotes are not escaped."""
    if share < 0.4:
        return text.rstrip("]} \n")
    data = json.loads(text)
    if share < 0.7:
        return repr(data)
    return re.sub(r'":\s*("|\[|\{|[\d\-tfn])', r'": as "stated" \1', text, count=1)


def _translated_keys(text: str, share: float) -> str:
    return json.dumps(_renamed(json.loads(text)), ensure_ascii=False)


def _translated_kinds(text: str, share: float) -> str:
    lines = text.replace(DONE, "").strip().splitlines()
    if not lines:
        return "El texto no menciona ninguna entidad."
    words = {"entity": "entidad", "title": "título", "summary": "resumen", "finding": "hallazgo"}
    split = [line.partition(_mark(text)) for line in lines]
    return "\n".join([*(f"{words.get(kind, 'nota')}{sep}{rest}" for kind, sep, rest in split), "<|COMPLETO|>"])


def _renamed(value: Any) -> Any:
    """Return a value with every key renamed, as by a model that translates them."""
    if isinstance(value, dict):
        return {f"{key}_es": _renamed(inner) for key, inner in value.items()}
    return [_renamed(item) for item in value] if isinstance(value, list) else value


def _sentences(text: str) -> list[str]:
    """Return the sentences that a reply's records hold, without any markup."""
    found = _strings(json.loads(text)) if _is_json(text) else re.split(re.escape(_mark(text)) + r"|\n", text)
    clean = (one_line(_MARKUP.sub(" ", said)) for said in found)
    return [said for said in clean if len(said) > _SENTENCE_CHARS]


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _strings(inner)


def _chosen(options: tuple[str, ...], share: float) -> str:
    return options[int(share * len(options))]
