"""Negative rules of entity resolution: similar names that surely mean two things and must never be joined."""

from __future__ import annotations

from difflib import SequenceMatcher

from hirag_dist.core.entities.resolution import word_lists as lists
from hirag_dist.core.entities.resolution.name_forms import PERSON, UNKNOWN, NameForm

_NO_GIVEN_NAMES = lists.PARTICLES | lists.RANKS | lists.TITLES | lists.FEMALE_TITLES | {"of", "the"}
_CONTRASTED = frozenset().union(*lists.CONTRASTS)


def known_different(one: NameForm, other: NameForm) -> bool:
    """Return whether two names are two things.

    Numbers, versions and dates that differ ("Henry IV", "Henry V"); a negation or one of two opposites; what stands in
    parentheses; a man's title and a woman's; two given names with one surname.
    """
    if one.numbers != other.numbers or (one.aside and other.aside and one.aside != other.aside):
        return True
    ours, theirs = set(one.words), set(other.words)
    mine, yours = ours - theirs, theirs - ours
    if (mine & lists.NEGATIONS) != (yours & lists.NEGATIONS) and not (one.acronym or other.acronym):  # the UN
        return True
    if mine & _CONTRASTED and any(mine & group and yours & group for group in lists.CONTRASTS):
        return True
    return one.family == other.family == PERSON and _two_people(one, other)


def compatible(one: NameForm, other: NameForm) -> bool:
    """Return whether two names can be one entity's: not known to differ, and not with words of its own on each side."""
    if len({one.family, other.family} - {UNKNOWN}) > 1 or (one.title and other.title and one.title != other.title):
        return False
    if one.text == other.text and one.aside == other.aside:
        return True
    if known_different(one, other):
        return False
    if one.acronym or other.acronym or one.text == other.text:
        return True
    if one.initials & set(other.words) or other.initials & set(one.words):
        return True
    if one.family == other.family == PERSON:
        mine, yours = one.given, other.given
        return mine[-1:] == yours[-1:] or set(mine) <= set(yours) or set(yours) <= set(mine)
    left, right = one.meaningful - other.meaningful, other.meaningful - one.meaningful
    return not (left and right) or all(any(is_close(word, twin) for twin in right) for word in left)


def _two_people(one: NameForm, other: NameForm) -> bool:
    if _gender(one) * _gender(other) < 0 or (one.possessive != other.possessive and set(one.words) & set(other.words)):
        return True  # "Scrooge's nephew" is named by another person
    mine, yours = one.given, other.given
    if mine != yours and all(len(word) == 1 for word in (*mine, *yours)):
        return True
    return len(mine) > 1 and len(yours) > 1 and mine[-1] == yours[-1] and not same_given_names(mine, yours)


def _gender(form: NameForm) -> int:
    words = {form.title, *form.words[:1]}
    return bool(words & lists.MALE_TITLES) - bool(words & lists.FEMALE_TITLES)


def same_given_names(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Return whether two full names with one surname can be one person's: the given names that both have agree.

    >>> same_given_names(("john", "lee", "thompson"), ("j", "thompson"))
    True
    >>> same_given_names(("george", "w", "bush"), ("george", "h", "w", "bush"))
    False
    """
    pairs = zip(given_alone(one), given_alone(other), strict=False)
    return all(same_given_name(own, name) for own, name in pairs)


def given_alone(name: tuple[str, ...]) -> list[str]:
    """Return a full name's words without the surname, the particles before it and what ranks a person of a place."""
    return [word for at, word in enumerate(name[:-1]) if not at or word not in _NO_GIVEN_NAMES]


def same_given_name(one: str, other: str) -> bool:
    """Return whether two given names can be one person's: equal, an initial, a short form or a nickname.

    >>> same_given_name("j", "john"), same_given_name("bob", "robert"), same_given_name("peter", "martha")
    (True, True, False)
    """
    short, long = sorted((lists.NICKNAMES.get(one, one), lists.NICKNAMES.get(other, other)), key=len)
    if short == long:
        return True
    return long.startswith(short) and len(short) != 2 and long[len(short) :] not in lists.FEMALE_ENDINGS


def is_close(one: str, other: str) -> bool:
    """Return whether two words are spelled much alike: the same first letter, and three letters of four in order."""
    if one == other:
        return True
    return one[0] == other[0] and min(len(one), len(other)) > 3 and SequenceMatcher(None, one, other).ratio() >= 0.7
