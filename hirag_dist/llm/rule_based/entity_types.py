"""Type of the thing that a name denotes, by its form and the adjacent words; and the prompt's word for that type."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hirag_dist.llm.rule_based.language import (
    DEMONYMS,
    EVENT_HEADS,
    EVENT_TAILS,
    FIRST_NAMES,
    LOCATION_HEADS,
    LOCATION_TAILS,
    ORGANIZATION_HEADS,
    ORGANIZATION_TAILS,
    PERSON_TITLES,
    PLACES,
    PRODUCT_TAILS,
    TECHNOLOGY_TAILS,
    is_common,
    singular,
)

DEFAULT_TYPES = ("organization", "person", "location", "event", "technology", "concept", "product")

_LISTED = re.compile(r"(?:types? to prefer|one of these types|entity types|types)\s*:\s*([^\n]+)", re.IGNORECASE)
_SAME = {
    "person": "person people human character individual 人物 人 персона человек persona personne",
    "organization": "organization organisation organizations org company institution group 组织 机构 организация",
    "location": "location place geo geography region country city 地点 位置 地理 место локация lieu ort",
    "event": "event incident activity happening 事件 событие événement ereignis",
    "technology": "technology technique method tool software system model equipment 技术 方法 технология",
    "product": "product work artifact object creation publication substance 产品 作品 продукт",
    "concept": "concept idea topic term theme category keyword subject 概念 понятие begriff",
}
_TAILS = {  # last word of a name → kind, the later of two that name it
    word: kind
    for kind, words in (
        ("technology", TECHNOLOGY_TAILS),
        ("product", PRODUCT_TAILS),
        ("event", EVENT_TAILS),
        ("location", LOCATION_TAILS),
        ("organization", ORGANIZATION_TAILS),
    )
    for word in words
}
_OF = ("of", "de", "di", "da", "d'", "d’")
# Where a kind is not listed: what stands in for it, nearest first.
_NEAREST = {
    "person": ("concept",),
    "organization": ("concept",),
    "location": ("concept",),
    "event": ("concept",),
    "technology": ("product", "concept"),
    "product": ("technology", "concept"),
    "concept": (),
}


def listed_types(system: str) -> list[str]:
    """Return the types that a system message lists, or the default ones."""
    match = _LISTED.search(system)
    if match is None:
        return list(DEFAULT_TYPES)
    text = re.split(r"\.\s|[.;]$|。", match.group(1))[0]
    types = [part.strip(" \"'`[](){}.") for part in re.split(r"[,，、;]", text)]
    return [kind for kind in types if kind] or list(DEFAULT_TYPES)


class TypeWords:
    """The prompt's words for the built-in kinds."""

    def __init__(self, types: Sequence[str]) -> None:
        self._types = list(types)
        self._of: dict[str, str] = {}
        for kind, words in _SAME.items():
            same = words.split()
            match = [name for name in types if name.lower() in same]
            if match:
                self._of[kind] = match[0]

    def word(self, kind: str) -> str:
        """Return the listed type for a kind: its own, the nearest, or the last of the list."""
        lowered = kind.lower()
        for name in self._types:
            if name.lower() == lowered:
                return name
        canonical = canonical_kind(lowered)
        for candidate in (canonical, *_NEAREST[canonical]):
            if candidate in self._of:
                return self._of[candidate]
        return self._types[-1]


def canonical_kind(kind: str) -> str:
    """Return the built-in kind that a type's name means; concept where it is none of them."""
    for canonical, words in _SAME.items():
        if kind.lower() in words.split():
            return canonical
    return "concept"


def name_kind(name: str, plain: bool, places: int, speech: int, count: int) -> str:
    """Return the kind of a proper name.

    Args:
        name: as it is shown.
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
        if first in EVENT_HEADS and words[1].startswith(_OF):
            return "event"
        if first in PERSON_TITLES and (words[1] != "of" or first not in ("church", "house")):
            return _tail(last) or "person"
        if first in ORGANIZATION_HEADS and words[1] in ("of", "for"):
            return "organization"
        if first in LOCATION_HEADS:
            return "location"
    found = _tail(last) if len(words) > 1 or last in EVENT_TAILS else None
    if found:
        return found
    head = words[words.index("of") - 1] if "of" in words[1:] else ""
    if head:
        found = _tail(head) if head not in PERSON_TITLES else "person"
        if found:
            return found
    if first in FIRST_NAMES and len(words) <= 4 and not name.isupper():
        return "person"
    if speech > 0 and speech >= places and 1 <= len(words) <= 4 and not name.isupper() and first not in DEMONYMS:
        return "person"
    if places * 2 >= count and places >= 1 and len(words) <= 3 and not name.isupper():
        return "location"
    if not plain and not places and _person_shape(name):
        return "person"
    return "concept"


def _tail(word: str) -> str | None:
    return _TAILS.get(word) or _TAILS.get(singular(word))


def term_kind(words: Sequence[str]) -> str:
    """Return the kind of a common-noun term, by its last word."""
    last = words[-1].lower()
    if last in TECHNOLOGY_TAILS:
        return "technology"
    if last in EVENT_TAILS:
        return "event"
    if len(words) > 1 and last in PRODUCT_TAILS:
        return "product"
    return "concept"


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
