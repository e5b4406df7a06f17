"""Memory of the endpoint: counts of calls by kind, and requests answered before."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(slots=True)
class CallCounts:
    """Counts of one kind of call.

    Attributes:
        calls: answered with 200.
        input_tokens: of those, cached ones too.
        rate_limited: got a 429, in a storm or not.
        errors: got another 4xx or a 5xx.
        abandoned: were done, and the caller had hung up; `abandoned_tokens`, in and out, are in no other count.
        repeats: of the answered, those whose request had been answered before: paid twice.
        repeats_of_abandoned: not those, but whose reply had been abandoned: it was in flight when the caller went.
        repeats_of_faulty: neither, but whose reply had been malformed or truncated.
        texts: embedded texts of answered calls; `repeated_texts…` as for calls.
        faults: how many were given, by kind.
        most_in_flight: the highest that in_flight was.
    """

    calls: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    rate_limited: int = 0
    errors: int = 0
    abandoned: int = 0
    abandoned_tokens: int = 0
    repeats: int = 0
    repeats_of_abandoned: int = 0
    repeats_of_faulty: int = 0
    texts: int = 0
    repeated_texts: int = 0
    repeated_texts_of_abandoned: int = 0
    in_flight: int = 0
    most_in_flight: int = 0
    faults: dict[str, int] = field(default_factory=dict)

    def fault(self, kind: str) -> None:
        """Count a fault that was given."""
        self.faults[kind] = self.faults.get(kind, 0) + 1


def total(counts: Iterable[CallCounts]) -> dict[str, Any]:
    """Return the sums of all counts; of `most_in_flight` the largest."""
    every = [asdict(each) for each in counts]
    faults = {kind: 0 for each in every for kind in each["faults"]}
    for each in every:
        for kind, number in each.pop("faults").items():
            faults[kind] += number
    sums = {name: sum(each[name] for each in every) for name in every[0]} if every else {}
    sums["most_in_flight"] = max((each["most_in_flight"] for each in every), default=0)
    return sums | {"faults": faults}


_ANSWERED, _ABANDONED, _FAULTY = 1, 2, 4  # bits, not flags of `enum`: they are set for every text of every call


@dataclass(slots=True)
class SeenRequests:
    """History of one request: how often it was let in, and in which ways it ended."""

    attempts: int = 0
    ended: int = 0


class ReplyMemory:
    """Requests by 16-byte hash. It grows with the number of different requests, not with calls."""

    def __init__(self) -> None:
        self._requests: dict[bytes, SeenRequests] = {}
        self._texts: dict[bytes, int] = {}
        self._faults: dict[bytes, int] = {}

    def faults(self, origin: bytes) -> int:
        """Return how many faults were given to what a conversation began with."""
        return self._faults.get(origin, 0)

    def fault(self, origin: bytes) -> None:
        """Remember that one was given."""
        self._faults[origin] = self._faults.get(origin, 0) + 1

    def past(self, key: bytes) -> SeenRequests:
        """Return the history of a request; a new one gets an empty history."""
        found = self._requests.get(key)
        if found is None:
            found = self._requests[key] = SeenRequests()
        return found

    def answered(self, past: SeenRequests, texts: Sequence[bytes], counts: CallCounts, faulty: bool = False) -> None:
        """Count an answered call, and whether it or its texts had been answered before."""
        counts.calls += 1
        if past.ended & _ANSWERED:
            counts.repeats += 1
        elif past.ended & _ABANDONED:
            counts.repeats_of_abandoned += 1
        elif past.ended & _FAULTY:
            counts.repeats_of_faulty += 1
        past.ended |= _FAULTY if faulty else _ANSWERED
        counts.texts += len(texts)
        for text in texts:
            ended = self._texts.get(text, 0)
            if ended & _ANSWERED:
                counts.repeated_texts += 1
            elif ended:
                counts.repeated_texts_of_abandoned += 1
            self._texts[text] = ended | _ANSWERED

    def abandoned(self, past: SeenRequests, texts: Sequence[bytes], counts: CallCounts) -> None:
        """Count a call that was done for a caller who had gone."""
        counts.abandoned += 1
        past.ended |= _ABANDONED
        for text in texts:
            self._texts[text] = self._texts.get(text, 0) | _ABANDONED


def digest(raw: bytes) -> bytes:
    """Return the 16-byte hash by which a request or a text is remembered."""
    return hashlib.sha256(raw).digest()[:16]
