"""Forms of names in which spellings of one name are equal, and rules that keep apart what surely is two things.

The form of a name forgets what spellings differ in (punctuation, accents, articles, plural, a company's legal form, a
title). Features that distinguish two things (numbers, text in parentheses, gender) are kept separately. The rules read
word lists of `words.toml`, which describes them.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from dataclasses import dataclass
from difflib import SequenceMatcher
from importlib.resources import files
from itertools import combinations, dropwhile

_LISTS: dict[str, str] = tomllib.loads(files(__package__).joinpath("words.toml").read_text(encoding="utf-8"))


def _words(name: str) -> frozenset[str]:
    return frozenset(_LISTS[name].split())


def _first_words(name: str) -> dict[str, str]:
    """Return the first word of each word's group."""
    return {word: group.split()[0] for group in _LISTS[name].split(";") for word in group.split()}


SMALL_WORDS, FEMALE_ENDINGS, NEGATIONS = map(_words, ("small_words", "female_endings", "negations"))
NO_PLURALS = _words("no_plurals")
TITLES, FEMALE_TITLES, MALE_TITLES = map(_words, ("titles", "female_titles", "male_titles"))
BEFORE_NAMES = TITLES | FEMALE_TITLES | MALE_TITLES | _words("ranks")
NUMBERS = {word: str(number) for number, group in enumerate(_LISTS["numbers"].split(";")) for word in group.split()}
ORDINALS = {group.split()[-1] for group in _LISTS["numbers"].split(";")}
LEGAL_FORMS = _first_words("legal_forms")
NICKNAMES = _first_words("nicknames")
FAMILIES = _first_words("families")
CONTRASTS = [frozenset(group.split()) for group in _LISTS["contrasts"].split(";")]
PERSON, ORGANIZATION, LOCATION, UNKNOWN = "person", "organization", "location", "unknown"
_LONGEST = 12  # words of a name of which another name can be a part

_ASIDE = re.compile(r"^(.+?)\s*\(\s*([^()]+?)\s*\)$")
_ARTICLE = re.compile(r"^(?:(?i:the)|an?)\s+(?=\S)")  # "A Division" keeps its letter
_DOTTED = re.compile(r"(?<![^\W_])(?:[^\W\d_]\.)+[^\W\d_](?![^\W_])\.?")  # U.S., also where the last dot was cut
_POSSESSIVE = re.compile(r"^(.+?[^\W\d_])['’](?:s\b)?\s+(.+)$", re.IGNORECASE)
_APOSTROPHE = re.compile(r"(?<=[^\W\d_])['’]s\b|['’`ʼ]")
_ACCENT = re.compile("(?<![иі])[\u0300-\u0334]|[\u064b-\u065f\u0591-\u05c7]")  # й and ї are letters of their own
_PLURAL = re.compile(r"(?<=[a-z]{2})(?:(ies)|(?<=ch|sh|ss|zz)es|(?<=x)es|(?<=[a-z]{3})(?<![sui])(?<!ic)s)$")
_SIGNS = r"#%*$+=<>¢-¥±×÷\u20a0-\u20cf\u2200-\u22ff"  # of arithmetic, relation and currency
_TOKEN = re.compile(
    rf"\d+(?:[.,]\d+)*|[{_SIGNS}]|[^\s\d_!-/:-@\[-`{{-¿×÷\u060c\u061b\u061f\u2000-\u2bff\u3000-\u303f\u30fb]+"
)
_TENS, _ONES = ("", "x", "xx", "xxx", "xl", "l", "lx"), ("", "i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix")
_ROMAN = {ten + one: f"{10 * tens + ones}" for tens, ten in enumerate(_TENS) for ones, one in enumerate(_ONES)}
_ROMAN = {numeral: number for numeral, number in _ROMAN.items() if len(numeral) > 2 or "l" not in numeral}  # XL, LI


