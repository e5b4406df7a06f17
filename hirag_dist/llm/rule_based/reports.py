"""A community's report: title, summary, rating and findings, put together from its records."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from hirag_dist.core.text.normalize import name_key, shorten
from hirag_dist.llm.rule_based.language import is_unspaced
from hirag_dist.llm.rule_based.records import safe
from hirag_dist.llm.rule_based.requests import ParsedRequest

_RECORD = re.compile(r"^\s*\[?([ERC]\d+)\]?[.:)]?\s+(.*)$")
_NAMED = re.compile(r"^(.*?)(?: \(([^()]{0,80})\))?(?:: (.*))?$")
_PAIR = re.compile(r"^(.*?) (?:—|–|->|--|→|-) (.*?)(?: \([^()]{0,80}\))?: (.*)$")
_WEIGHT = re.compile(r" \(weight [\d.e+]+\)$")
_N_FINDINGS = 6


@dataclass(frozen=True, slots=True)
class _Line:
    ref: str
    names: tuple[str, ...]
    kind: str
    text: str


def report(ask: ParsedRequest) -> str:
    """Return the reply to report: a JSON object, whatever the form."""
    entities = [_entity(*one) for one in _lines(ask.between("entities"))]
    relations = [_relation(*one) for one in _lines(ask.between("relations"))]
    below = [_entity(*one) for one in _lines(ask.between("reports"))]
    ties = Counter(name_key(name) for line in relations for name in line.names)
    ranked = sorted(entities, key=lambda line: (-ties[name_key(line.names[0])], entities.index(line)))
    main = ranked[:3] or below[:3] or relations[:2]
    title = " · ".join(shorten(line.names[0], 60) for line in main) or "unknown"
    if len(main) > 1 and title.isascii() is False and not is_unspaced(title):
        title = ", ".join(shorten(line.names[0], 60) for line in main)
    findings = _findings(ranked, relations, below)
    size = len(entities) + 4 * len(below)
    density = len(relations) / max(len(entities), 1)
    rating = round(min(1.0 + min(size, 60) ** 0.5 * 0.8 + min(density, 3.0), 10.0), 1)
    data = {
        "title": safe(title, 200),
        "summary": safe(_summary(main, ranked, relations, below), 900),
        "rating": rating,
        "rating_explanation": f"{len(entities)} entities, {len(relations)} relations, {len(below)} sub-communities.",
        "findings": findings,
    }
    return json.dumps(data, ensure_ascii=False)


def _lines(text: str) -> list[tuple[str, str]]:
    """Return (reference, rest) of each record; lines without a reference belong to the record above."""
    found: list[tuple[str, str]] = []
    for line in text.split("\n"):
        match = _RECORD.match(line)
        if match:
            found.append((match.group(1), match.group(2)))
        elif found and line.strip():
            ref, before = found[-1]
            found[-1] = (ref, f"{before} {line.strip()}" if len(before) < 1200 else before)
    return found


def _entity(ref: str, rest: str) -> _Line:
    match = _NAMED.match(rest)
    name, kind, text = match.groups() if match else (rest, "", "")
    return _Line(ref, (safe(name, 120),), kind or "", safe(text or "", 600))


def _relation(ref: str, rest: str) -> _Line:
    rest = _WEIGHT.sub("", rest)
    match = _PAIR.match(rest)
    if match is None:
        return _Line(ref, (), "", safe(rest, 400))
    return _Line(ref, (safe(match.group(1), 120), safe(match.group(2), 120)), "", safe(match.group(3), 400))


def _summary(main: Sequence[_Line], ranked: Sequence[_Line], relations: Sequence[_Line], below: Sequence[_Line]) -> str:
    parts = [_sentence(line.text) for line in [*main, *ranked[3:6], *below[:3]] if line.text]
    distinct = list(dict.fromkeys(parts))
    if not distinct:
        distinct = [_sentence(line.text) for line in relations[:3] if line.text]
    if not distinct:
        distinct = [", ".join(line.names[0] for line in ranked[:12] if line.names) or "unknown"]
    return " ".join(distinct[:5])


def _sentence(text: str) -> str:
    first = re.split(r"(?<=[.!?。！？])\s+", text.strip(), maxsplit=1)[0]
    cut = shorten(first, 260)
    return cut if cut.endswith((".", "!", "?", "…", "。", "！", "？")) else f"{cut}."


def _findings(ranked: Sequence[_Line], relations: Sequence[_Line], below: Sequence[_Line]) -> list[dict[str, object]]:
    """Return a finding for each leading entity with the relations it is in, then for sub-communities."""
    findings: list[dict[str, object]] = []
    used: set[str] = set()
    seen: set[str] = set()
    by_name: dict[str, list[_Line]] = {}
    for line in relations:
        for name in line.names:
            by_name.setdefault(name_key(name), []).append(line)
    for line in [*ranked[:8], *below[:4]]:
        mine = [one for one in by_name.get(name_key(line.names[0]), ()) if one.ref not in used][:3]
        used.update(one.ref for one in mine)
        texts = list(dict.fromkeys(_sentence(one.text) for one in [line, *mine] if one.text))
        fresh = [text for text in texts if text not in seen]
        if not fresh or len(findings) == _N_FINDINGS:
            continue
        seen.update(fresh)
        partners = [name for one in mine for name in one.names if name_key(name) != name_key(line.names[0])]
        others = ", ".join(dict.fromkeys(partners))
        findings.append(
            {
                "summary": safe(
                    f"{line.names[0]}: {others}" if others else f"{line.names[0]}: {shorten(fresh[0], 120)}", 240
                ),
                "explanation": safe(" ".join(fresh), 800),
                "references": [line.ref, *(one.ref for one in mine)],
            }
        )
    spare = [*ranked, *relations, *below]
    while len(findings) < 2 and spare:
        line = spare.pop(0)
        summary = " — ".join(line.names) or shorten(line.text, 120)
        findings.append({"summary": safe(summary, 240), "explanation": line.text or summary, "references": [line.ref]})
    return findings
