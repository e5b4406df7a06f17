"""Names, noun phrases and recurring strings of a text, and the records of entities and relations made of them.

English phrases are divided by word classes. In any other language with spaces only counts are used: a word that is
short and frequent is a function word, and words that differ by a short ending or beginning (particles of Korean, the
article of Arabic) are one where the bare form, or the common part of several forms, occurs.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from hirag_dist.core.entities.association import associations
from hirag_dist.core.prompts.records import EntityRecord, ExtractionReply, RelationRecord
from hirag_dist.core.text.normalize import UNSPACED, clean_name, is_name, name_key, shorten
from hirag_dist.llm.rule_based.language import (
    GENERIC,
    HAN_RUN,
    KANA,
    NOUN,
    PLACES,
    STOP,
    STRUCTURE,
    VERB,
    VERBS,
    Script,
    is_common,
    is_english,
    is_everyday,
    scripts_of,
    singular,
    split_sentences,
    tokens,
    word_class,
    word_list,
)
from hirag_dist.llm.rule_based.names import Spelling, bare, find_names
from hirag_dist.llm.rule_based.requests import safe, safe_name, type_word
from hirag_dist.types import FoundName

_MAX_WORDS = 3
_WEIGHT = (0.0, 0.8, 1.6, 2.0)  # by number of words
_COMPOUND = 0.6  # score of two nouns that occur once: "queen cell"
_LIKE_ADJECTIVES = ("y", "id", "ent", "ant", "ern", "er")
_HANGUL = re.compile("[가-힣]")
_MIN_STEM, _MIN_HANGUL_STEM = 4, 2  # characters
_MAX_AFFIX = 2
_FREQUENT, _MIN_FREQUENT = 0.01, 6  # share of the text's words, and count, from which a short word is a function word
_SHORT, _SHORT_CASELESS, _MAX_FUNCTION = 3, 2, 5  # letters: a function word by itself; if it is frequent

_WEAK = word_list("weak")
_TECHNOLOGY_TAILS, _EVENT_TAILS, _PRODUCT_TAILS = (
    word_list(f"{kind}_tails") for kind in ("technology", "event", "product")
)

Phrase = tuple[str, ...]


class _Word(NamedTuple):
    """A word that can be part of a phrase."""

    key: str  # form that it is counted as
    shown: str  # form that it is shown in
    ends: bool  # whether a phrase can end in it
    last: bool = False  # whether the phrase ends here


def find_phrases(lines: Sequence[Sequence[str]], spelling: Spelling | None) -> list[FoundName]:
    """Return the noun phrases of a text.

    Args:
        lines: the words of each sentence.
        spelling: of a text in English; None in another language.
    """
    grammar = _Counted(lines) if spelling is None else _English(spelling)
    places: dict[Phrase, list[tuple[int, int]]] = {}
    shown: dict[Phrase, Counter[str]] = {}
    for number, words in enumerate(lines):
        if spelling is not None and spelling.titled[number] and len(words) > 12:
            continue
        for start, run in _runs(words, grammar):
            for first, end in _spans(run):
                phrase = run[first:end]
                key = tuple(word.key for word in phrase)
                places.setdefault(key, []).append((number, start + first))
                shown.setdefault(key, Counter())[" ".join(word.shown for word in phrase)] += 1
    inside: dict[Phrase, list[int]] = {}
    for key, where in places.items():
        for part in _parts(key) if len(where) > 1 else ():
            inside.setdefault(part, []).append(len(where))
    found = []
    for key, where in places.items():
        longer = inside.get(key, [])
        own = len(where) - sum(longer) / max(len(longer), 1)
        score = 0.0 if len(set(key)) < len(key) else grammar.score(key, len(where), own)
        if score > 0:
            name = min(shown[key], key=lambda form: (-shown[key][form], form))
            found.append(FoundName(name, term_kind(key), tuple(where), score))
    return found


def _runs(words: Sequence[str], grammar: _English | _Counted) -> Iterable[tuple[int, list[_Word]]]:
    """Yield (place, words) of each unbroken run of words that can form a phrase."""
    run: list[_Word] = []
    for at, text in enumerate([*words, "."]):
        word = grammar.read(text)
        if word is not None:
            run.append(word)
        if run and (word is None or word.last):
            yield at + (word is not None) - len(run), run
            run = []


def _spans(run: Sequence[_Word]) -> Iterable[tuple[int, int]]:
    for end in range(1, len(run) + 1):
        if run[end - 1].ends:
            for first in range(max(end - _MAX_WORDS, 0), end):
                yield first, end


def _parts(key: Phrase) -> Iterable[Phrase]:
    for size in range(1, len(key)):
        for at in range(len(key) - size + 1):
            yield key[at : at + size]


class _English:
    """Phrases by word classes."""

    def __init__(self, spelling: Spelling) -> None:
        self._spelling = spelling

    def read(self, word: str) -> _Word | None:
        """Return a word of a sentence as a part of a phrase; None where it breaks one."""
        shown = bare(word)
        low = shown.lower()
        if not low.replace("-", "").replace("'", "").isalpha() or len(word) < 3 or low in STRUCTURE:
            return None
        if word[0].isupper() and not self._spelling.small[low]:
            return None  # a name
        kind = word_class(low)
        if kind in (STOP, VERB):
            return None
        key = singular(low) if kind == NOUN else low
        return _Word(key, key, kind == NOUN, last=shown != word)

    def score(self, phrase: Phrase, count: int, own: float) -> float:
        """Return how well a phrase stands out; 0 where it is none. `own`: occurrences outside longer phrases."""
        first, last = phrase[0], phrase[-1]
        if len(phrase) == 1:
            ordinary = is_everyday(last) or len(last) < 4
            return 0.0 if count < 3 or own < 1 or ordinary else _WEIGHT[1] * own
        if first in _WEAK or own <= 0.5:
            return 0.0
        compound = len(phrase) == 2 and word_class(first) == NOUN
        if all(map(is_common, phrase)):
            return 0.8 * own if compound and count > 2 else 0.0  # "interest rate"
        if count < 3 and last in VERBS:  # "curve display": a verb more often than not
            return 0.0
        if count > 1:
            return _WEIGHT[len(phrase)] * own
        plausible = compound and not {first, last} & GENERIC and not first.endswith(_LIKE_ADJECTIVES)
        return _COMPOUND if plausible else 0.0


class _Counted:
    """Phrases of any language with spaces, by counts alone."""

    def __init__(self, lines: Sequence[Sequence[str]]) -> None:
        counts = Counter(word.lower() for words in lines for word in words if word[0].isalpha())
        self._stems = _stems(counts)
        self._common = _function_words(counts)

    def read(self, word: str) -> _Word | None:
        low = word.lower()
        if not word[0].isalpha() or low in self._common:
            return None
        bare_form = self._stems.get(word, word) if _HANGUL.match(word) else word  # without a Korean particle
        return _Word(self._stems.get(low, low), bare_form, ends=True)

    def score(self, phrase: Phrase, count: int, own: float) -> float:
        return _WEIGHT[len(phrase)] * own if count > 1 and own >= 1 else 0.0


def _function_words(counts: Counter[str]) -> frozenset[str]:
    frequent = max(_MIN_FREQUENT, _FREQUENT * counts.total())
    return frozenset(
        word
        for word, count in counts.items()
        if not _HANGUL.match(word)
        # Writing without vowels has shorter words.
        and (
            _length(word) <= (_SHORT if word.lower() != word.upper() else _SHORT_CASELESS)
            or (_length(word) <= _MAX_FUNCTION and count >= frequent)
        )
    )


def _length(word: str) -> int:
    """Return the letters of a word; signs above and below others are none."""
    return sum(unicodedata.category(ch) != "Mn" for ch in word)


def _stems(counts: Mapping[str, int]) -> dict[str, str]:
    """Return word → the form that it is counted as, where another word of the text shares all but an affix."""
    prefixes = Counter(
        word[:size] for word in counts for size in range(max(_least(word), len(word) - _MAX_AFFIX), len(word) + 1)
    )
    stems: dict[str, str] = {}
    for word in counts:
        hangul = bool(_HANGUL.match(word))
        if hangul and prefixes[word] > 1:
            continue  # other words are this one with a particle
        sizes = range(1, min(_MAX_AFFIX, len(word) - _least(word)) + 1)
        ends = [word[: len(word) - cut] for cut in sizes]
        shared = [form for form in ends if form in counts or (hangul and prefixes[form] > 1)]
        shared += [word[cut:] for cut in sizes if word[cut:] in counts]
        if shared:
            stems[word] = shared[0]
    return {word: stems.get(form, form) for word, form in stems.items()}


def _least(word: str) -> int:
    return _MIN_HANGUL_STEM if _HANGUL.match(word) else _MIN_STEM


def term_kind(words: Sequence[str]) -> str:
    """Return the kind of a common-noun term, by its last word."""
    last = words[-1].lower()
    if last in _TECHNOLOGY_TAILS:
        return "technology"
    if last in _EVENT_TAILS:
        return "event"
    if len(words) > 1 and last in _PRODUCT_TAILS:
        return "product"
    return "concept"


_STOP_CHARS = frozenset("".join(word_list("chinese_stop_characters")))
_ORDINARY = word_list("chinese_words")
_SURNAMES = frozenset("".join(word_list("chinese_surnames")))
_PLACE_ENDS = "山洞寺城县省府州河江海国宫殿观市区村镇庙湖岛街路"
_PERSON_ENDS = "王帝公君师祖佛仙真人僧"
_SPEAKING = re.compile("^[^，。]{0,2}(?:道|曰|说|笑|问|答|言|听|见|闻|喝|叫)")
_KANJI_KATA = re.compile("[\u30a0-\u30ff]{3,}|[々\u4e00-\u9fff]{2,6}")
_LATIN = re.compile(r"[A-Za-z][A-Za-z0-9\-]{2,}(?: [A-Z][A-Za-z0-9\-]+)*")
_LETTER_RUN = re.compile(f"[{UNSPACED}]+")
_CLUSTER = re.compile(  # a letter of Thai and the like with the vowels before it and the signs around it
    "[\u0e40-\u0e44\u0ec0-\u0ec4]?[^\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ecd]"
    "[\u0e30-\u0e3a\u0e45-\u0e4e\u0eb0-\u0ebc\u0ec8-\u0ecd\u102b-\u103e\u1056-\u1060\u17b6-\u17d3\u0f71-\u0fbc]*"
)
_CHARACTERS, _CLUSTERS = range(2, 5), range(4, 13)  # sizes of a term: shorter strings are mostly function words
_MAX_TERMS = 120
_STEADY = 0.7  # share of one neighbour from which a string is a part of a longer one
_PART = 1.3  # times that a part occurs for each longer string, up to which it is nothing by itself


def find_characters(lines: Sequence[str]) -> list[FoundName]:
    """Return the recurring names and terms of sentences in Chinese or Japanese, those in Latin letters too."""
    text = "".join(lines[:400])
    if KANA.search(text) and len(KANA.findall(text)) * 8 > len(text):
        counts = Counter(word for line in lines for word in _KANJI_KATA.findall(line))
    else:
        runs = [list(run) for line in lines for run in HAN_RUN.findall(line)]
        counts = _recurring(runs, _CHARACTERS, _STOP_CHARS)
    counts.update(word for line in lines for word in _LATIN.findall(line))
    usable = [name for name in counts if name not in _ORDINARY and (counts[name] > 1 or name in PLACES)]
    found = []
    for name in sorted(usable, key=lambda name: (-counts[name], name))[:_MAX_TERMS]:
        places = [(number, line.find(name)) for number, line in enumerate(lines) if name in line]
        if not places:
            continue
        ends = [at + len(name) for _, at in places]
        speaks = sum(
            bool(_SPEAKING.match(lines[number][end : end + 4])) for (number, _), end in zip(places, ends, strict=True)
        )
        kind = _kind(name, speaks, len(places))
        size = (0.0, 0.5, 1.0, 1.5, 1.6)[min(len(name), 4)]
        score = len(places) * size * (1.5 if kind != "concept" else 1.0)
        found.append(FoundName(name, kind, tuple((number, at // 2) for number, at in places), score))
    return found


def find_clusters(lines: Sequence[str]) -> list[FoundName]:
    """Return the recurring terms of sentences in Thai, Lao, Khmer, Myanmar or Tibetan."""
    counts = _recurring([_CLUSTER.findall(run) for line in lines for run in _LETTER_RUN.findall(line)], _CLUSTERS)
    ranked = sorted(counts, key=lambda term: (-counts[term] * len(term), term))[:_MAX_TERMS]
    placed = [
        (term, tuple((at, line.find(term) // 4) for at, line in enumerate(lines) if term in line)) for term in ranked
    ]
    return [FoundName(term, "concept", spots, len(spots) * min(len(term), 12) / 8) for term, spots in placed if spots]


def _recurring(runs: Sequence[Sequence[str]], sizes: range, stops: frozenset[str] = frozenset()) -> Counter[str]:
    """Return the counts of the strings of units that recur with varying neighbours, without parts of longer ones.

    Args:
        stops: characters that a string neither begins nor ends with.
    """
    counts: Counter[str] = Counter()
    for run in runs:
        for size in sizes:
            counts.update("".join(run[at : at + size]) for at in range(len(run) - size + 1))
    beside: dict[str, tuple[Counter[str], Counter[str]]] = {
        gram: (Counter(), Counter())
        for gram, count in counts.items()
        if count > 1 and gram[0] not in stops and gram[-1] not in stops
    }
    for run in runs:
        padded = ["", *run, ""]
        for size in sizes:
            for at in range(1, len(padded) - size):
                sides = beside.get("".join(padded[at : at + size]))
                if sides is not None:
                    sides[0][padded[at - 1]] += 1
                    sides[1][padded[at + size]] += 1
    kept = Counter(
        {gram: counts[gram] for gram, sides in beside.items() if all(_varies(s, counts[gram]) for s in sides)}
    )
    for gram in sorted(kept, key=lambda gram: (-len(gram), gram)):
        for part in {gram[at:end] for at in range(len(gram)) for end in range(at + 1, len(gram) + 1)} - {gram}:
            if gram in kept and part in kept and kept[part] <= kept[gram] * _PART:
                del kept[part]
    return kept


def _varies(neighbours: Counter[str], count: int) -> bool:
    """Return whether no single neighbour is beside a string nearly always."""
    edge = neighbours.pop("", 0)
    if edge >= 2 or (edge and count <= 3):
        return True
    most = max(neighbours.values(), default=0)
    return len(neighbours) + min(edge, 1) > 1 and most <= _STEADY * count


def _kind(name: str, speaks: int, count: int) -> str:
    if name in PLACES or (name[-1] in _PLACE_ENDS and name != "政府"):
        return "location"
    if speaks * 4 >= count and speaks:
        return "person"
    if (name[0] in _SURNAMES and len(name) == 3) or (name[-1] in _PERSON_ENDS and len(name) > 1):
        return "person"
    return "concept"


_LONG = 240
_DEFINES = re.compile(
    r"\b(?:is|was|are|were|refers?|means|denotes?|became|born|called|known|defined|consists?)\b|是|为|乃|—"
)


def described(one: FoundName, lines: Sequence[str]) -> str:
    """Return the sentence, or two short ones, that tell most about a name, from those that hold it."""
    numbers = sorted({number for number, _ in one.places})[:8]
    short = one.name.rpartition(" ")[2].lower()
    ranked = sorted(numbers, key=lambda number: (-_worth(lines[number], short), number))
    if not ranked:
        return ""
    chosen = ranked[:1]
    if len(ranked) > 1:
        first, second = lines[ranked[0]], lines[ranked[1]]
        if first != second and len(first) + len(second) < _LONG:
            chosen = sorted(ranked[:2])
    text = " ".join(lines[number].lstrip("# ") for number in chosen)
    return safe(text if len(text) <= _LONG else _window(text, [short]), _LONG)


def around(one: str, other: str, sentence: str, next_sentence: str) -> str:
    """Return the part of a sentence, or of two in a row, that holds two names."""
    sentence, next_sentence = sentence.lstrip("# "), next_sentence.lstrip("# ")
    ends = [one.rpartition(" ")[2].lower(), other.rpartition(" ")[2].lower()]
    if sentence != next_sentence:
        half = _LONG // 2
        return safe(f"{_window(sentence, ends, half)} {_window(next_sentence, ends, half)}", _LONG)
    return safe(_window(sentence, ends), _LONG)


def _worth(line: str, short: str) -> float:
    length = len(line)
    at = line.lower().find(short)
    if line.startswith("#"):
        return 0.0  # a heading: used only where nothing else is there
    worth = 1.0 if 50 <= length <= _LONG else 0.6 if length < 400 else 0.3
    if length < 25:
        worth -= 0.6
    if at >= 0:
        worth += 0.8 / (1 + at / 25)
        if _DEFINES.search(line, at, at + len(short) + 40):
            worth += 0.7
    if not line.endswith((".", "!", "?", "。", "”", '"')):
        worth -= 0.3
    return worth


def _window(text: str, ends: Sequence[str], size: int = _LONG) -> str:
    """Return at most `size` characters of the text around the words, cut at words, with ellipses."""
    if len(text) <= size:
        return text
    lower = text.lower()
    spots = sorted(at for at in (lower.find(end) for end in ends) if at >= 0)
    if not spots or spots[-1] + 40 < size:
        return shorten(text, size)
    start = max(spots[0] - 40, 0) if spots[-1] - spots[0] + 80 < size else max(spots[-1] - size + 60, 0)
    start = min(start, max(len(text) - size + 2, 0))
    if start:
        space = text.find(" ", start)
        start = space + 1 if 0 <= space < start + 30 else start
        return "…" + shorten(text[start:], size - 1)
    return shorten(text, size)


_PARTICLE = re.compile("(?<=[A-Za-z0-9])(?=[가-힣])")  # between a Latin name and the Korean particle that follows
_WORDS_PER_NAME = 32
_CHARS_PER_NAME = {Script.IDEOGRAPHIC: 60, Script.UNSPACED: 150}
_MIN_NAMES, _MAX_NAMES = 4, 60


def extract_records(text: str, types: Sequence[str]) -> ExtractionReply:
    """Return the best names of a text with the sentences that tell most about them, and how they are related.

    Args:
        types: types that a name may have.
    """
    lines = split_sentences(text)
    names = best_names(lines)
    entities = [EntityRecord(one.name, type_word(one.type, types).lower(), described(one, lines)) for one in names]
    return ExtractionReply(tuple(entities), tuple(related(names, lines)))


def best_names(lines: Sequence[str]) -> list[FoundName]:
    """Return the names and phrases of sentences, best first, in proportion to the text."""
    scripts = scripts_of(" ".join(lines))
    per_name = _CHARS_PER_NAME.get(scripts[0]) if scripts else None
    if per_name:
        wanted = sum(map(len, lines)) // per_name
    else:
        wanted = sum(line.count(" ") + 1 for line in lines) // _WORDS_PER_NAME
    return find_entities(lines)[: min(max(wanted, _MIN_NAMES), _MAX_NAMES)]


def related(names: Sequence[FoundName], lines: Sequence[str]) -> list[RelationRecord]:
    """Return the relations of names that stand close together, strongest first."""
    return [
        RelationRecord(
            names[pair.first].name,
            names[pair.second].name,
            around(names[pair.first].name, names[pair.second].name, *(lines[place] for place in pair.sentences)),
            pair.strength,
        )
        for pair in associations(names)
    ]


def find_entities(lines: Sequence[str]) -> list[FoundName]:
    """Return the names and noun phrases of sentences with their built-in kinds, best first, each once.

    English: names by capitals and noun phrases by word classes. Other writing with capitals: names by capitals, and
    recurring phrases. Without capitals: recurring phrases. Chinese and Japanese, and other writing without spaces:
    recurring strings of characters.
    """
    found: dict[str, FoundName] = {}
    for one in sorted(_candidates(lines), key=lambda one: (-one.score, one.places[0], one.name)):
        name = clean_name(safe_name(one.name))
        key = name_key(name)
        if is_name(key):
            found.setdefault(key, replace(one, name=name))
    return list(found.values())


def _candidates(lines: Sequence[str]) -> list[FoundName]:
    text = " ".join(lines)
    scripts = scripts_of(text)
    if Script.IDEOGRAPHIC in scripts:
        return find_characters(lines)  # with Latin names
    found = find_clusters(lines) if Script.UNSPACED in scripts else []
    words = [tokens(_PARTICLE.sub(" ", line)) for line in lines]
    if Script.CASED in scripts:
        spelling = Spelling(words)
        names = find_names(words, spelling)
        found += names
        if scripts[0] is Script.CASED and is_english(text):
            found += find_phrases(words, spelling)
        elif scripts[0] is Script.CASED:
            found += _others(find_phrases(words, None), names)
    if Script.CASELESS in scripts:
        found += find_phrases(words, None)
    return found


def _others(phrases: Sequence[FoundName], names: Sequence[FoundName]) -> list[FoundName]:
    """Return the phrases that are not a part of a name wherever they occur."""
    places: dict[str, set[int]] = {}  # word of a name → sentences with the name
    for one in names:
        for word in name_key(one.name).split():
            places.setdefault(word, set()).update(sentence for sentence, _ in one.places)
    return [
        one
        for one in phrases
        if not all(
            {sentence for sentence, _ in one.places} <= places.get(word, set()) for word in name_key(one.name).split()
        )
    ]
