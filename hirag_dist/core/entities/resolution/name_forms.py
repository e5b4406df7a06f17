"""Normal forms of names for comparison, with their distinguishing features kept separately.

The form of a name forgets what spellings differ in (punctuation, accents, articles, plural, a company's legal form, a
title, the order of "Lincoln, Abraham"). Features that distinguish two things (numbers, text in parentheses,
gender) are kept separately, for `negative_rules`.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from hirag_dist.core.entities.resolution.word_lists import (
    ARTICLES,
    LEGAL_FORMS,
    NO_PLURALS,
    NUMBER_WORDS,
    ORDINAL_ENDINGS,
    ORDINALS,
    PARTICLES,
    RANKS,
    TITLES,
    UNSPACED_LEGAL_FORMS,
)

PERSON, ORGANIZATION, LOCATION, EVENT, THING, UNKNOWN = (
    "person",
    "organization",
    "location",
    "event",
    "thing",
    "unknown",
)
_FAMILIES = {
    PERSON: "person people character individual human персона человек 人物",
    ORGANIZATION: "organization organisation org company corporation institution agency government party group team "
    "university организация 组织",
    LOCATION: "location geo place city country region gpe continent river mountain место 地点",
    EVENT: "event battle war incident событие 事件",
    UNKNOWN: "unknown other",
}
_FAMILY_OF = {word: family for family, words in _FAMILIES.items() for word in words.split()}

_ASIDE = re.compile(r"^(.+?)\s*\(([^()]+)\)$")
_THE = re.compile(r"^the\s+(?=\S)", re.IGNORECASE)
_DOTTED = re.compile(r"(?<![^\W_])(?:[^\W\d_]\.)+[^\W\d_](?![^\W_])\.?")  # U.S., also where the last dot was cut
_POSSESSIVE = re.compile(r"^(.+?[^\W\d_])['’](?:s\b)?\s+(.+)$", re.IGNORECASE)
_APOSTROPHE = re.compile(r"['’`ʼ]")
_ASCII_TOKENS = re.compile(r"\d+(?:[.,]\d+)*|[a-z]+|[+#%*!<=>|~$]")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_ROMAN = re.compile(r"(?=[ivx]+$|[ivxl]{3,}$)(xl|l?x{0,3})(ix|iv|v?i{0,3})")  # DC and MD are no numbers
_ROMAN_VALUES = {"i": 1, "v": 5, "x": 10, "l": 50}
_NOT_INVERTED = frozenset(["jr", "sr", "inc", "ltd", "llc", "co", "corp", "phd", "md", "esq", "ii", "iii", "iv"])
_LETTERS = str.maketrans("øłđðħıœæ", "oldđhioa", "")  # no decomposition in Unicode
_ARABIC = {ord(a): b for a, b in zip("أإآٱىةـ", ["ا", "ا", "ا", "ا", "ي", "ه", ""], strict=True)}
_MARKS = "#%*!"  # in addition to the signs that Unicode calls mathematical or of a currency
_SAME_MARKS = str.maketrans({"\N{MINUS SIGN}": "-", "\N{FRACTION SLASH}": "/", "\N{MUSIC SHARP SIGN}": "#"})
_TYPED_SIGNS = (("!=", "≠"), ("<=", "≤"), (">=", "≥"))
_CJK_NUMERALS = frozenset("〇零一二三四五六七八九十百千万亿")


@dataclass(frozen=True, slots=True)
class NameForm:
    """A name as it is compared.

    Attributes:
        text: its folded words; spellings of one name have the same.
        words: of `text`.
        family: what kind of thing it names, of a few.
        numbers: every number in it, sorted: digits, Roman, words, ordinals, Chinese; signs ("C++", "$10", "x ≤ y") but
            for "!", which titles have and lose; and single letters where it is no person's ("Vitamin A").
        aside: what stood in parentheses at its end, folded; empty for an acronym, which is in `acronym`.
        acronym: the name, or the text in parentheses after it, where that is in capitals; else empty.
        title: a title that was dropped ("mr").
        legal: the legal form of a company that was dropped ("inc").
        possessive: whether it is "A's B" or "B of A".
        plural: whether its last word lost an English plural's ending.
    """

    text: str
    words: tuple[str, ...]
    family: str
    numbers: tuple[str, ...]
    aside: str
    acronym: str
    title: str
    legal: str
    possessive: bool
    plural: bool


def family_of(kind: str) -> str:
    """Return the family of an entity's type: person, organization, location, event, unknown, or thing.

    >>> family_of("GEO"), family_of("album")
    ('location', 'thing')
    """
    return _FAMILY_OF.get(kind.strip().casefold(), THING if kind.strip() else UNKNOWN)


def name_form(name: str, kind: str) -> NameForm:
    """Return how a name is compared.

    Args:
        kind: the entity's type.

    >>> name_form("Lincoln, Abraham", "person").text == name_form("ABRAHAM LINCOLN", "person").text
    True
    """
    family = family_of(kind)
    base, aside, acronym = _parted(_THE.sub("", unicodedata.normalize("NFKC", name).strip()))
    if family in (LOCATION, ORGANIZATION) and not aside:  # "Cranbrook, Kent"
        base, _, aside = base.partition(", ")
    if family in (PERSON, UNKNOWN):
        base = _in_order(base)
    possessive = _POSSESSIVE.match(base)
    if possessive:
        base = f"{possessive.group(2)} of {possessive.group(1)}"
    capitals = {word.strip(".,") for word in base.split() if word.isupper()}
    words = tokens_of(fold(base), family)
    legal = title = ""
    if len(words) > 1 and base.split()[0] in ARTICLES:  # "A Division" keeps its letter
        words = words[1:]
    if family == PERSON:
        title, words = _without_title(words)
    elif family == ORGANIZATION:
        legal, words = _without_legal_form(words)
    words, numbers = _numbered(words, capitals, family)
    if base[:1] in "-−" and len(words) == len(numbers) == 1:
        numbers.append("-")
    last = words[-1:]
    if family != PERSON:
        words = _singular(words, base.isupper())
    return NameForm(
        text=" ".join(words),
        words=tuple(words),
        family=family,
        numbers=tuple(sorted([*numbers, *(_NUMBER.findall(aside))])),
        aside=" ".join(tokens_of(fold(aside), family)),
        acronym=acronym,
        title=title,
        legal=legal,
        possessive=possessive is not None or "of" in words,
        plural=last != words[-1:],
    )


def fold(text: str) -> str:
    """Return a text case folded, without accents where a script writes names with and without them.

    Marks of Latin, Greek, Arabic and Hebrew letters go, and Russian ё is е; those that make another letter (Japanese
    が, Hindi vowels, й) stay.

    >>> fold("Fianna Fáil")
    'fianna fail'
    """
    folded = text.casefold()
    if folded.isascii():
        return folded
    kept: list[str] = []
    for ch in unicodedata.normalize("NFD", folded.replace("æ", "ae").replace("œ", "oe").translate(_LETTERS)):
        if unicodedata.category(ch) != "Mn" or not kept or not _drops_marks(kept[-1], ch):
            kept.append(ch)
    return unicodedata.normalize("NFC", "".join(kept)).translate(_ARABIC)


def _drops_marks(letter: str, mark: str) -> bool:
    if letter in "еЕ":
        return mark == "\u0308"
    name = unicodedata.name(letter, "")
    return name.startswith(("LATIN", "GREEK", "ARABIC", "HEBREW"))


def _parted(name: str) -> tuple[str, str, str]:
    """Return a name's words, what stands in parentheses behind them, and its acronym."""
    bare = _acronym(name)
    if bare:
        return name, "", bare
    found = _ASIDE.match(name)
    if found is None:
        return name, "", ""
    base, aside = found.group(1).strip(), found.group(2).strip()
    for short, long in ((aside, base), (base, aside)):  # "Proof of Work (PoW)", and "PoW (Proof of Work)"
        inside = _acronym(short)
        if inside and is_acronym_of(inside, long):
            return long, "", inside
    return base, aside, ""


