"""Word lists of the built-in model, from `words.toml` and `gazetteer.toml`, which describe them."""

from __future__ import annotations

import tomllib
from importlib.resources import files


def word_set(*texts: str) -> frozenset[str]:
    """Return the words of some texts."""
    return frozenset(" ".join(texts).split())


def _lists(name: str) -> dict[str, str]:
    return tomllib.loads(files(__package__).joinpath(name).read_text(encoding="utf-8"))


_WORDS = _lists("words.toml")
_GAZETTEER = _lists("gazetteer.toml")


def words(name: str) -> frozenset[str]:
    """Return a list of `words.toml`."""
    return word_set(_WORDS[name])


FUNCTION = words("function")
ADVERBS = words("adverbs")
VERBS = words("verbs")
IRREGULAR = words("irregular")
NOUN_TOO = words("noun_too")
ADJECTIVES = words("adjectives")
GENERIC = words("generic")
WEAK = words("weak")
EVERYDAY = words("everyday")
STRUCTURE = words("structure")
MONTHS = words("months")
FOREIGN = words("foreign")
IRREGULAR_PLURALS = dict(pair.split() for pair in _WORDS["irregular_plurals"].split(","))
DATES = (
    MONTHS
    | words("weekdays")
    | word_set("today tomorrow yesterday bc ad bce ce christmastime spring summer autumn winter")
)

PLACES = frozenset(" ".join(name.split()) for name in _GAZETTEER["places"].split(","))
DEMONYMS = word_set(_GAZETTEER["demonyms"])
ORGANIZATION_TAILS = word_set(_GAZETTEER["organization_tails"])
ORGANIZATION_HEADS = word_set(_GAZETTEER["organization_heads"])
LOCATION_TAILS = word_set(_GAZETTEER["location_tails"])
LOCATION_HEADS = word_set(_GAZETTEER["location_heads"])
EVENT_TAILS = word_set(_GAZETTEER["event_tails"])
EVENT_HEADS = word_set(_GAZETTEER["event_heads"])
PRODUCT_TAILS = word_set(_GAZETTEER["product_tails"])
TECHNOLOGY_TAILS = word_set(_GAZETTEER["technology_tails"])
PERSON_TITLES = word_set(_GAZETTEER["person_titles"])
PLAIN_TITLES = word_set(_GAZETTEER["plain_titles"])
FIRST_NAMES = word_set(_GAZETTEER["first_names"])
SPEECH = word_set(_GAZETTEER["speech"])
CHINESE_SURNAMES = frozenset("".join(_GAZETTEER["chinese_surnames"].split()))
