"""Answers put together from the sentences of the context that match the question best, each with its citation.

Short answers are picked from the same sentences: a number, a date, yes or no where the question's first words, in
English, ask for one, else a name. A point of a map-reduce answer is a sentence that
matches, and its helpfulness the share of the question's words in it; the final answer is the most helpful points that
say something new. Rules cannot reason over several sentences: for questions that need it this is a floor, not a model.

Summary entities of a cluster are named by the words that its members share; two or three where they share little.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hirag_dist.core.prompts.reply_parsing import COVERED
from hirag_dist.core.text.normalize import name_key, shorten
from hirag_dist.llm.rule_based.finder import find_entities
from hirag_dist.llm.rule_based.language import (
    DATES,
    DEMONYMS,
    GAP,
    GENERIC,
    HAN_RUN,
    NOUN,
    STOP,
    STRUCTURE,
    UNSPACED,
    VERB,
    WORD,
    clean,
    content_words,
    is_alike,
    sentences,
    singular,
    stem,
    word_class,
    word_set,
)
from hirag_dist.llm.rule_based.requests import (
    ParsedRequest,
    SummaryLine,
    listed_types,
    safe,
    safe_name,
    type_word,
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
    types = listed_types(ask.system)
    members = [member for line in ask.between("members").split("\n") if (member := _member(line)) is not None]
    if not members:
        return write_summaries([SummaryLine("unknown", type_word("concept", types), "", [])], ask.form)
    taken = {name_key(member.name) for member in members}
    found: list[SummaryLine] = []
    for words, group in _themes(members):
        kind = Counter(sorted(member.kind.lower() for member in group)).most_common(1)[0][0]
        name = _name(words, group, kind, taken)
        taken.add(name_key(name))
        numbers = sorted(member.number for member in group)
        found.append(SummaryLine(name, type_word(kind, types), _description(name, group), numbers))
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
_NAME_INSIDE = re.compile(r"(?<=\S\s)[A-ZÀ-Þ][\w’'-]*")
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
    names = frozenset(content_words(" ".join(_NAME_INSIDE.findall(question))))
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
        if len(lines) < _MAX_POINTS and not any(is_alike(words, other, _ALIKE) for other in said):
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
            if hits and sentence not in seen and sentence != COVERED and _reads(sentence):
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
        left = [other for other in left if other is not one and not is_alike(bags[other], bags[one], _ALIKE)]
    return chosen
