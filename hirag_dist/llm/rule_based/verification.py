"""Check of the names found in a chunk: those that stand in the text are kept, with the sentence about each in short."""

from __future__ import annotations

import json
import re

from hirag_dist.core.entities.verification import listed_pairs
from hirag_dist.core.prompts.templates import BAR, DONE
from hirag_dist.core.text.normalize import name_key, shorten
from hirag_dist.llm.rule_based.entity_types import TypeWords, listed_types
from hirag_dist.llm.rule_based.excerpts import about
from hirag_dist.llm.rule_based.extraction import candidates
from hirag_dist.llm.rule_based.language import UNSPACED
from hirag_dist.llm.rule_based.requests import ParsedRequest
from hirag_dist.llm.rule_based.sentences import clean, sentences

_CANDIDATE = re.compile(r"^(\d+)\. (.+)$")
_WORDS, _CHARS = 8, 20  # of a description; characters in writing without spaces


def verify(ask: ParsedRequest) -> str:
    """Return the reply to verify-graph."""
    lines = sentences(clean(ask.between("text")))
    known = {name_key(one.name): one for one in candidates(lines)}
    words = TypeWords(listed_types(ask.system))
    lowered = [line.casefold() for line in lines]
    kept: dict[int, tuple[str, str]] = {}
    at: dict[int, set[int]] = {}  # candidate → sentences
    for line in ask.between("candidates").split("\n"):
        match = _CANDIDATE.match(line)
        if match is None:
            continue
        name = match[2]
        one = known.get(name_key(name))
        places = [place for place, _ in one.places] if one else []
        places = places or [at for at, text in enumerate(lowered) if name.casefold() in text]
        if places:
            at[int(match[1])] = set(places)
            kept[int(match[1])] = (words.word(one.kind if one else "concept"), _short(about(name, places, lines)))
    pairs = [(one + 1, other + 1) for one, other in listed_pairs(ask.between("pairs"))]
    unrelated = " ".join(
        f"{one}-{other}" for one, other in pairs if one in kept and other in kept and _apart(at[one], at[other])
    )
    if ask.form is not None:
        entities = [{"id": number, "type": kind, "text": text} for number, (kind, text) in kept.items()]
        return json.dumps({"entities": entities, "unrelated": unrelated}, ensure_ascii=False)
    records = [BAR.join((str(number), kind, text)) for number, (kind, text) in kept.items()]
    if unrelated:
        records.append(BAR.join(("unrelated", unrelated)))
    return "\n".join([*records, DONE])


def _apart(one: set[int], other: set[int]) -> bool:
    """Return whether no sentence of the one is next to a sentence of the other."""
    return not any(place + step in other for place in one for step in (-1, 0, 1))


def _short(text: str) -> str:
    if UNSPACED.search(text):
        return shorten(text, _CHARS)
    found = text.split(" ")
    return text if len(found) <= _WORDS else " ".join(found[:_WORDS]) + "…"
