"""Normal forms of names for comparison, with their distinguishing features kept separately.

The form of a name forgets what spellings differ in (punctuation, accents, articles, plural, a company's legal form, a
title). Features that distinguish two things (numbers, text in parentheses,
gender) are kept separately, for `negative_rules`.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import cache

from hirag_dist.core.entities.resolution import word_lists as lists

PERSON, ORGANIZATION, LOCATION, UNKNOWN = "person", "organization", "location", "unknown"
LETTERS = {"ø": "o", "ł": "l", "đ": "d", "ð": "d", "ħ": "h", "ı": "i", "œ": "oe", "æ": "ae"}  # no marks in Unicode

_BEFORE_NAMES = lists.RANKS | lists.TITLES | lists.FEMALE_TITLES
_ASIDE = re.compile(r"^(.+?)\s*\(([^()]+)\)$")
_THE = re.compile(r"^the\s+(?=\S)", re.IGNORECASE)
_DOTTED = re.compile(r"(?<![^\W_])(?:[^\W\d_]\.)+[^\W\d_](?![^\W_])\.?")  # U.S., also where the last dot was cut
_POSSESSIVE = re.compile(r"^(.+?[^\W\d_])['’](?:s\b)?\s+(.+)$", re.IGNORECASE)
_APOSTROPHE = re.compile(r"(?<=[^\W\d_])['’]s\b|['’`ʼ]")
_ACCENT = re.compile("(?<![иі])[\u0300-\u0334]|[\u064b-\u065f\u0591-\u05c7]")  # й and ї are letters of their own
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_ROMAN = re.compile(r"(?=[ivx]+$|[ivxl]{3,}$)(xl|l?x{0,3})(ix|iv|v?i{0,3})")  # DC and MD are no numbers
_ROMAN_VALUES = {"i": 1, "v": 5, "x": 10, "l": 50}
_SPELLINGS = str.maketrans(
    {"\N{MINUS SIGN}": "-", "\N{FRACTION SLASH}": "/", "\N{MUSIC SHARP SIGN}": "#", "&": " and "}
    | LETTERS
    | dict(zip("أإآٱىةـ", ["ا", "ا", "ا", "ا", "ي", "ه", ""], strict=True))
)
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

    @property
    def meaningful(self) -> frozenset[str]:
        """Its words without small ones."""
        return frozenset(self.words) - lists.SMALL_WORDS

    @property
    def given(self) -> tuple[str, ...]:
        """A person's words without the titles and ranks before them."""
        words = self.words
        while len(words) > 1 and words[0] in _BEFORE_NAMES:
            words = words[1:]
        return words

    @property
    def unordered(self) -> frozenset[str]:
        """Its letters, and its words in the order of the alphabet, where there is enough of them."""
        words = (*self.words, *self.aside.split())
        in_order = sorted(word for word in words if self.family == PERSON or word not in lists.SMALL_WORDS)
        return frozenset(
            key for key in ("".join(words), " ".join(in_order) if len(in_order) > 1 else "") if len(key) > 3
        )

    @property
    def initials(self) -> frozenset[str]:
        """The acronyms that it may have: of all its words, and without the small ones; 2 letters at least."""
        words = [word for word in self.words if word[0].isalpha()]
        every = "".join(word[0] for word in words)
        large = "".join(word[0] for word in words if word not in lists.SMALL_WORDS)
        return frozenset(short for short in (every, large) if 2 <= len(short) <= 8)


def name_form(name: str, kind: str) -> NameForm:
    """Return how a name is compared.

    Args:
        kind: the entity's type.

    >>> name_form("The Ghost of Marley", "person").text == name_form("MARLEY’S GHOST", "person").text
    True
    """
    family = lists.FAMILIES.get(kind.strip().casefold(), "thing" if kind.strip() else UNKNOWN)
    base, aside, acronym = _parted(_THE.sub("", unicodedata.normalize("NFKC", name).strip()))
    if family in (LOCATION, ORGANIZATION) and not aside:  # "Cranbrook, Kent"
        base, _, aside = base.partition(", ")
    possessive = _POSSESSIVE.match(base)
    if possessive:
        base = f"{possessive.group(2)} of {possessive.group(1)}"
    capitals = {word.strip(".,") for word in base.split() if word.isupper()}
    words = tokens_of(base, family != PERSON)
    legal = title = ""
    if len(words) > 1 and base.split()[0] in lists.ARTICLES:  # "A Division" keeps its letter
        words = words[1:]
    while family == PERSON and len(words) > 1 and words[0] in lists.TITLES:
        title, words = words[0], words[1:]
    while family == ORGANIZATION and len(words) > 1 and words[-1] in lists.LEGAL_FORMS:
        legal, words = lists.LEGAL_FORMS[words[-1]], words[:-1]
    if legal and words[-1] == "and" and len(words) > 1:  # "& Co."
        words = words[:-1]
    if len(words) == 1 and (bare := _without_addition(words[0])) != words[0]:
        title, legal, words = (words[0], "", [bare]) if family == PERSON else ("", words[0], [bare])
    words, numbers = _numbered(words, capitals, family)
    if base[:1] in "-−" and len(words) == len(numbers) == 1:
        numbers.append("-")
    last = words[-1:]
    if family != PERSON:
        words = [word if base.isupper() and len(word) < 6 else _singular(word) for word in words]
    return NameForm(
        text=" ".join(words),
        words=tuple(words),
        family=family,
        numbers=tuple(sorted([*numbers, *_NUMBER.findall(aside)])),
        aside=" ".join(tokens_of(aside, family != PERSON)) if aside else "",
        acronym=acronym,
        title=title,
        legal=legal,
        possessive=possessive is not None or "of" in words,
        plural=last != words[-1:],
    )