@dataclass(frozen=True, slots=True)
class NameForm:
    """A name as it is compared.

    Attributes:
        text: its folded words; spellings of one name have the same.
        family: what kind of thing it names, of a few.
        numbers: every number in it, sorted: digits, Roman, words, ordinals, Chinese; signs ("C++", "$10", "x ≤ y"); and
            single letters where it is no person's ("Vitamin A").
        aside: what stood in parentheses at its end, folded; empty for an acronym, which is in `acronym`.
        acronym: the name, or the text in parentheses after it, where that is in capitals; else empty.
        addition: a person's title or a company's legal form that was dropped ("mr", "inc").
        plural: whether its last word lost an English plural's ending.
    """

    text: str
    words: tuple[str, ...]
    family: str
    numbers: tuple[str, ...]
    aside: str
    acronym: str
    addition: str
    plural: bool

    @property
    def meaningful(self) -> frozenset[str]:
        """Its words without small ones."""
        return frozenset(self.words) - SMALL_WORDS

    @property
    def given(self) -> tuple[str, ...]:
        """A person's words without the titles and ranks before them."""
        return tuple(dropwhile(BEFORE_NAMES.__contains__, self.words)) or self.words[-1:]

    @property
    def person(self) -> tuple[str, ...]:
        """A person's words without titles; none for names of other things and of several people."""
        return () if self.family != PERSON or self.aside or {"of", "and"}.intersection(self.words) else self.given

    @property
    def spellings(self) -> set[str]:
        """Its text, its letters, and its words in the order of the alphabet where it has several."""
        words = (*self.words, *self.aside.split())
        in_order = sorted(word for word in words if word not in SMALL_WORDS)
        others = ("".join(words), " ".join(in_order) if len(in_order) > 1 else "")
        return {self.text, *(key for key in others if len(key) > 3)} - {""}

    @property
    def initials(self) -> set[str]:
        """The acronyms that it may have: of all its words, and without the small ones; 2 letters at least."""
        words = [word for word in self.words if word[0].isalpha()]
        large = [word for word in words if word not in SMALL_WORDS]
        return {"".join(word[0] for word in some).upper() for some in (words, large) if 2 <= len(some) <= 8}

    @property
    def called(self) -> set[str]:
        """How other names may mention it: its text, and the acronym that it is."""
        return {self.text, self.acronym.upper() if len(self.words) == 1 else ""} - {""}

    @property
    def namesakes(self) -> set[str]:
        """A person's surname with the first letters of the given name."""
        words = self.person
        if len(words) < 2 or words[-1].isdigit():
            return set()
        first = NICKNAMES.get(words[0], words[0])
        return {f"{words[-1]} {first[:3]}", f"{words[-1]} {first[0]}"}

    @property
    def parts(self) -> list[str]:
        """Its words and pairs of words: one of them is the key of a name whose words are all there."""
        words = sorted(self.meaningful)[:_LONGEST]
        return [*words, *map(" ".join, combinations(words, 2))]


def name_form(name: str, kind: str) -> NameForm:
    """Return how the name of an entity of a type, `kind`, is compared.

    >>> name_form("The Ghost of Marley", "person").text == name_form("MARLEY’S GHOST", "person").text
    True
    """
    family = FAMILIES.get(kind.strip().casefold(), "thing" if kind.strip() else UNKNOWN)
    base, aside, acronym = _parted(_ARTICLE.sub("", unicodedata.normalize("NFKC", name).strip()))
    if family in (LOCATION, ORGANIZATION) and not aside:  # "Cranbrook, Kent"
        base, _, aside = base.partition(", ")
    base = _POSSESSIVE.sub(r"\2 of \1", base)
    words, addition = tokens_of(base, family != PERSON), ""
    while family == PERSON and len(words) > 1 and words[0] in TITLES:
        addition, *words = words
    while family == ORGANIZATION and len(words) > 1 and words[-1] in LEGAL_FORMS:
        addition = LEGAL_FORMS[words.pop()]
    words, numbers = _numbered(words, base, family)
    beside = tokens_of(aside, family != PERSON)
    singular = words if family == PERSON else [_singular(word, base.isupper()) for word in words]
    return NameForm(
        text=" ".join(singular),
        words=tuple(singular),
        family=family,
        numbers=tuple(sorted([*numbers, *(word for word in beside if word[0].isdigit())])),
        aside=" ".join(beside),
        acronym=acronym,
        addition=addition,
        plural=singular[-1:] != words[-1:],
    )


def tokens_of(text: str, joins_initials: bool = True) -> list[str]:
    """Return the folded words, numbers and distinguishing signs of a text, in order.

    Accents go where a script writes names with and without them; marks that make another letter (Japanese が, Hindi
    vowels, й) stay.

    Args:
        joins_initials: U.S. is one word.

    >>> tokens_of("Fianna Fáil's C#")
    ['fianna', 'fail', 'c', '#']
    """
    text = text.casefold()
    if joins_initials and "." in text:
        text = _DOTTED.sub(lambda found: found[0].replace(".", ""), text)
    text = _APOSTROPHE.sub("", text)
    text = unicodedata.normalize("NFC", _ACCENT.sub("", unicodedata.normalize("NFD", text)))
    return _TOKEN.findall(text.replace("!=", "≠").replace("<=", "≤").replace(">=", "≥"))


def _singular(word: str, in_capitals: bool) -> str:
    """Return a word without an English plural's ending; AIDS and news have none."""
    if word in NO_PLURALS or (in_capitals and len(word) < 6):
        return word
    return _PLURAL.sub(lambda end: "y" if end[1] else "", word)


