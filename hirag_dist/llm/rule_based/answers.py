"""Answers put together from the sentences of the context that match the question best, each with its citation."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from hirag_dist.llm.rule_based.language import UNSPACED, content_words, stem
from hirag_dist.llm.rule_based.requests import ParsedRequest
from hirag_dist.llm.rule_based.sentences import GAP, clean, sentences
from hirag_dist.llm.rule_based.word_lists import word_set

NOT_KNOWN = "I do not know."

_RECORD = re.compile(r"^\[([ERKCS]\d+)\] ?(.*)$", re.MULTILINE)
_ASKING = frozenset(
    stem(word)
    for word in word_set(
        "describe explain discuss tell give name list compare summarise summarize mention text passage author main",
        "key overall role kind type way example document context answer question according provide information",
    )
)
_SPEAKING = frozenset(
    stem(word) for word in word_set("say says said accord according happen happened claim state long big")
)
_WEIGHT = {"S": 1.0, "R": 0.9, "K": 0.9, "E": 0.85, "C": 0.7}
_ORDER = "SRKEC"  # a sentence that several records hold is cited from the first of these
_MIN_COVERED = 0.34
_MAX_SENTENCES = 5
_MIN_SHARE = 0.5  # of the weight of the question's words, in one sentence
_MIN_HITS = 3  # or words of a long question
_NAME = re.compile(r"(?<=\S\s)[A-ZÀ-Þ][\w’'-]*")
_NAME_WEIGHT = 1.5


@dataclass(frozen=True, slots=True)
class RankedSentence:
    """A sentence of a context.

    Attributes:
        ref: of the record that it is from.
        hits: the wanted words that it holds.
    """

    ref: str
    text: str
    hits: frozenset[str]


def answer(ask: ParsedRequest) -> str:
    """Return the reply to answer: cited sentences, or that the context does not hold it."""
    chosen = answer_sentences(ask.between("context"), ask.between("question"))
    return " ".join(f"{unit.text} [{unit.ref}]" for unit in chosen) or NOT_KNOWN


def answer_sentences(context: str, question: str) -> list[RankedSentence]:
    """Return the whole sentences that answer a question, none where no single one holds enough of its words.

    A word that the question spells with a capital, but for its first, weighs more: it names what is asked about. The
    title of a document counts for each of its sentences: a text seldom names its author or its subject again.
    """
    words = wanted_words(question)
    wanted = [word for word in words if word not in _SPEAKING] or words
    titles = _titles(context)
    named = {ref: frozenset(wanted).intersection(content_words(title)) for ref, title in titles.items()}
    headings = tuple(filter(None, titles.values()))
    units = [
        replace(unit, text=unit.text.lstrip("*"), hits=unit.hits | named.get(unit.ref, frozenset()))
        for unit in _units(context, wanted)
        if _is_whole(unit.text) and not unit.text.startswith(headings)
    ]
    if not units:
        return []
    names = frozenset(content_words(" ".join(_NAME.findall(question))))
    rarity = {
        word: weight * (_NAME_WEIGHT if word in names else 1.0) for word, weight in _rarity(wanted, units).items()
    }
    total = sum(rarity.values())
    best = max(sum(rarity[word] for word in unit.hits) for unit in units)
    most = max(len(unit.hits) for unit in units)
    enough = most >= _MIN_HITS or (best >= _MIN_SHARE * total and most >= min(2, len(wanted)))
    return _choose(units, rarity) if enough else []


def _titles(context: str) -> dict[str, str]:
    """Return the title of the document of each source, by its reference."""
    marks = (mark for mark in _RECORD.finditer(context) if mark.group(1).startswith("S"))
    return {mark.group(1): mark.group(2).partition(", characters ")[0].strip() for mark in marks}


def wanted_words(question: str) -> list[str]:
    """Return the stems of what a question asks about, without the words that asking takes, where others are left."""
    words = list(dict.fromkeys(content_words(question)))
    return [word for word in words if word not in _ASKING] or words


def coverage(hits: Collection[str], wanted: Sequence[str]) -> float:
    """Return the share of the wanted words that are there."""
    return len(set(hits).intersection(wanted)) / len(wanted) if wanted else 0.0


def best_sentences(context: str, wanted: Sequence[str]) -> list[RankedSentence]:
    """Return the sentences that match best, none where they hold too few of the wanted words between them."""
    units = _units(context, wanted) if wanted else []
    if not units:
        return []
    rarity = _rarity(wanted, units)
    covered = sum(rarity[word] for word in wanted if any(word in unit.hits for unit in units))
    if covered < _MIN_COVERED * sum(rarity.values()):
        return []
    return _choose(units, rarity)


def _units(context: str, wanted: Sequence[str]) -> list[RankedSentence]:
    """Return the sentences of the context that hold a wanted word, with the record each belongs to."""
    pattern = _pattern(wanted)
    goal = frozenset(wanted)
    pairs = [word for word in wanted if UNSPACED.match(word)]
    marks = list(_RECORD.finditer(context))
    units: list[RankedSentence] = []
    seen: set[str] = set()
    ends = [*(mark.start() for mark in marks[1:]), len(context)]
    for mark, end in sorted(zip(marks, ends, strict=False), key=lambda item: _ORDER.index(item[0].group(1)[0])):
        ref = mark.group(1)
        body = context[mark.end() + 1 : end].partition("\n## ")[0]
        text = body if ref[0] in "SC" and body.strip() else f"{mark.group(2)}\n{body}"
        if ref[0] in "ERK":
            head, colon, told = mark.group(2).partition(": ")
            text = f"{told}\n{body}" if colon and told.strip() else text
            named = frozenset(content_words(head)) & goal
        else:
            named = frozenset()
        if not pattern.search(text.lower()) and not named:
            continue
        for sentence in sentences(clean(text) if "\\" in text or "<" in text else text):
            low = sentence.lower()
            hits = frozenset(goal.intersection(map(stem, pattern.findall(low)))) | named
            hits |= frozenset(pair for pair in pairs if pair in low)
            if not hits or sentence in seen or not _reads(sentence):
                continue
            seen.add(sentence)
            units.append(RankedSentence(ref, sentence.replace("[", "(").replace("]", ")"), hits))
    return units


def _pattern(wanted: Sequence[str]) -> re.Pattern[str]:
    """Return a pattern of words that may have a wanted stem, or of the wanted pairs of an unspaced script."""
    parts = [re.escape(word[: max(len(word) - 1, 2)]) for word in wanted]
    beginnings = "|".join(sorted(parts, key=lambda part: (-len(part), part)))
    edge = "" if UNSPACED.search(beginnings) else r"\b"
    return re.compile(rf"{edge}(?:{beginnings})[\w’']*")


def _reads(text: str) -> bool:
    if UNSPACED.search(text):
        return 4 < len(text) <= 700
    # A heading or a list of names says what a text is about, not what holds: it does not end as a sentence does.
    return 12 <= len(text) <= 700 and text.rstrip("\"'”’»").endswith((".", "!", "?", ";"))


def _is_whole(text: str) -> bool:
    """Return whether a sentence was not cut: records of the context may have been shortened."""
    bare = text.lstrip("\"'“‘«(*")
    return not text.startswith(GAP) and not text.endswith(GAP) and not bare[:1].islower()


def _rarity(wanted: Sequence[str], units: Sequence[RankedSentence]) -> dict[str, float]:
    """Return each wanted word's weight: the fewer sentences hold it, the more; an absent one as much as the rarest."""
    counts = {word: sum(word in unit.hits for unit in units) for word in wanted}
    total = len(units) + 1
    return {word: 1.0 + 2.0 * (1.0 - counts[word] / total) ** 2 for word in wanted}


def _choose(units: Sequence[RankedSentence], rarity: dict[str, float]) -> list[RankedSentence]:
    """Take sentences one by one, each for what it adds to those before."""
    base = [
        _WEIGHT[unit.ref[0]] * sum(rarity[word] for word in sorted(unit.hits)) * (1.0 if len(unit.text) < 400 else 0.7)
        for unit in units
    ]
    best = max(base)
    left = [
        place
        for place in sorted(range(len(units)), key=lambda place: (-base[place], place))
        if base[place] > 0.3 * best
    ][:60]
    bags = {place: frozenset(word for word in content_words(units[place].text)) for place in left}
    chosen: list[int] = []
    held: frozenset[str] = frozenset()
    while left and len(chosen) < _MAX_SENTENCES:
        gains = [(base[place] * (1.0 if units[place].hits - held or not chosen else 0.6), -place) for place in left]
        gain, negative = max(gains)
        if len(chosen) >= 2 and gain < 0.5 * best:
            break
        place = -negative
        chosen.append(place)
        held |= units[place].hits
        left = [
            other
            for other in left
            if other != place and len(bags[other] & bags[place]) < 0.6 * max(min(len(bags[other]), len(bags[place])), 1)
        ]
    return [units[place] for place in chosen]
