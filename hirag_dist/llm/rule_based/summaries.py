"""Summary entities of a cluster, named by the words that its members share; two or three where they share little."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hirag_dist.core.text.normalize import name_key, shorten
from hirag_dist.llm.rule_based.language import (
    DATES,
    DEMONYMS,
    GENERIC,
    HAN_RUN,
    NOUN,
    STOP,
    STRUCTURE,
    UNSPACED,
    VERB,
    WORD,
    singular,
    word_class,
)
from hirag_dist.llm.rule_based.requests import (
    ParsedRequest,
    SummaryLine,
    TypeWords,
    listed_types,
    safe,
    safe_name,
    write_summaries,
)

_MEMBER = re.compile(r"^(\d+)\. (.*?) \(([^()]{0,80})\): ?(.*)$")
_NAME = re.compile(
    r"[A-ZÀ-ÞА-Я][\w’'-]+(?: (?:of the |of |de |du |di |von |van )?[A-ZÀ-ÞА-Я][\w’'-]+){1,3}|\b[A-ZÀ-Þ]{2,6}s?\b"
)
_READ = 400  # characters of a description that are compared
_ENOUGH = 0.6  # share of the members that one word must hold to stand for all
_RANKED = 60
_MANY = {"location": "places", "organization": "organizations", "event": "events"}


@dataclass(frozen=True, slots=True)
class _Member:
    """A member of a cluster as the prompt shows it; `words`: compared form → shown form, `named` those of its name."""

    number: int
    name: str
    kind: str
    text: str
    words: Mapping[str, str]
    named: frozenset[str]


def summarise(ask: ParsedRequest) -> str:
    """Return the reply to summarise."""
    types = TypeWords(listed_types(ask.system))
    members = [member for line in ask.between("members").split("\n") if (member := _member(line)) is not None]
    if not members:
        return write_summaries([SummaryLine("unknown", types.word("concept"), "", [])], ask.form)
    taken = {name_key(member.name) for member in members}
    found: list[SummaryLine] = []
    for words, group in _themes(members):
        kind = Counter(sorted(member.kind.lower() for member in group)).most_common(1)[0][0]
        name = _name(words, group, kind, taken)
        taken.add(name_key(name))
        numbers = sorted(member.number for member in group)
        found.append(SummaryLine(name, types.word(kind), _description(name, group), numbers))
    return write_summaries(found, ask.form)


def _member(line: str) -> _Member | None:
    match = _MEMBER.match(line)
    if match is None:
        return None
    number, name, kind, text = match.groups()
    named = _words_of(name)
    return _Member(int(number), name, kind, text, _words_of(text[:_READ]) | named, frozenset(named))


def _words_of(text: str) -> dict[str, str]:
    """Return the names, nouns and pairs of nouns of a text: how they are compared → how they are written."""
    names = (name for name in _NAME.findall(text) if word_class(name.split()[0].lower()) != STOP)
    found = {name.lower(): name for name in names}
    previous = ""
    for word in WORD.findall(text):
        low = word.lower().removesuffix("'s").removesuffix("’s")
        kind = word_class(low)
        if kind in (STOP, VERB) or len(low) < 3 or low in DATES or low in STRUCTURE:
            previous = ""
            continue
        plain = singular(low)
        shown = word[: len(low)] if word[0].isupper() else plain
        found.setdefault(plain, shown)
        if previous and kind == NOUN:
            found.setdefault(f"{previous} {plain}".lower(), f"{previous} {shown}")
        previous = shown if len(word) == len(low) else ""
    if UNSPACED.search(text):
        runs = HAN_RUN.findall(text)
        grams = [run[at : at + size] for run in runs for size in (4, 3, 2) for at in range(len(run) - size + 1)]
        found = {word: shown for word, shown in found.items() if not UNSPACED.search(word)} | {g: g for g in grams}
    return found


def _themes(members: Sequence[_Member]) -> list[tuple[list[str], list[_Member]]]:
    """Return one theme, or up to three, with the members that each covers: words that they share, best first."""
    scores = _scores(members)
    ranked = sorted(scores, key=lambda word: (-scores[word], word))[:_RANKED]
    if not ranked:
        return [([], list(members))]
    held = {at for at, member in enumerate(members) if ranked[0] in member.words}
    centres = [ranked[0]]
    if len(held) < _ENOUGH * len(members) and len(members) > 5:
        for word in ranked[1:]:
            fresh = {at for at, member in enumerate(members) if word in member.words} - held
            if len(fresh) >= max(2, len(members) // 6) and len(centres) < 3:
                centres.append(word)
                held |= fresh
    groups: dict[str, list[_Member]] = {centre: [] for centre in centres}
    for member in members:
        groups[max(centres, key=lambda word: 2 * (word in member.named) + (word in member.words))].append(member)
    return [(_shared(centre, ranked, group, scores), group) for centre, group in groups.items() if group]


def _scores(members: Sequence[_Member]) -> dict[str, float]:
    """Return how much each word that two members share says about them."""
    counts = Counter(word for member in members for word in member.words)
    named = Counter(word for member in members for word in member.named)
    scores = {}
    for word, count in counts.items():
        if count > 1:
            long = " " in word or (UNSPACED.match(word) and len(word) > 2)
            plain = word in GENERIC or word in DEMONYMS or word_class(word) != NOUN
            scores[word] = (count + 1.2 * named[word]) * (1.5 if long else 0.3 if plain else 1.0)
    return scores


def _shared(centre: str, ranked: Sequence[str], group: Sequence[_Member], scores: Mapping[str, float]) -> list[str]:
    """Return the words that most of a group share, its centre first, none a part of another, as they are shown."""
    counts = {word: sum(word in member.words for member in group) for word in ranked}
    chosen = [centre]
    for word in sorted(ranked, key=lambda word: (-counts[word] * scores[word], word)):
        plain = word in DEMONYMS or (" " not in word and word_class(word) != NOUN)
        if counts[word] > 1 and not plain and not any(word in other or other in word for other in chosen):
            chosen.append(word)
    return [
        Counter(sorted(member.words[word] for member in group if word in member.words)).most_common(1)[0][0]
        if counts[word]
        else word
        for word in chosen[:4]
    ]


def _name(words: Sequence[str], members: Sequence[_Member], kind: str, taken: set[str]) -> str:
    """Return a name from the words that the members share that none of them has."""
    names = sorted((member.name for member in members), key=lambda name: (len(name), name))
    first = words[0] if words else ""
    plural = [f"{first} {_MANY[kind]}"] if first and first.isascii() and kind in _MANY else []
    pairs = [_joined(first, second) for second in words[1:]]
    members_joined = [_joined(*names[:2])] if len(names) > 1 else []
    for candidate in [*plural, *pairs, first, *members_joined, f"{names[0]} ({kind})", names[0]]:
        name = safe_name(candidate[:1].upper() + candidate[1:])
        if name and name_key(name) not in taken:
            return name
    return safe_name(names[0]) or "unknown"


def _joined(one: str, other: str) -> str:
    return f"{one}·{other}" if UNSPACED.search(one + other) else f"{one} and {other}"


def _description(name: str, members: Sequence[_Member]) -> str:
    listed = ", ".join(member.name for member in members[:8])
    lead = f"{name}: {listed}{', …' if len(members) > 8 else ''}."
    told: list[str] = []
    for text in (shorten(member.text.partition(". ")[0], 160) for member in members[:12] if member.text):
        if text not in told and sum(map(len, told)) < 320:
            told.append(text)
    return safe(f"{lead} {' '.join(text if text.endswith(('.', '…', '。')) else text + '.' for text in told)}", 700)
