"""Answers put together from the sentences of the context that match the question best, each with its citation.

Short answers are picked from the same sentences: a number, a date, yes or no where the question's first words, in
English, ask for one, else a name. A point of a map-reduce answer is a sentence that
matches, and its helpfulness the share of the question's words in it; the final answer is the most helpful points that
say something new. Rules cannot reason over several sentences: for questions that need it this is a floor, not a model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hirag_dist.llm.rule_based.finder import find_entities
from hirag_dist.llm.rule_based.language import GAP, UNSPACED, clean, content_words, sentences, stem, word_set
from hirag_dist.llm.rule_based.requests import ParsedRequest

NOT_KNOWN = "I do not know."

_RECORD = re.compile(r"^\[([ERKCS]\d+)\] ?(.*)$", re.MULTILINE)
_ASKING = frozenset(
    stem(word)
    for word in word_set(
        "describe explain discuss tell give name list compare summarise summarize mention text passage author main",
        "key overall role kind type way example document context answer question according provide information",
        "say says said accord happen happened claim state long big",
    )
)
_WEIGHT = {"S": 1.0, "R": 0.9, "K": 0.9, "E": 0.85, "C": 0.7}  # a repeated sentence is cited from the first of these
_MAX_SENTENCES = 5
_MIN_SHARE = 0.5  # of the weight of the question's words, in one sentence
_MIN_HITS = 3  # or words of a long question
_MIN_COVERED = 0.34  # of the weight of the question's words, in all sentences of a part
_NAME = re.compile(r"(?<=\S\s)[A-ZÀ-Þ][\w’'-]*")
_NAME_WEIGHT = 1.5
_ALIKE = 0.6  # share of the shorter sentence's words
_POINT = re.compile(r"^- \(helpfulness (\d+(?:\.\d+)?)\) (.+?)((?:\[[CS]\d+\])+)\s*$", re.MULTILINE)
_MAX_POINTS = 8
_NUMBER = re.compile(r"[$€£]?\d[\d,.]*\d(?: (?:million|billion|thousand|percent))?%?|\d%?")
_MONTH = r"(?:January|February|March|April|May|June|July|August|September|October|November|December)"
_DAY, _YEAR = r"\d{1,2}(?:st|nd|rd|th)?", r"\b(?:1\d{3}|20\d{2})\b"
_DATE = re.compile(rf"(?:{_DAY} )?{_MONTH}(?: {_DAY}\b)?(?:,? \d{{4}})?|{_YEAR}")
_PICKS: Mapping[re.Pattern[str], re.Pattern[str]] = {  # words of a question → form of its answer
    re.compile(r"\b(?:what|which) year\b", re.IGNORECASE): re.compile(_YEAR),
    re.compile(r"\b(?:when|(?:what|which) (?:date|day|month))\b", re.IGNORECASE): _DATE,
    re.compile(r"\bhow (?:many|much|long|old|far|tall|high|large|big)\b|\bpopulation\b", re.IGNORECASE): _NUMBER,
}
_YES_NO = word_set("is are was were do does did has have had can could will would should may might")
_MIN_HELD = 0.75  # share of the question's words in the sentences from which on it is answered by yes


@dataclass(frozen=True, slots=True)
class _Sentence:
    """A sentence of a context, the reference of its record, and the wanted words that it holds."""

    ref: str
    text: str
    hits: frozenset[str]


def answer(ask: ParsedRequest) -> str:
    """Return the reply to answer: whole sentences with citations, or that no one of them holds enough of the question.

    A word that the question spells with a capital, but for its first, weighs more: it names what is asked about. The
    title of a document counts for each of its sentences: a text seldom names its author or its subject again.
    """
    context, question = ask.between("context"), ask.between("question")
    wanted = _wanted_words(question)
    titles = {
        ref: text.partition(", characters ")[0].strip() for ref, text in _RECORD.findall(context) if ref[0] == "S"
    }
    named = {ref: frozenset(wanted).intersection(content_words(title)) for ref, title in titles.items()}
    headings = tuple(filter(None, titles.values()))
    found = [
        replace(one, text=one.text.lstrip("*"), hits=one.hits | named.get(one.ref, frozenset()))
        for one in _sentences(context, wanted)
        if _is_whole(one.text) and not one.text.startswith(headings)
    ]
    if not found:
        return NOT_KNOWN
    names = frozenset(content_words(" ".join(_NAME.findall(question))))
    rarity = {
        word: weight * (_NAME_WEIGHT if word in names else 1.0) for word, weight in _rarity(wanted, found).items()
    }
    best = max(sum(rarity[word] for word in one.hits) for one in found)
    most = max(len(one.hits) for one in found)
    if most < _MIN_HITS and (best < _MIN_SHARE * sum(rarity.values()) or most < min(2, len(wanted))):
        return NOT_KNOWN
    return " ".join(f"{one.text} [{one.ref}]" for one in _chosen(found, rarity))


def map_answer(ask: ParsedRequest) -> str:
    """Return the reply to map-answer: the sentences that hold most of the question, none where they hold too little."""
    wanted = _wanted_words(ask.between("question"))
    points = [
        {"text": f"{one.text} [{one.ref}]", "helpfulness": round(100 * len(one.hits) / len(wanted))}
        for one in _best(ask.between("context"), wanted)
    ]
    return json.dumps({"points": points}, ensure_ascii=False)


def reduce_answer(ask: ParsedRequest) -> str:
    """Return the reply to reduce-answer: points in their order, without those that repeat one before."""
    said: list[frozenset[str]] = []
    lines: list[str] = []
    for _, text, refs in _POINT.findall(ask.between("context")):
        words = frozenset(content_words(text))
        if len(lines) < _MAX_POINTS and not any(_is_alike(words, other) for other in said):
            said.append(words)
            lines.append(f"{text.strip()} {refs}")
    return " ".join(lines) or NOT_KNOWN


def short_answer(ask: ParsedRequest) -> str:
    """Return the reply to short-answer: a few words of the context, yes or no, or that it is not known."""
    question, context = ask.between("question"), ask.between("context")
    texts = [one.text for one in _best(context, _wanted_words(question))]
    texts = texts or [text.strip() for _, text, _ in _POINT.findall(context)]
    if not texts:
        return NOT_KNOWN.rstrip(".")
    words = frozenset(content_words(question))
    if question.split(maxsplit=1)[0].lower() in _YES_NO and " or " not in question:
        held = words.intersection(content_words(" ".join(texts)))
        return "yes" if len(held) >= _MIN_HELD * len(words) else "no"
    for asked_for, pick in _PICKS.items():
        if asked_for.search(question):
            found = (match[0] for text in texts for match in pick.finditer(text) if match[0] not in question)
            if text := next(found, ""):
                return text
    names = [one for one in find_entities(texts) if not words.issuperset(content_words(one.name))]
    names = [one for one in names if not one.name[0].islower()] or names
    best = min(names, key=lambda one: (-sum(1 / (1 + row) for row, _ in one.places), one.places), default=None)
    return best.name if best else NOT_KNOWN.rstrip(".")


def _wanted_words(question: str) -> list[str]:
    """Return the stems of what a question asks about, without the words that asking takes, where others are left."""
    words = list(dict.fromkeys(content_words(question)))
    return [word for word in words if word not in _ASKING] or words


def _best(context: str, wanted: Sequence[str]) -> list[_Sentence]:
    """Return the sentences that match best, none where they hold too few of the wanted words between them."""
    found = _sentences(context, wanted)
    rarity = _rarity(wanted, found)
    covered = sum(rarity[word] for word in wanted if any(word in one.hits for one in found))
    return _chosen(found, rarity) if found and covered >= _MIN_COVERED * sum(rarity.values()) else []


def _sentences(context: str, wanted: Sequence[str]) -> list[_Sentence]:
    """Return the sentences of the context that hold a wanted word, with the record each belongs to."""
    if not wanted:
        return []
    pattern = _pattern(wanted)
    goal = frozenset(wanted)
    pairs = [word for word in wanted if UNSPACED.match(word)]
    marks = list(_RECORD.finditer(context))
    ends = [*(mark.start() for mark in marks[1:]), len(context)]
    found: list[_Sentence] = []
    seen: set[str] = set()
    for mark, end in sorted(zip(marks, ends, strict=False), key=lambda item: -_WEIGHT[item[0].group(1)[0]]):
        ref, head = mark.groups()
        body = context[mark.end() + 1 : end].partition("\n## ")[0]
        named: frozenset[str] = frozenset()
        text = body if ref[0] in "SC" and body.strip() else f"{head}\n{body}"
        if ref[0] in "ERK":
            name, _, told = head.partition(": ")
            named = goal.intersection(content_words(name))
            text = f"{told}\n{body}" if told.strip() else text
        if not pattern.search(text.lower()) and not named:
            continue
        for sentence in sentences(clean(text) if "<" in text else text):
            low = sentence.lower()
            hits = goal.intersection(map(stem, pattern.findall(low))) | named | {pair for pair in pairs if pair in low}
            if hits and sentence not in seen and _reads(sentence):
                seen.add(sentence)
                found.append(_Sentence(ref, sentence.replace("[", "(").replace("]", ")"), hits))
    return found


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


def _rarity(wanted: Sequence[str], found: Sequence[_Sentence]) -> dict[str, float]:
    """Return each wanted word's weight: the fewer sentences hold it, the more; an absent one as much as the rarest."""
    counts = {word: sum(word in one.hits for one in found) for word in wanted}
    return {word: 1.0 + 2.0 * (1.0 - count / (len(found) + 1)) ** 2 for word, count in counts.items()}


