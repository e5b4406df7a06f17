"""Classes of single words: function words, verbs, nouns; their plain forms; and the writing of a text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from functools import lru_cache

from hirag_dist.core.text.normalize import UNSPACED as UNSPACED_CHARS
from hirag_dist.llm.rule_based.word_lists import (
    ADJECTIVES,
    ADVERBS,
    EVERYDAY,
    FOREIGN,
    FUNCTION,
    GENERIC,
    IRREGULAR,
    IRREGULAR_PLURALS,
    NOUN_TOO,
    VERBS,
    word_set,
    words,
)

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

_ED_NOUNS = words("nouns_in_ed")
_ING_NOUNS = words("nouns_in_ing")
_LY_NOUNS = words("nouns_in_ly")
_AL_NOUNS = words("nouns_in_al")
_IC_NOUNS = words("nouns_in_ic")
_IVE_NOUNS = words("nouns_in_ive")
_ABLE_NOUNS = words("nouns_in_able")
_ARY_NOUNS = words("nouns_in_ary")
_EST_NOUNS = words("nouns_in_est")
_VERBISH_NOUNS = words("nouns_in_ate_or_ise")
_ADJECTIVE_ENDS: tuple[tuple[tuple[str, ...], frozenset[str]], ...] = (
    (
        ("ous", "ful", "less", "ish", "esque"),
        word_set("fish dish wish radish finish handful census famous british"),
    ),
    (("able", "ible"), _ABLE_NOUNS),
    (("al",), _AL_NOUNS),
    (("ic",), _IC_NOUNS),
    (("ive",), _IVE_NOUNS),
    (("ary",), _ARY_NOUNS),
    (("est", "ier"), _EST_NOUNS),
)
_KEEP_S = words("singular_in_s")


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


_VERB_FORMS = _with_forms(VERBS, lambda verb: verb not in NOUN_TOO) | IRREGULAR


@lru_cache(maxsize=65536)
def singular(word: str) -> str:
    """Return a lower-case noun in the singular, by rule.

    >>> singular("colonies"), singular("queens"), singular("bus")
    ('colony', 'queen', 'bus')
    """
    if word in IRREGULAR_PLURALS:
        return IRREGULAR_PLURALS[word]
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
    if word in _VERB_FORMS and word not in _ING_NOUNS:
        return VERB
    if word in ADJECTIVES:
        return ADJECTIVE
    if word.endswith("ly") and len(word) > 3 and word not in _LY_NOUNS:
        return STOP
    if word.endswith("ed") and len(word) > 3 and word not in _ED_NOUNS:
        return PARTICIPLE
    if word.endswith("ing") and len(word) > 4 and word not in _ING_NOUNS:
        return GERUND
    if len(word) > 5 and word.endswith(("ate", "ize", "ise", "ify", "ates", "izes", "ises", "ifies")):
        return NOUN if singular(word) in _VERBISH_NOUNS else VERB
    for ends, nouns in _ADJECTIVE_ENDS:
        if word.endswith(ends):
            return NOUN if word in nouns else ADJECTIVE
    return NOUN


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
    return is_common(word) or word in EVERYDAY or singular(word) in EVERYDAY


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
