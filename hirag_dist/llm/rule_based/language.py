"""Language by rules: word lists, classes and plain forms of words, the writing of a text, sentences and tokens."""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from functools import lru_cache
from importlib.resources import files

from hirag_dist.core.text.normalize import UNSPACED as UNSPACED_CHARS
from hirag_dist.core.text.normalize import unwrapped
from hirag_dist.core.text.terms import MARKS


def word_set(*texts: str) -> frozenset[str]:
    """Return the words of some texts."""
    return frozenset(" ".join(texts).split())


def _lists(name: str) -> dict[str, str]:
    return tomllib.loads(files(__package__).joinpath(name).read_text(encoding="utf-8"))


_LISTS = _lists("words.toml") | _lists("gazetteer.toml")


def word_list(name: str) -> frozenset[str]:
    """Return a list of `words.toml` or `gazetteer.toml`."""
    return word_set(_LISTS[name])


FUNCTION, ADVERBS, FOREIGN = word_list("function"), word_list("adverbs"), word_list("foreign")
VERBS, NOUN_TOO, GENERIC = word_list("verbs"), word_list("noun_too"), word_list("generic")
STRUCTURE, MONTHS, DEMONYMS = word_list("structure"), word_list("months"), word_list("demonyms")
DATES = MONTHS | word_list("weekdays") | word_list("times")
PLACES = frozenset(" ".join(name.split()) for name in _LISTS["places"].split(","))
_ADJECTIVES, _EVERYDAY, _NOUNS, _KEEP_S = (
    word_list("adjectives"),
    word_list("everyday"),
    word_list("nouns"),
    word_list("singular_in_s"),
)
_IRREGULAR_PLURALS = dict(pair.split() for pair in _LISTS["irregular_plurals"].split(","))

STOP, VERB, ADJECTIVE, NOUN, PARTICIPLE, GERUND = range(6)

_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f"
HAN_RUN = re.compile(f"[{_HAN}]+")
KANA = re.compile("[\u3040-\u30ff\u31f0-\u31ff]")
UNSPACED = re.compile(f"[{_HAN}\u3040-\u30ff\u31f0-\u31ff\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]")
_UNSPACED_LETTER = re.compile(f"[{UNSPACED_CHARS}]")
_SAMPLE = 20_000  # characters that decide
_MIN_SHARE = 0.2  # of the letters, for a second kind of writing
_MIN_ENGLISH = 0.15  # share of the words that are English function words
WORD = re.compile(r"[^\W_]+(?:['’\-][^\W_]+)*")

_ADJECTIVE_ENDS = (*("ous", "ful", "less", "ish", "esque", "able", "ible", "al", "ic", "ive", "ary", "est", "ier"),)
_VERB_ENDS = ("ate", "ize", "ise", "ify", "ates", "izes", "ises", "ifies")


def _with_forms(verbs: frozenset[str], plain: Callable[[str], bool]) -> frozenset[str]:
    forms: list[str] = []
    for verb in verbs:
        stem = verb.removesuffix("e")
        doubled = verb + verb[-1]
        past = [verb[:-1] + "ied"] if verb.endswith("y") and verb[-2] not in "aeiou" else [stem + "ed", doubled + "ed"]
        forms += [*past, stem + "ing", doubled + "ing"]
        if plain(verb):
            third = verb[:-1] + "ies" if verb.endswith("y") and verb[-2] not in "aeiou" else verb + "s"
            forms += [verb, third, verb + "es"]
    return frozenset(forms)


_ING_NOUNS = frozenset(noun for noun in _NOUNS if noun.endswith("ing"))
_VERB_FORMS = (_with_forms(VERBS, lambda verb: verb not in NOUN_TOO) | word_list("irregular")) - _ING_NOUNS


