"""Negative rules of entity resolution: similar names that surely mean two things and must never be joined."""

from __future__ import annotations

from hirag_dist.core.entities.resolution.name_forms import PERSON, NameForm
from hirag_dist.core.entities.resolution.word_lists import (
    CONTRASTS,
    FEMALE_ENDINGS,
    FEMALE_TITLES,
    MALE_TITLES,
    NEGATING_PREFIXES,
    NEGATIONS,
    NICKNAMES,
    OPPOSED_PREFIXES,
    PARTICLES,
    RANKS,
    TITLES,
)

_NO_GIVEN_NAMES = PARTICLES | RANKS | TITLES | FEMALE_TITLES | {"of", "the"}


def known_different(one: NameForm, other: NameForm) -> str:
    """Return why two names are two things, or an empty text.

    Numbers, versions and dates that differ ("Henry IV", "Henry V"); a negation or one of two opposites; what stands in
    parentheses; a man's title and a woman's; two given names with one surname.
    """
    if one.numbers != other.numbers:
        return "numbers differ"
    if one.aside and other.aside and one.aside != other.aside:
        return "what stands in parentheses differs"
    ours, theirs = set(one.words), set(other.words)
    mine, yours = ours - theirs, theirs - ours
    if (mine & NEGATIONS) != (yours & NEGATIONS) and not (one.acronym or other.acronym):  # the UN
        return "one is negated"
    for group in CONTRASTS:
        if mine & group and yours & group:
            return "opposites"
    if any(_opposed(a, b) for a in mine for b in yours):
        return "opposites"
    if one.family == other.family == PERSON:
        return _two_people(one, other)
    return ""


def _opposed(one: str, other: str) -> bool:
    """Return whether one word is the other with a negating prefix, or they are the same behind opposed ones."""
    if abs(len(one) - len(other)) > 7 or one[-2:] != other[-2:]:
        return False
    short, long = sorted((one, other), key=len)
    if len(short) > 3 and any(long == prefix + short for prefix in NEGATING_PREFIXES):
        return True
    return any(
        one.startswith(a) and other.startswith(b) and len(one) > len(a) + 2 and one[len(a) :] == other[len(b) :]
        for first, second in OPPOSED_PREFIXES
        for a, b in ((first, second), (second, first))
    )


def _two_people(one: NameForm, other: NameForm) -> str:
    if _gender(one) * _gender(other) < 0:
        return "one is a man's title, the other a woman's"
    if one.possessive != other.possessive and set(one.words) & set(other.words):
        return "one is named by another person"
    mine, yours = given_names(one), given_names(other)
    if mine != yours and all(len(word) == 1 for word in (*mine, *yours)):
        return "initials differ"
    if len(mine) > 1 and len(yours) > 1 and mine[-1] == yours[-1] and not same_given_names(mine, yours):
        return "given names differ"
    return ""


def _gender(form: NameForm) -> int:
    words = {form.title, *form.words[:1]}
    return bool(words & MALE_TITLES) - bool(words & FEMALE_TITLES)


def given_names(form: NameForm) -> tuple[str, ...]:
    """Return a person's words without the titles and ranks before them."""
    words = form.words
    while len(words) > 1 and words[0] in RANKS | TITLES | FEMALE_TITLES:
        words = words[1:]
    return words


def same_given_names(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Return whether two full names with one surname can be one person's: the given names that both have agree.

    >>> same_given_names(("john", "lee", "thompson"), ("j", "thompson"))
    True
    >>> same_given_names(("george", "w", "bush"), ("george", "h", "w", "bush"))
    False
    """
    pairs = zip(_given_alone(one), _given_alone(other), strict=False)
    return all(same_given_name(own, name) for own, name in pairs)


def as_many_given_names(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Return whether two full names have as many given names; John Adams and John Quincy Adams have not.

    >>> as_many_given_names(("ludwig", "van", "beethoven"), ("ludwig", "beethoven"))
    True
    """
    return len(_given_alone(one)) == len(_given_alone(other))


def _given_alone(name: tuple[str, ...]) -> list[str]:
    """Return a full name's words without the surname, the particles before it and what ranks a person of a place."""
    return [word for at, word in enumerate(name[:-1]) if not at or word not in _NO_GIVEN_NAMES]


def initial(given: str) -> str:
    """Return the letter that a given name has in common with all that `same_given_name` takes for it, slips aside."""
    return NICKNAMES.get(given, given)[0]


def same_given_name(one: str, other: str) -> bool:
    """Return whether two given names can be one person's: equal, an initial, a short form, a nickname, or a typo.

    >>> same_given_name("j", "john"), same_given_name("bob", "robert"), same_given_name("peter", "martha")
    (True, True, False)
    """
    short, long = sorted((NICKNAMES.get(one, one), NICKNAMES.get(other, other)), key=len)
    if short == long:
        return True
    if long.startswith(short) and (len(short) == 1 or len(short) > 2):
        return long[len(short) :] not in FEMALE_ENDINGS
    return is_slip(short, long)


def is_slip(one: str, other: str) -> bool:
    """Return whether two words of at least 5 letters differ by one letter missing, changed or swapped.

    >>> is_slip("marley", "marely"), is_slip("mario", "maria")
    (True, False)
    """
    short, long = sorted((one, other), key=len)
    if len(short) < 5 or len(long) - len(short) > 1 or short[-1] != long[-1] or not short.isalpha():
        return False
    at = next((at for at, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short))
    if len(short) < len(long):
        return short[at:] == long[at + 1 :]
    swapped = short[at : at + 2] == long[at : at + 2][::-1] and short[at + 2 :] == long[at + 2 :]
    return swapped or short[at + 1 :] == long[at + 1 :]