def is_acronym_of(short: str, long: str) -> bool:
    """Return whether a short form's letters stand in a long form in their order, the first one beginning it.

    After Schwartz and Hearst (2003), read from the end: the first letter must begin a word.

    >>> is_acronym_of("WHO", "World Health Organization"), is_acronym_of("TCP", "Internet Protocol")
    (True, False)
    """
    letters = [ch.casefold() for ch in short if ch.isalnum()]
    text = long.casefold()
    if len(letters) < 2 or len(text) <= len(letters):
        return False
    place = len(text) - 1
    for at in range(len(letters) - 1, -1, -1):
        while place >= 0 and (text[place] != letters[at] or (at == 0 and place > 0 and text[place - 1].isalnum())):
            place -= 1
        if place < 0:
            return False
        place -= 1
    return not any(ch.isalnum() for ch in text[: place + 1])


def _acronym(text: str) -> str:
    """Return a text without dots and plural where it is one word with two capitals at least, else an empty text."""
    plain = text.replace(".", "")
    if not 2 <= len(plain) <= 10 or not plain.replace("-", "").isalnum() or sum(ch.isupper() for ch in plain) < 2:
        return ""
    return plain.removesuffix("s") if len(plain) > 2 else plain


def _in_order(name: str) -> str:
    """Return "Abraham Lincoln" for "Lincoln, Abraham"."""
    last, comma, first = name.partition(",")
    given, family_name = first.split(), last.split()
    if not comma or "," in first or not 1 <= len(given) <= 3 or any(ch.isdigit() for ch in name):
        return name
    if len(family_name) > 1 and family_name[0].casefold() not in PARTICLES:
        return name
    if {word.strip(".").casefold() for word in given} & (_NOT_INVERTED | RANKS):
        return name
    return f"{first.strip()} {last.strip()}"