def _chosen(found: Sequence[_Sentence], rarity: Mapping[str, float]) -> list[_Sentence]:
    """Take sentences one by one, each for what it adds to those before."""
    worth = {
        one: _WEIGHT[one.ref[0]]
        * sum(rarity[word] for word in sorted(one.hits))
        * (1.0 if len(one.text) < 400 else 0.7)
        for one in found
    }
    best = max(worth.values())
    left = [one for one in sorted(found, key=lambda one: -worth[one]) if worth[one] > 0.3 * best][:60]
    bags = {one: frozenset(content_words(one.text)) for one in left}
    chosen: list[_Sentence] = []
    held: frozenset[str] = frozenset()
    while left and len(chosen) < _MAX_SENTENCES:
        gains = {one: worth[one] * (1.0 if one.hits - held or not chosen else 0.6) for one in left}
        one = max(left, key=lambda each: gains[each])
        if len(chosen) >= 2 and gains[one] < 0.5 * best:
            break
        chosen.append(one)
        held |= one.hits
        left = [other for other in left if other is not one and not _is_alike(bags[other], bags[one])]
    return chosen


def _is_alike(one: frozenset[str], other: frozenset[str]) -> bool:
    return len(one & other) >= _ALIKE * max(min(len(one), len(other)), 1)