def _parted(name: str) -> tuple[str, str, str]:
    """Return a name's words, what stands in parentheses behind them, and its acronym."""
    found = _ASIDE.match(name)
    if found is None:
        return name, "", _acronym(name)
    base, aside = found.groups()
    for short, long in ((aside, base), (base, aside)):  # "Proof of Work (PoW)", and "PoW (Proof of Work)"
        if is_acronym_of(_acronym(short), long):
            return long, "", _acronym(short)
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
    plain = text.replace(".", "").removesuffix("s")
    return plain if len(plain) <= 10 and plain.isalnum() and sum(map(str.isupper, plain)) > 1 else ""


def _numbered(words: list[str], base: str, family: str) -> tuple[list[str], list[str]]:
    """Return the words with numbers written in digits, and what tells the name apart from others like it."""
    result: list[str] = []
    marks: list[str] = []
    for at, word in enumerate(words):
        is_initial = family == PERSON and len(word) == 1 and word.isalpha()
        number = NUMBERS.get(word) or (_ROMAN.get(word) if at and word.upper() in base else None)
        if word[0].isdigit():
            number = word.replace(",", "").lstrip("0") or "0"
        if number and not (is_initial and at < len(words) - 1):  # "V. Smith"
            marks.append(number)
            result.append(f"{number}th" if word in ORDINALS else number)
        else:
            marks.extend(word if len(word) == 1 and not is_initial else filter(str.isnumeric, word))
            result.append(word)
    return result, marks


def known_different(one: NameForm, other: NameForm) -> bool:
    """Return whether two names are two things.

    Numbers, versions and dates that differ ("Henry IV", "Henry V"); a negation or one of two opposites; what stands in
    parentheses; a man's title and a woman's; two given names with one surname.
    """
    if one.numbers != other.numbers or (one.aside and other.aside and one.aside != other.aside):
        return True
    words, others = set(one.words), set(other.words)
    if not NEGATIONS.isdisjoint(words ^ others) and not (one.acronym or other.acronym):  # the UN
        return True
    if any((words - others) & group and (others - words) & group for group in CONTRASTS):
        return True
    if not one.family == other.family == PERSON:
        return False
    if _gender(one) * _gender(other) < 0 or ("of" in words ^ others and words & others):
        return True  # "Scrooge's nephew", whose form is "nephew of Scrooge", is another person
    mine, yours = one.given, other.given
    return len(mine) > 1 and len(yours) > 1 and mine[-1] == yours[-1] and not same_given_names(mine, yours)


def compatible(one: NameForm, other: NameForm) -> bool:
    """Return whether two names can be one entity's: not known to differ, and not with words of its own on each side."""
    if len({one.family, other.family} - {UNKNOWN}) > 1 or known_different(one, other):
        return False
    if one.acronym or other.acronym:
        return True
    if one.initials & {*other.text.upper().split()} or other.initials & {*one.text.upper().split()}:
        return True
    if one.family == other.family == PERSON:
        mine, yours = one.given, other.given
        return mine[-1:] == yours[-1:] or set(mine) <= set(yours) or set(yours) <= set(mine)
    left, right = one.meaningful - other.meaningful, other.meaningful - one.meaningful
    return not (left and right) or all(any(is_close(word, twin) for twin in right) for word in left)


def _gender(form: NameForm) -> int:
    words = {form.addition, *form.words[:1]}
    return bool(words & MALE_TITLES) - bool(words & FEMALE_TITLES)


def same_given_names(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Return whether two full names with one surname can be one person's: the given names that both have agree.

    >>> same_given_names(("john", "lee", "thompson"), ("j", "thompson"))
    True
    >>> same_given_names(("george", "w", "bush"), ("george", "h", "w", "bush"))
    False
    """
    return all(map(same_given_name, one[:-1], other[:-1]))


def same_given_name(one: str, other: str) -> bool:
    """Return whether two given names can be one person's: equal, an initial, a short form or a nickname.

    >>> same_given_name("j", "john"), same_given_name("bob", "robert"), same_given_name("peter", "martha")
    (True, True, False)
    """
    short, long = sorted((NICKNAMES.get(one, one), NICKNAMES.get(other, other)), key=len)
    starts = long.startswith(short) and len(short) != 2 and long.removeprefix(short) not in FEMALE_ENDINGS
    return short == long or starts


def is_close(one: str, other: str) -> bool:
    """Return whether two words are spelled much alike: the same first letter, and three letters of four in order."""
    is_long = one[0] == other[0] and min(len(one), len(other)) > 3
    return one == other or (is_long and SequenceMatcher(None, one, other).ratio() >= 0.7)
