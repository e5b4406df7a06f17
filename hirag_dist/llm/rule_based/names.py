"""Proper names: runs of capitalised words, judged by how the same words are written elsewhere in the text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hirag_dist.llm.rule_based.language import (
    ADJECTIVE,
    DATES,
    DEMONYMS,
    FOREIGN,
    FUNCTION,
    MONTHS,
    PLACES,
    STOP,
    STRUCTURE,
    VERB,
    is_common,
    is_everyday,
    singular,
    word_class,
    word_list,
    word_set,
)
from hirag_dist.types import FoundName

_OPENERS = frozenset("\"“‘«([:…•*-—–„'|")
_LINKS = word_set("of de van von der den du da di la le del dos das al el bin bint ibn af av zu of-the")
_PLACE_WORDS = word_set("in at near throughout outside across around в из на")
_KIND_OF_TAIL = {  # last word of a name → kind, the later of two that name it
    word: kind
    for kind in ("technology", "product", "event", "location", "organization")
    for word in word_list(f"{kind}_tails")
}
_EVENT_TAILS = word_list("event_tails")
_TAILS = (
    word_list("organization_tails")
    | word_list("location_tails")
    | _EVENT_TAILS
    | word_set("day law theorem disease creek")
)
_PERSON_TITLES, _PLAIN_TITLES, _FIRST_NAMES = (
    word_list("person_titles"),
    word_list("plain_titles"),
    word_list("first_names"),
)
_SPEECH = word_list("speech")
_VERBS_NEXT = word_set("is was has had are were will would did does can could may might") | _SPEECH
_ROMAN = re.compile(r"[ivxlc]+\.?$")
_SPARE_TITLES = word_set("mr mrs ms dr prof professor agent agents")  # before a name in full
_CAPITAL_WORDS = frozenset(("US", "UK", "UN", "EU", "IT", "WHO"))
_MAX_WORDS = 7


@dataclass(slots=True)
class _Seen:
    forms: Counter[str] = field(default_factory=Counter)
    places: list[tuple[int, int]] = field(default_factory=list)
    sure: int = 0  # times in a place where a capital says something
    after_place: int = 0
    speaking: int = 0
    subject: int = 0  # times a verb such as "is" comes next

    def add(self, other: _Seen) -> None:
        """Add the places and counts of a short form."""
        self.places += other.places
        self.sure += other.sure
        self.speaking += other.speaking
        self.after_place += other.after_place


class Spelling:
    """Counts of each word of a text in lower case and, where that is informative, with a capital letter."""

    def __init__(self, sentences: Sequence[Sequence[str]]) -> None:
        self.small: Counter[str] = Counter()
        self.capital: Counter[str] = Counter()
        self.titled: list[bool] = []
        for words in sentences:
            titled = _is_title(words)
            self.titled.append(titled)
            previous = "…"
            for word in words:
                if word[0].isupper():
                    if not titled and previous not in _OPENERS and previous not in ".!?":
                        self.capital[bare(word).lower()] += 1
                elif word[0].isalpha():
                    self.small[bare(word)] += 1
                previous = word


def bare(word: str) -> str:
    """Return a word without the possessive ending."""
    if word[-1] in "'’":
        return word[:-1]
    return word[:-2] if len(word) > 2 and word[-2] in "'’" and word[-1] in "sS" else word


def find_names(sentences: Sequence[Sequence[str]], spelling: Spelling) -> list[FoundName]:
    """Return the proper names of a text, short forms joined to the full name where only one can be meant."""
    seen: dict[str, _Seen] = {}
    for number, words in enumerate(sentences):
        for start, end in _spans(words):
            _note(seen, number, words, start, end, spelling)
    kept = {key: one for key, one in seen.items() if _is_good(key, one, spelling)}
    merged = _join_short_forms(kept)
    return [_found(one, spelling) for one in merged]


def _is_title(words: Sequence[str]) -> bool:
    """A heading or headline, where nearly every word has a capital: capitals say nothing there."""
    if words[-1] in ".!?" and len(words) > 1:
        return False
    content = [word for word in words if len(word) > 3 and word[0].isalpha()]
    return len(content) >= 3 and sum(word[0].isupper() for word in content) >= 0.8 * len(content)


def _can_begin(word: str) -> bool:
    if not word[0].isupper():
        return False
    low = bare(word).lower()
    if low in FUNCTION or low in STRUCTURE or (low in FOREIGN and len(low) < 5):
        return word in _CAPITAL_WORDS or (len(word) == 2 and word[1] == ".") or (low in _FIRST_NAMES and low != "will")
    return True


def _goes_on(word: str) -> bool:
    if not word[0].isupper():
        return len(word) > 3 and ((word[1] in "'’" and word[2].isupper()) or (word[2] in "-'’" and word[3].isupper()))
    low = bare(word).lower()
    return (
        (low not in FUNCTION and low not in STRUCTURE) or (len(word) == 2 and word[1] == ".") or low in ("house", "act")
    )


def _spans(words: Sequence[str]) -> Iterable[tuple[int, int]]:
    """Yield (first, one past the last) of each run of capitalised words with the small words that link them."""
    n, at = len(words), 0
    while at < n:
        if not _can_begin(words[at]):
            at += 1
            continue
        end = at + 1
        while end < n and end - at < _MAX_WORDS:
            last, word = words[end - 1], words[end]
            if bare(last) != last and not (word[0].isupper() and word.lower() in _TAILS):
                break
            if _goes_on(word) or (word.isdigit() and len(word) < 3 and words[end - 1].isupper()):
                end += 1
            elif word in _LINKS and end + 1 < n and _goes_on(words[end + 1]):
                end += 2
            elif word == "of" and end + 2 < n and words[end + 1] == "the" and _goes_on(words[end + 2]):
                end += 3
            elif word == "&" and end + 1 < n and words[end + 1][0].isupper():
                end += 2
            else:
                break
        yield at, end
        at = end


def _note(seen: dict[str, _Seen], number: int, words: Sequence[str], start: int, end: int, spelling: Spelling) -> None:
    initial = start == 0 or words[start - 1] in _OPENERS or words[start - 1] in ".!?"
    sure = not initial and not spelling.titled[number]
    if initial and not _named(words, start, end, spelling):
        start += 1
        sure = start < end and words[start][0].isupper() and not spelling.titled[number]
    while start < end and (not words[start][0].isupper() or (words[start].lower() in DATES and end - start > 1)):
        start += 1
    while start < end and (
        words[end - 1].lower() in MONTHS
        or words[end - 1] in _LINKS
        or words[end - 1] == "the"
        or words[end - 1].lower() in STRUCTURE
    ):
        end -= 1
    if start >= end:
        return
    parts = [*words[start : end - 1], bare(words[end - 1])]
    if len(parts) == 1 and len(parts[0]) > 3 and parts[0][-1] == "s" and parts[0][:-1].isupper():
        parts = [parts[0][:-1]]  # CNNs
    if len(parts) > 2 and parts[0].lower().strip(".") in _SPARE_TITLES:
        parts = parts[1:]
    name = " ".join(parts)
    one = seen.setdefault(name.casefold(), _Seen())
    one.forms[name] += 1
    one.places.append((number, start))
    one.sure += sure or (end - start > 1 and not spelling.titled[number])
    one.after_place += start > 0 and words[start - 1].lower() in _PLACE_WORDS
    after = words[end] if end < len(words) else ""
    if after in ",)" and end + 1 < len(words):
        after = words[end + 1]
    one.subject += after in _VERBS_NEXT or (end < len(words) and bare(words[end - 1]) != words[end - 1])
    one.speaking += after in _SPEECH or (start > 0 and words[start - 1] in _SPEECH)


def _named(words: Sequence[str], start: int, end: int, spelling: Spelling) -> bool:
    """Check that a word with a capital that its position explains belongs to a name."""
    low = bare(words[start]).lower()
    if spelling.capital[low] and spelling.capital[low] >= spelling.small[low]:
        return True
    kind = word_class(low)
    if kind in (STOP, VERB) and low.strip(".") not in _PERSON_TITLES and len(low) > 2:
        return False
    if end - start > 1:
        return True
    return not spelling.small[low] and not is_everyday(low)


def _is_good(key: str, one: _Seen, spelling: Spelling) -> bool:
    words = key.split()
    count = len(one.places)
    if not any(ch.isalpha() for ch in key) or len(key) < 2 or all(word in DATES or word.isdigit() for word in words):
        return False
    if len(words) == 1:
        word = words[0]
        if word in DEMONYMS or word in STRUCTURE or word.strip(".") in _PERSON_TITLES or word.endswith("."):
            return False
        if word in PLACES:
            return True
        shown = one.forms.most_common(1)[0][0]
        if len(word) < 3 and not (shown.isupper() and count > 1):
            return False
        if _ROMAN.match(word) or word_class(word) == ADJECTIVE:
            return False
        if is_everyday(word) and (spelling.small[word] or one.sure < 3):
            return False
        if not one.sure and not one.subject and count < 3:
            return False
        if spelling.small[word] > one.sure:
            return False
        if any(ch.isdigit() for ch in word) and not (count > 1 and sum(map(str.isalpha, word)) > 1):
            return False
        return one.sure > 0 or len(word) > 3
    if all(len(word.strip(".")) < 2 or word in FUNCTION or _ROMAN.match(word) for word in words):
        return False
    if len(set(words)) < len(words) and len(words) < 4:
        return False
    if all(is_common(word) or word in DEMONYMS for word in words):
        return one.sure > 0 and not all(spelling.small[word] for word in words)
    return True


def _join_short_forms(seen: Mapping[str, _Seen]) -> list[_Seen]:
    """Give the places of "Scrooge" and "Mr. Scrooge" to "Ebenezer Scrooge" where that is the only such name."""
    full: dict[str, list[str]] = {}  # first or last word → names in full, most frequent first
    for key in sorted(seen, key=lambda key: (-len(seen[key].places), key)):
        words = key.split()
        if 1 < len(words) < 5 and words[0].strip(".") not in _PLAIN_TITLES and _could_be_person(key):
            for word in {words[0], words[-1]}:
                full.setdefault(word, []).append(key)
    kept = dict(seen)
    for key, one in seen.items():
        words = key.split()
        is_titled = len(words) > 1 and words[0].strip(".") in _PLAIN_TITLES
        rest = " ".join(words[1:] if is_titled else words)
        counts = [len(seen[name].places) for name in full.get(rest, ())]
        goal = rest if is_titled and rest in seen else ""
        if " " not in rest and key not in PLACES and counts and counts[0] >= 3 * max(counts[1:], default=0):
            goal = full[rest][0]
        if goal and goal in kept:
            del kept[key]
            kept[goal].add(one)
    return list(kept.values())


def _could_be_person(key: str) -> bool:
    words = key.split()
    if words[-1] in _TAILS or key in PLACES or any(word in ("of", "the", "&") for word in words):
        return False
    first = words[0].strip(".")
    return first in _FIRST_NAMES or first in _PERSON_TITLES or (not is_common(words[0]) and first not in DEMONYMS)


def _found(one: _Seen, spelling: Spelling) -> FoundName:
    name = max(one.forms, key=lambda form: (one.forms[form], not form.isupper(), form))
    count = len(one.places)
    plain = any(word[0].isupper() and spelling.small[word.lower()] for word in name.split())
    kind = name_kind(name, plain, one.after_place, one.speaking, count)
    places = tuple(sorted(set(one.places)))
    score = count + 0.5 * (" " in name) + 0.4 * (kind != "concept") + 0.3 * (one.sure > 0)
    return FoundName(name, kind, places, score)


_OF = ("of", "de", "di", "da", "d'", "d’")
_EVENT_HEADS, _ORGANIZATION_HEADS, _LOCATION_HEADS = (
    word_list(f"{kind}_heads") for kind in ("event", "organization", "location")
)


def name_kind(name: str, plain: bool, places: int, speech: int, count: int) -> str:
    """Return the kind of a proper name.

    Args:
        plain: whether the text has one of its words in small letters as well.
        places: how often it follows a word such as "in" or "from".
        speech: how often a verb of speech or of a life is next to it.
        count: how often it occurs.
    """
    lower = name.lower()
    words = [word.strip(".") for word in lower.split()]
    if lower in PLACES:
        return "location"
    last, first = words[-1], words[0]
    if len(words) > 1:
        if first in _EVENT_HEADS and words[1].startswith(_OF):
            return "event"
        if first in _PERSON_TITLES and (words[1] != "of" or first not in ("church", "house")):
            return _tail(last) or "person"
        if first in _ORGANIZATION_HEADS and words[1] in ("of", "for"):
            return "organization"
        if first in _LOCATION_HEADS:
            return "location"
    found = _tail(last) if len(words) > 1 or last in _EVENT_TAILS else None
    if found:
        return found
    head = words[words.index("of") - 1] if "of" in words[1:] else ""
    if head:
        found = _tail(head) if head not in _PERSON_TITLES else "person"
        if found:
            return found
    if first in _FIRST_NAMES and len(words) <= 4 and not name.isupper():
        return "person"
    if speech > 0 and speech >= places and 1 <= len(words) <= 4 and not name.isupper() and first not in DEMONYMS:
        return "person"
    if places * 2 >= count and places >= 1 and len(words) <= 3 and not name.isupper():
        return "location"
    if not plain and not places and _person_shape(name):
        return "person"
    return "concept"


def _tail(word: str) -> str | None:
    return _KIND_OF_TAIL.get(word) or _KIND_OF_TAIL.get(singular(word))


_INITIAL = re.compile(r"\b[A-ZÀ-ÞА-Я]\.")


def _person_shape(name: str) -> bool:
    """Two to four uncommon words with capitals, or initials, or a particle inside speak for a person."""
    words = name.split()
    if not 2 <= len(words) <= 5 or "of" in words or "the" in words or words[-1].lower() in PLACES:
        return False
    if _INITIAL.search(name) or any(word in ("van", "von", "de", "der", "di", "bin", "ibn") for word in words[1:-1]):
        return True
    plain = all(word.isalpha() and word[0].isupper() and not word.isupper() for word in words)
    return plain and len(words) < 4 and not is_common(words[0].lower()) and words[0].lower() not in DEMONYMS