def tokens_of(text: str, family: str) -> list[str]:
    """Return the words, numbers and distinguishing signs of a folded text, in order."""
    text = text.replace("&", " and ")
    if family != PERSON:
        text = _DOTTED.sub(lambda found: found.group().replace(".", ""), text)
    text = re.sub(r"(?<=[^\W\d_])['’]s\b", "", text)
    text = _APOSTROPHE.sub("", text).translate(_SAME_MARKS)
    for typed, sign in _TYPED_SIGNS:
        text = text.replace(typed, sign)
    if text.isascii():
        return _ASCII_TOKENS.findall(text)
    spaced: list[str] = []
    before = ""
    for ch in text:
        kind = unicodedata.category(ch)[0]
        here = "N" if ch.isdecimal() else "L" if kind in "LM" else ch if _is_mark(ch) else " "
        if (here != before or here == ch) and before != " ":
            spaced.append(" ")
        if here != " ":
            spaced.append(str(unicodedata.decimal(ch)) if here == "N" else ch)
        before = here
    return "".join(spaced).split()


def _is_mark(word: str) -> bool:
    """Return whether a word is one sign that distinguishes names: of arithmetic, relation, currency, `*` or `!`."""
    return len(word) == 1 and (word in _MARKS or unicodedata.category(word) in ("Sm", "Sc"))


def _without_title(words: list[str]) -> tuple[str, list[str]]:
    title = ""
    while len(words) > 1 and words[0] in TITLES:
        title, words = words[0], words[1:]
    if len(words) == 1:
        for suffix in ("先生", "さん", "様"):
            if words[0].endswith(suffix) and len(words[0]) > len(suffix) + 1:
                return suffix, [words[0].removesuffix(suffix)]
    return title, words


def _without_legal_form(words: list[str]) -> tuple[str, list[str]]:
    legal = ""
    while len(words) > 1 and words[-1] in LEGAL_FORMS:
        legal, words = LEGAL_FORMS[words[-1]], words[:-1]
    if words and words[-1] == "and" and legal and len(words) > 1:  # "& Co."
        words = words[:-1]
    if len(words) == 1:
        for form in UNSPACED_LEGAL_FORMS:
            bare = words[0].removesuffix(form).removeprefix(form)
            if len(bare) > 1 and bare != words[0]:
                return form, [bare]
    return legal, words


def _numbered(words: list[str], capitals: set[str], family: str) -> tuple[list[str], list[str]]:
    """Return the words with numbers written in digits, and what tells the name apart from others like it.

    The fourth season is not four seasons, but Henry the 4th is Henry IV.
    """
    result: list[str] = []
    marks: list[str] = []
    for at, word in enumerate(words):
        after = result[-1] if result else ""
        if word in ORDINAL_ENDINGS and after.isdigit():
            result[-1] += "" if family == PERSON else "th"
            continue
        an_initial = family == PERSON and len(word) == 1 and word.isalpha() and at < len(words) - 1
        number = "" if an_initial else _number_in(word, at, capitals)
        if number and family == PERSON and after == "the":  # Henry the 4th
            result.pop()
        if number:
            marks.append(number)
            word = f"{number}th" if word in ORDINALS and family != PERSON else number
        elif word != "!" and (_is_mark(word) or (len(word) == 1 and family != PERSON and word.isascii())):
            marks.append(word)
        else:
            marks.extend(ch for ch in word if ch in _CJK_NUMERALS)
        result.append(word)
    return result, marks


def _number_in(word: str, at: int, capitals: set[str]) -> str:
    if word[0].isdigit():
        plain = word.replace(",", "")
        return plain.lstrip("0") or "0"
    if word in NUMBER_WORDS or word in ORDINALS:
        return NUMBER_WORDS.get(word) or ORDINALS[word]
    if at and word.upper() in capitals and (len(word) > 1 or word in "ivx") and _ROMAN.fullmatch(word):
        values = [_ROMAN_VALUES[ch] for ch in word]
        return str(sum(-v if v < w else v for v, w in zip(values, [*values[1:], 0], strict=True)))
    return ""


def _singular(words: list[str], shouted: bool) -> list[str]:
    """Return the words without an English plural's ending."""
    return [_singular_word(word, shouted) for word in words]


def _singular_word(word: str, shouted: bool) -> str:
    if len(word) < 4 or not word.isascii() or word in NO_PLURALS or not word.endswith("s"):
        return word
    if word.endswith(("ss", "us", "is", "ics")) or (shouted and len(word) < 6):
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("ches", "shes", "xes", "sses", "zzes")):
        return word[:-2]
    return word[:-1]
