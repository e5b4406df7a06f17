"""A community's report: title, summary and findings, put together from its records."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hirag_dist.core.prompts.templates import BAR, DONE
from hirag_dist.core.text.normalize import name_key, shorten
from hirag_dist.llm.rule_based.requests import ParsedRequest, safe

_RECORD = re.compile(r"^\s*\[?([ERC]\d+)\]?[.:)]?\s+(.*)$")
_NAMED = re.compile(r"^(.*?)(?: \([^()]{0,80}\))?(?:: (.*))?$")
_PAIR = re.compile(r"^(.*?) (?:—|–|->|--|→|-) (.*?)(?: \([^()]{0,80}\))?(?:: (.*))?$")
_SHOWN = re.compile(r"^(E\d+)-(E\d+)(?:: (.*))?$")
_SENTENCE = re.compile(r"(?<=[.!?。！？])\s+")
_N_FINDINGS = 6


@dataclass(frozen=True, slots=True)
class _Line:
    """A record of a community: an entity, a relation with the names of both ends, or the report of a part."""

    ref: str
    names: tuple[str, ...]
    text: str


class _Finding(NamedTuple):
    summary: str
    explanation: str
    references: list[str]


def report(ask: ParsedRequest) -> str:
    """Return the reply to report."""
    entities = [_entity(*one) for one in _lines(ask.between("entities"))]
    shown = {line.ref: line for line in entities}
    relations = [_relation(*one, shown) for one in _lines(ask.between("relations"))]
    below = [_entity(*one) for one in _lines(ask.between("reports"))]
    ties = Counter(name_key(name) for line in relations for name in line.names)
    ranked = sorted(entities, key=lambda line: -ties[name_key(line.names[0])])
    main = ranked[:3] or below[:3] or [line for line in relations[:2] if line.names]
    title = safe(" · ".join(shorten(line.names[0], 60) for line in main) or "unknown", 200)
    told = [_sentence(line.text) for line in [*main, *ranked[3:6], *below[:3], *relations[:3]] if line.text]
    names = ", ".join(line.names[0] for line in ranked[:12])
    summary = safe(" ".join(list(dict.fromkeys(told))[:5]) or names or "unknown", 900)
    findings = _findings(ranked, relations, below)
    if ask.form is not None:
        found = [one._asdict() for one in findings]
        return json.dumps({"title": title, "summary": summary, "findings": found}, ensure_ascii=False)
    lines = [BAR.join(("finding", one.summary, one.explanation, " ".join(one.references))) for one in findings]
    return "\n".join([f"title{BAR}{title}", f"summary{BAR}{summary}", *lines, DONE])


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
    name, text = match.groups() if match else (rest, "")
    return _Line(ref, (safe(name, 120),), safe(text or "", 600))


def _relation(ref: str, rest: str, shown: Mapping[str, _Line]) -> _Line:
    """Return a relation; one without a text of its own has that of its first entity."""
    match = _SHOWN.match(rest) or _PAIR.match(rest)
    if match is None:
        return _Line(ref, (), safe(rest, 400))
    ends = [shown[end] if end in shown else _Line(end, (safe(end, 120),), "") for end in match.groups()[:2]]
    told = match.group(3) or next((end.text for end in ends if end.text), "")
    return _Line(ref, (ends[0].names[0], ends[1].names[0]), safe(told, 400))


def _sentence(text: str) -> str:
    cut = shorten(_SENTENCE.split(text.strip(), maxsplit=1)[0], 260)
    return cut if cut.endswith((".", "!", "?", "…", "。", "！", "？")) else f"{cut}."


def _findings(ranked: Sequence[_Line], relations: Sequence[_Line], below: Sequence[_Line]) -> list[_Finding]:
    """Return a finding for each leading entity with its relations, then for sub-communities; at least two."""
    findings: list[_Finding] = []
    used: set[str] = set()
    for line in [*ranked[:8], *below[:4]]:
        own = name_key(line.names[0])
        mine = [one for one in relations if one.ref not in used and own in map(name_key, one.names)][:3]
        texts = list(dict.fromkeys(_sentence(one.text) for one in [line, *mine] if one.text))
        if texts and len(findings) < _N_FINDINGS:
            used.update(one.ref for one in mine)
            others = dict.fromkeys(name for one in mine for name in one.names if name_key(name) != own)
            about = ", ".join(others) or shorten(texts[0], 120)
            refs = [line.ref, *(one.ref for one in mine)]
            findings.append(_Finding(safe(f"{line.names[0]}: {about}", 240), safe(" ".join(texts), 800), refs))
    for line in [*ranked, *relations, *below]:
        if len(findings) > 1:
            break
        summary = " — ".join(line.names) or shorten(line.text, 120)
        findings.append(_Finding(safe(summary, 240), line.text or summary, [line.ref]))
    return findings
