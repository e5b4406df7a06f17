"""Summary entities of a cluster, named by what its members share in their names and descriptions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from hirag_dist.core.text.normalize import name_key, shorten
from hirag_dist.llm.rule_based.entity_types import TypeWords, listed_types
from hirag_dist.llm.rule_based.language import UNSPACED
from hirag_dist.llm.rule_based.records import SummaryLine, safe, safe_name, write_summaries
from hirag_dist.llm.rule_based.requests import ParsedRequest
from hirag_dist.llm.rule_based.topics import Phrases, Topic, find_themes, phrases_of

_MEMBER = re.compile(r"^(\d+)\. (.*?) \(([^()]{0,80})\): ?(.*)$")
_READ = 400  # characters of a description that are compared
_MANY = {"location": "places", "organization": "organizations", "event": "events"}


@dataclass(frozen=True, slots=True)
class SummaryMember:
    """One member of a cluster as the prompt shows it, with the words and phrases of its name and description."""

    number: int
    name: str
    kind: str
    text: str
    named: Phrases
    told: Phrases


def summarise(ask: ParsedRequest) -> str:
    """Return the reply to summarise."""
    members = [_member(line) for line in ask.between("members").split("\n")]
    present = [member for member in members if member is not None]
    if not present:
        kind = TypeWords(listed_types(ask.system)).word("concept")
        return write_summaries([SummaryLine("unknown", kind, "", [])], ask.form)
    words = TypeWords(listed_types(ask.system))
    themes = find_themes([(member.named, member.told) for member in present])
    taken = {name_key(member.name) for member in present}
    found: list[SummaryLine] = []
    for theme in themes:
        covered = [present[place] for place in theme.members]
        kind = words.word(_vote(covered))
        name = _name(theme, covered, taken)
        taken.add(name_key(name))
        found.append(SummaryLine(name, kind, _description(name, covered), sorted(member.number for member in covered)))
    return write_summaries(found, ask.form)


def _member(line: str) -> SummaryMember | None:
    match = _MEMBER.match(line)
    if match is None:
        return None
    number, name, kind, text = match.groups()
    return SummaryMember(int(number), name, kind, text, phrases_of(name), phrases_of(text[:_READ]))


def _vote(members: Sequence[SummaryMember]) -> str:
    counts = Counter(member.kind.lower() for member in members)
    return min(counts, key=lambda kind: (-counts[kind], kind))


def _name(theme: Topic, members: Sequence[SummaryMember], taken: set[str]) -> str:
    """Return a name from what the members share that none of them has."""
    kind = _vote(members)
    shown = [_shown(word, members) for word in theme.words]
    first = shown[0] if shown else ""
    both = [_joined(first, second) for second in shown[1:]]
    plural = [f"{first} {_MANY[kind]}"] if first and first.isascii() and kind in _MANY else []
    names = sorted((member.name for member in members), key=lambda name: (len(name), name))
    pair = [_joined(names[0], names[1])] if len(names) > 1 else []
    for candidate in [*plural, *both, first, *pair, f"{names[0]} ({kind})", names[0]]:
        name = safe_name(candidate[:1].upper() + candidate[1:])
        if name and name_key(name) not in taken:
            return name
    return safe_name(names[0]) or "unknown"


def _shown(word: str, members: Sequence[SummaryMember]) -> str:
    """Return a phrase as the members write it most."""
    forms = Counter(where[word] for member in members for where in (member.named, member.told) if word in where)
    return min(forms, key=lambda form: (-forms[form], form)) if forms else word


def _joined(one: str, other: str) -> str:
    return f"{one}·{other}" if UNSPACED.search(one + other) else f"{one} and {other}"


def _description(name: str, members: Sequence[SummaryMember]) -> str:
    listed = ", ".join(member.name for member in members[:8])
    lead = f"{name}: {listed}{', …' if len(members) > 8 else ''}."
    told = [shorten(member.text.partition(". ")[0], 160) for member in members[:12] if member.text]
    seen: list[str] = []
    for text in told:
        if text not in seen and sum(map(len, seen)) < 320:
            seen.append(text)
    return safe(f"{lead} {' '.join(text if text.endswith(('.', '…', '。')) else text + '.' for text in seen)}", 700)
