"""Word lists of the name rules, from `words.toml`, which describes them."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Any

_LISTS: dict[str, Any] = tomllib.loads(files(__package__).joinpath("words.toml").read_text(encoding="utf-8"))


def _inverted(name: str) -> dict[str, str]:
    return {word: key for key, words in _LISTS[name].items() for word in words.split()}


PARTICLES, SMALL_WORDS, TITLES, FEMALE_TITLES, MALE_TITLES, RANKS, NO_PLURALS, NEGATIONS, FEMALE_ENDINGS = (
    frozenset(_LISTS[name].split())
    for name in (
        *("particles", "small_words", "titles", "female_titles", "male_titles", "ranks", "no_plurals", "negations"),
        "female_endings",
    )
)
ARTICLES = frozenset({"the", "a", "an"})
LEGAL_FORMS = _inverted("legal_forms")  # spelling → one spelling
UNSPACED_ADDITIONS = tuple(_LISTS["unspaced_additions"].split())
NICKNAMES = _inverted("nicknames")
FAMILIES = _inverted("families")  # type → family
NUMBER_WORDS, ORDINALS = (  # word → digits
    {word: str(number) for number, word in enumerate(_LISTS[name].split())} for name in ("number_words", "ordinals")
)
ORDINAL_ENDINGS = tuple(_LISTS["ordinal_endings"].split())
CONTRASTS = tuple(frozenset(line.split()) for line in _LISTS["contrasts"].strip().splitlines())