def tokens_of(text: str, joins_initials: bool = True) -> list[str]:
    """Return the folded words, numbers and distinguishing signs of a text, in order.

    Accents go where a script writes names with and without them; marks that make another letter (Japanese が, Hindi
    vowels, й) stay.

    Args:
        joins_initials: U.S. is one word.

    >>> tokens_of("Fianna Fáil's C♯")
    ['fianna', 'fail', 'c', '#']
    """
    text = text.casefold()
    if joins_initials and "." in text:
        text = _DOTTED.sub(lambda found: found.group().replace(".", ""), text)
    text = _APOSTROPHE.sub("", text).translate(_SPELLINGS)
    if not text.isascii():
        text = unicodedata.normalize("NFC", _ACCENT.sub("", unicodedata.normalize("NFD", text)))
    text = text.replace("!=", "≠").replace("<=", "≤").replace(">=", "≥")
    return [str(int(word)) if word.isdecimal() and not word.isascii() else word for word in _words().findall(text)]


@cache
def _words() -> re.Pattern[str]:
    """Return the pattern of words, numbers and signs of arithmetic, relation, currency, `#`, `%`, `*` and `!`."""
    kinds: dict[str, list[str]] = {}
    for code in range(0x20000):
        kinds.setdefault(unicodedata.category(chr(code)), []).append(chr(code))
    marks, signs = (re.escape("".join(ch for kind in names for ch in kinds[kind])) for names in (_MARKS, _SIGNS))
    return re.compile(rf"\d+(?:[.,]\d+)*|(?:[^\W\d_]|[{marks}])+|[{signs}#%*!]")


_MARKS, _SIGNS = ("Mn", "Mc", "Me"), ("Sm", "Sc")


def _is_mark(word: str) -> bool:
    return len(word) == 1 and (word in "#%*!" or unicodedata.category(word) in _SIGNS)


def _parted(name: str) -> tuple[str, str, str]:
    """Return a name's words, what stands in parentheses behind them, and its acronym."""
    found = _ASIDE.match(name)
    if found is None or (bare := _acronym(name)):
        return name, "", _acronym(name)
    base, aside = found.group(1).strip(), found.group(2).strip()
    for short, long in ((aside, base), (base, aside)):  # "Proof of Work (PoW)", and "PoW (Proof of Work)"
        bare = _acronym(short)
        if bare and is_acronym_of(bare, long):
            return long, "", bare
    return base, aside, ""


def is_acronym_of(short: str, long: str) -> bool:
    """Return whether a short form's letters stand in a long form in their order, the first one beginning it.

    After Schwartz and Hearst (2003).

    >>> is_acronym_of("WHO", "World Health Organization"), is_acronym_of("TCP", "Internet Protocol")
    (True, False)
    """
    letters = [re.escape(ch) for ch in short.casefold() if ch.isalnum()]
    return 1 < len(letters) < len(long) and re.match(r"\W*" + ".*?".join(letters), long.casefold()) is not None


def _acronym(text: str) -> str:
    """Return a text without dots and plural where it is one word with two capitals at least, else an empty text."""
    plain = text.replace(".", "")
    if not 2 <= len(plain) <= 10 or not plain.replace("-", "").isalnum() or sum(ch.isupper() for ch in plain) < 2:
        return ""
    return plain.removesuffix("s") if len(plain) > 2 else plain


def _without_addition(word: str) -> str:
    """Return an unspaced name without a title or a company's legal form."""
    for addition in lists.UNSPACED_ADDITIONS:
        bare = word.removesuffix(addition).removeprefix(addition)
        if len(bare) > 1 and bare != word:
            return bare
    return word


def _numbered(words: list[str], capitals: set[str], family: str) -> tuple[list[str], list[str]]:
    """Return the words with numbers written in digits, and what tells the name apart from others like it.

    The fourth season is not four seasons, but Henry the 4th is Henry IV.
    """
    result: list[str] = []
    marks: list[str] = []
    for at, word in enumerate(words):
        after = result[-1] if result else ""
        if word in lists.ORDINAL_ENDINGS and after.isdigit():
            result[-1] += "" if family == PERSON else "th"
            continue
        an_initial = family == PERSON and len(word) == 1 and word.isalpha() and at < len(words) - 1
        number = "" if an_initial else _number_in(word, at, capitals)
        if number and family == PERSON and after == "the":  # Henry the 4th
            result.pop()
        if number:
            marks.append(number)
            word = f"{number}th" if word in lists.ORDINALS and family != PERSON else number
        elif word != "!" and (_is_mark(word) or (len(word) == 1 and family != PERSON and word.isascii())):
            marks.append(word)
        else:
            marks.extend(ch for ch in word if ch in _CJK_NUMERALS)
        result.append(word)
    return result, marks


def _number_in(word: str, at: int, capitals: set[str]) -> str:
    if word[:1].isdigit():
        return word.replace(",", "").lstrip("0") or "0"
    if word in lists.NUMBER_WORDS or word in lists.ORDINALS:
        return lists.NUMBER_WORDS.get(word) or lists.ORDINALS[word]
    if at and word.upper() in capitals and (len(word) > 1 or word in "ivx") and _ROMAN.fullmatch(word):
        values = [_ROMAN_VALUES[ch] for ch in word]
        return str(sum(-v if v < w else v for v, w in zip(values, [*values[1:], 0], strict=True)))
    return ""


def _singular(word: str) -> str:
    """Return the word without an English plural's ending."""
    if len(word) < 4 or not word.isascii() or word in lists.NO_PLURALS or not word.endswith("s"):
        return word
    if word.endswith(("ss", "us", "is", "ics")):
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    return word[:-2] if word.endswith(("ches", "shes", "xes", "sses", "zzes")) else word[:-1]
