"""Word lists of the name rules, from `words.toml`, which describes them."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Any

_LISTS: dict[str, Any] = tomllib.loads(files(__package__).joinpath("words.toml").read_text(encoding="utf-8"))


def _words(name: str) -> frozenset[str]:
    return frozenset(_LISTS[name].split())


def _numbered(name: str) -> dict[str, str]:
    """Return each word of a list and its place, from 0, in digits."""
    return {word: str(number) for number, word in enumerate(_LISTS[name].split())}


def _inverted(name: str) -> dict[str, str]:
    return {word: key for key, words in _LISTS[name].items() for word in words.split()}


PARTICLES = _words("particles")
ARTICLES = frozenset({"the", "a", "an"})
SMALL_WORDS = _words("small_words")
TITLES = _words("titles")
FEMALE_TITLES = _words("female_titles")
MALE_TITLES = _words("male_titles")
RANKS = _words("ranks")
LEGAL_FORMS = _inverted("legal_forms")  # spelling → one spelling
UNSPACED_ADDITIONS = tuple(_LISTS["unspaced_additions"].split())
NO_PLURALS = _words("no_plurals")
NICKNAMES = _inverted("nicknames")
FAMILIES = _inverted("families")  # type → family
NUMBER_WORDS = _numbered("number_words")
ORDINALS = _numbered("ordinals")
ORDINAL_ENDINGS = tuple(_LISTS["ordinal_endings"].split())
NEGATIONS = _words("negations")
NEGATING_PREFIXES = tuple(_LISTS["negating_prefixes"].split())
FEMALE_ENDINGS = _words("female_endings")
OPPOSED_PREFIXES = tuple(tuple(pair.split()) for pair in _LISTS["opposed_prefixes"])
CONTRASTS = tuple(frozenset(line.split()) for line in _LISTS["contrasts"].strip().splitlines())