@lru_cache(maxsize=65536)
def singular(word: str) -> str:
    """Return a lower-case noun in the singular, by rule.

    >>> singular("colonies"), singular("queens"), singular("bus")
    ('colony', 'queen', 'bus')
    """
    if word in _IRREGULAR_PLURALS:
        return _IRREGULAR_PLURALS[word]
    if len(word) < 4 or not word.endswith("s") or word.endswith(("ss", "us", "is", "'s")) or word in _KEEP_S:
        return word
    if "-" in word:
        head, _, tail = word.rpartition("-")
        return f"{head}-{singular(tail)}"
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith("uses") and (word[:-2] in _KEEP_S or word.endswith("viruses")):
        return word[:-2]
    if word.endswith(("sses", "xes", "ches", "shes", "zzes")):
        return word[:-2]
    if word.endswith("ics"):
        return word
    return word[:-1]


@lru_cache(maxsize=65536)
def word_class(word: str) -> int:
    """Return the likeliest class of a lower-case word: STOP, VERB, ADJECTIVE, PARTICIPLE (-ed), GERUND or NOUN."""
    if word in FUNCTION or word in ADVERBS or word in FOREIGN or len(word) < 2 or word[0].isdigit():
        return STOP
    if "'" in word or "’" in word:
        return STOP if word.replace("’", "'") in FUNCTION else NOUN
    if word in _VERB_FORMS:
        return VERB
    if word in _ADJECTIVES:
        return ADJECTIVE
    if word in _NOUNS or singular(word) in _NOUNS:
        return NOUN
    if word.endswith("ly") and len(word) > 3:
        return STOP
    if word.endswith("ed") and len(word) > 3:
        return PARTICIPLE
    if word.endswith("ing") and len(word) > 4:
        return GERUND
    if len(word) > 5 and word.endswith(_VERB_ENDS):
        return VERB
    return ADJECTIVE if word.endswith(_ADJECTIVE_ENDS) else NOUN


@lru_cache(maxsize=65536)
def is_common(word: str) -> bool:
    """Check for a lower-case word that is too ordinary to be an entity by itself."""
    kind = word_class(word)
    return kind != NOUN or word in GENERIC or singular(word) in GENERIC or word in VERBS or word in NOUN_TOO


@lru_cache(maxsize=65536)
def is_everyday(word: str) -> bool:
    """Check for a lower-case word that is no term by itself: too common, or an everyday thing.

    >>> is_everyday("songs"), is_everyday("plague")
    (True, False)
    """
    return is_common(word) or word in _EVERYDAY or singular(word) in _EVERYDAY


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """Return a lower-case word without its commonest endings: only good for comparing words.

    >>> stem("layered") == stem("layers")
    True
    """
    word = word.replace("’", "'").removesuffix("'s").removesuffix("'")
    if len(word) < 4 or not word.isascii():
        return word
    word = singular(word)
    for end in ("ingly", "edly", "ings", "ing", "ed", "ly"):
        if word.endswith(end) and len(word) - len(end) >= 3:
            word = word[: -len(end)]
            if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "ls":
                word = word[:-1]
            break
    if word.endswith("e") and len(word) > 3:
        word = word[:-1]
    return word[:-1] + "i" if word.endswith("y") and len(word) > 3 else word


class Script(StrEnum):
    """Kind of writing."""

    CASED = "cased"  # words between spaces, names with capitals: Latin, Greek, Cyrillic, Armenian
    CASELESS = "caseless"  # words between spaces, no capitals: Arabic, Hebrew, Devanagari, Hangul
    IDEOGRAPHIC = "ideographic"  # Chinese and Japanese
    UNSPACED = "unspaced"  # letters without spaces: Thai, Lao, Khmer, Myanmar, Tibetan


def scripts_of(text: str) -> tuple[Script, ...]:
    """Return the kinds of writing that a text has a good share of, the commonest first; none for no letters.

    >>> scripts_of("Sejong은 왕이다"), scripts_of("1234")
    ((<Script.CASED: 'cased'>, <Script.CASELESS: 'caseless'>), ())
    """
    counts = Counter(_script(ch) for ch in text[:_SAMPLE] if ch.isalpha())
    total = counts.total()
    found = [script for script in Script if counts[script] >= _MIN_SHARE * total > 0]
    return tuple(sorted(found, key=lambda script: -counts[script]))


