"""Aliases: acronyms of names, and aliases that a text states."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from hirag_dist.core.entities.resolution.name_forms import NameForm, is_acronym_of
from hirag_dist.core.entities.resolution.word_lists import SMALL_WORDS

_SHORT = re.compile(r"[(（]\s*[\"“'‘]?([^\W\d_][\w&.\-]{1,9})[\"”'’]?\s*[)）]")
_STATED = re.compile(
    r"(?:,?\s*\(?\b(?:also known as|also called|a\.k\.a\.|aka|better known as|commonly known as|abbreviated(?: as)?|"
    r"also referred to as|также известн\w+ как|сокращённо)|[（(，,]?(?:又称|又名|也称|亦称|简称))"
    r"\s*(?:the\s+|a\s+|an\s+)?[\"“'‘«「]?([^,.;:()\"“”«»「」，。；：（）]{2,60})"
)
_WORD = re.compile(r"[\w&]+")
_LONGEST = 9  # words of a long form


@dataclass(frozen=True, slots=True)
class StatedAlias:
    """Statement of a text that `short` is another name for `long`, as both are written.

    Attributes:
        long: words before the parentheses whose initials fit; empty where the text's own subject is meant.
    """

    long: str
    short: str


def initials_of(form: NameForm) -> frozenset[str]:
    """Return the acronyms that a name may have: of all its words, and without the small ones; 2 letters at least."""
    words = [word for word in form.words if word[0].isalpha()]
    if len(words) < 2:
        return frozenset()
    every = "".join(word[0] for word in words)
    large = "".join(word[0] for word in words if word not in SMALL_WORDS)
    return frozenset(short for short in (every, large) if 2 <= len(short) <= 8)


def stated_aliases(text: str) -> Iterator[StatedAlias]:
    """Yield the aliases that a description states: "World Health Organization (WHO)", "also known as the Bard"."""
    for found in _SHORT.finditer(text):
        short = found.group(1).rstrip(".-")
        if not any(ch.isupper() for ch in short) or len(short) < 2:
            continue
        before = [match.start() for match in _WORD.finditer(text, max(0, found.start() - 120), found.start())]
        for start in before[-_LONGEST:]:
            long = text[start : found.start()].strip()
            if is_acronym_of(short, long):
                yield StatedAlias(long, short)
    for found in _STATED.finditer(text):
        if short := found.group(1).strip():
            yield StatedAlias("", short)