def _script(ch: str) -> Script:
    if ch.lower() != ch.upper():
        return Script.CASED
    if HAN_RUN.match(ch) or KANA.match(ch):
        return Script.IDEOGRAPHIC
    return Script.UNSPACED if _UNSPACED_LETTER.match(ch) else Script.CASELESS


def is_english(text: str) -> bool:
    """Return whether the text's function words are English, so that word lists of English apply to it."""
    found = WORD.findall(text[:_SAMPLE].lower())
    return sum(word in FUNCTION for word in found) >= _MIN_ENGLISH * len(found) > 0


def content_words(text: str) -> list[str]:
    """Return the stems of the words that carry meaning, in order; for unspaced scripts, pairs of characters."""
    words = [stem(word) for word in WORD.findall(text.lower()) if word_class(word) != STOP]
    if UNSPACED.search(text):
        pairs = [run[at : at + 2] for run in HAN_RUN.findall(text) for at in range(max(len(run) - 1, 1))]
        words = [word for word in words if not UNSPACED.search(word)] + pairs
    return words


def is_alike(one: frozenset[str], other: frozenset[str], share: float) -> bool:
    """Return whether two sets of words have that share of the smaller one's words in common."""
    return len(one & other) >= share * max(min(len(one), len(other)), 1)


GAP = "…"  # stands where something unreadable was taken out; no name or phrase runs across it

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ufffd\ud800-\udfff]")
_SPECIAL = re.compile(  # as prompts have them: a space stands behind the bracket
    r"< ?\|[^<>\n]{0,40}\|? ?>|\|>|#{2,}|\[ ?/?INST\]|< ?/?[a-z_][a-z0-9_]{0,30}>", re.IGNORECASE
)
_ADDRESS = re.compile(
    r"\b(?:https?|ftp)[:/]\S+|\bwww\.\S+|\b[\w.+-]+@[\w-]+\.[\w.-]+|\b[\w-]+\.(?:com|org|net|html?|php)\b\S*"
)
_MARKUP = re.compile(
    r"<!--.{0,4000}?-->|< ?(?:script|style)\b.{0,4000}?< ?/(?:script|style)>|</?[a-zA-Z][^<>\n]{0,300}>", re.DOTALL
)
_ENTITY = re.compile(r"&(?:#\d{1,6}|#x[0-9a-fA-F]{1,5}|[a-z]{2,8});")
_GLUED = re.compile(r"(?<=[a-zà-þ0-9)\]”\"])([.!?])(?=[A-ZÀ-Þ][a-zà-þ’']+[ ,])|(?<=[a-z])(\[\d+\])+")
_LONG = re.compile(r"[^\s\u3000-\u9fff]{48,}")
_BLANK = re.compile(r"\n[ \t]*\n")
_SENTENCE_END = re.compile(
    r"""(?:[.!?…]+["'”’»)\]]*\s+(?=["'“‘«(\[—-]*[A-ZÀ-ÞА-ЯЁ0-9ΆΈ-Ϋ])|[。！？；]+[”’」』）]*(?=[^\s”’」』）]))"""
)
_ABBREVIATED = re.compile(
    r"(?:^|[\s(\[\"“'‘])(?:Mr|Mrs|Ms|Dr|St|Prof|Sr|Jr|Rev|Hon|Capt|Gen|Col|Lt|Sgt|Gov|Sen|Mt|Ft|Inc|Ltd|Co|Corp|vs|No|"
    r"Nos|Fig|Figs|Eq|Eqs|Sec|Ref|Refs|Vol|pp|ed|eds|al|cf|ca|e\.g|i\.e|viz|approx|Messrs|[bcdfr]|fl|Jan|Feb|Mar|Apr|Aug|Sept?|"
    r"Oct|Nov|Dec|[A-ZÀ-ÞА-Я]|(?:[A-Z]\.)+[A-Z])\.$"
)
_LETTERS = rf"(?:[^\W_][{MARKS}]*)+"
_TOKEN = re.compile(
    r"(?:Mr|Mrs|Ms|Dr|St|Prof|Capt|Col|Lt|Sgt|Rev|Hon|Jr|Sr|Mt|Messrs|Mme|Mlle)\.(?=\s)"
    r"|(?:[A-ZÀ-ÞА-Я]\.(?:-?[A-ZÀ-ÞА-Я]\.)*)(?![^\W_])|[A-Z]&[A-Z]\b"
    rf"|{_LETTERS}(?:['’\-‐–.׳״]{_LETTERS})*['’]?|[^\w\s]|_"
)
_ROMAN = re.compile(r"[IVXLC]+$")
_CASELESS_END = re.compile(r"(?<=[.!?؟।॥۔።։།။])\s*(?=\S)(?<![A-Za-z\d]\.)")
_PIECE = 60  # characters of a sentence where nothing but spaces parts them


def clean(text: str) -> str:
    """Return readable text: no markup, addresses, special tokens or control characters; lines are kept."""
    text = unicodedata.normalize("NFC", text).replace("\r\n", "\n").replace("\r", "\n")
    text = _CONTROL.sub("", text)
    if "<" in text:
        text = _MARKUP.sub(" ", text)
    if "&" in text:
        text = _ENTITY.sub(" ", text)
    if "<" in text or "#" in text or "|" in text or "[" in text:
        text = _SPECIAL.sub(f" {GAP} ", text)
    if "://" in text or "www." in text or "@" in text or ".com" in text or ".org" in text:
        text = _ADDRESS.sub(GAP, text)
    return _LONG.sub(GAP, _GLUED.sub(r"\1 ", text))


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text in any writing, each on one line and without markup.

    Writing without capitals ends a sentence at its punctuation alone. Where there is none either, as in Thai, spaces
    part clauses, which are joined up to some length.
    """
    lines = sentences(clean(text))
    scripts = scripts_of(text)
    if Script.CASELESS in scripts:
        lines = [piece for line in lines for piece in _CASELESS_END.split(line) if piece]
    if Script.UNSPACED in scripts:
        lines = [piece for line in lines for piece in _clauses(line)]
    return lines


def _clauses(line: str) -> list[str]:
    found: list[str] = []
    for piece in line.split():
        if found and len(found[-1]) < _PIECE:
            found[-1] = f"{found[-1]} {piece}"
        else:
            found.append(piece)
    return found


def sentences(text: str) -> list[str]:
    """Return the sentences of cleaned text, each on one line; headings and list items are sentences of their own."""
    found: list[str] = []
    for block in _BLANK.split(unwrapped(text)):
        for unit in block.split("\n"):
            start = 0
            for match in _SENTENCE_END.finditer(unit):
                if _ABBREVIATED.search(unit, max(match.start() - 12, 0), match.start() + 1):
                    continue
                _add(found, unit[start : match.end()])
                start = match.end()
            _add(found, unit[start:])
    return found


def _add(found: list[str], piece: str) -> None:
    flat = " ".join(piece.split())
    if flat:
        found.append(flat)


def tokens(sentence: str) -> list[str]:
    """Return the words of a sentence and its punctuation marks, in order; a heading in capitals gets common spelling.

    >>> tokens("Mr. Cox's dog ran.")
    ['Mr.', "Cox's", 'dog', 'ran', '.']
    """
    found = _TOKEN.findall(sentence)
    if len(found) > 1 and sentence.isupper():
        return [
            word.capitalize() if len(word) > 1 and word[0].isalpha() and not _ROMAN.match(word) else word
            for word in found
        ]
    return found
