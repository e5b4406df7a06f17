"""Choices of switches that are tested: each setting by itself, and choices in which every two settings meet."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from tests.deploy.charts import Values, merged
from tests.deploy.switches import FORBIDDEN, SWITCHES

Choice = dict[str, str]


def values_of(choice: Choice) -> Values:
    """Return the values of a choice."""
    made: Values = {}
    for name, setting in choice.items():
        made = merged(made, SWITCHES[name][setting])
    return made


def fits(choice: Choice, name: str, setting: str) -> bool:
    """Return whether a setting is compatible with the chosen ones."""
    one = (name, setting)
    return not any((one, other) in FORBIDDEN or (other, one) in FORBIDDEN for other in choice.items())


def flips() -> Iterator[Choice]:
    """Yield the first settings, and each other setting by itself, with what it cannot be without."""
    first = {name: next(iter(settings)) for name, settings in SWITCHES.items()}
    yield first
    for name, settings in SWITCHES.items():
        for setting in list(settings)[1:]:
            yield _completed({name: setting}, set(), first)


def everything() -> Choice:
    """Return the settings that make most objects."""
    return next(flips()) | {
        "builds": "both",
        "autoscaling": "on",
        "tls": "cert-manager",
        "client ca": "secret",
        "page": "mutual",
        "after": "both",
        "ray auth": "secret",
        "scraped": "yes",
        "alerts": "yes",
        "dashboard": "yes",
        "test": "question",
    }


def pairwise() -> list[Choice]:
    """Return choices in which every two settings that may meet do."""
    left = {
        frozenset({(one, setting), (other, another)})
        for one, other in combinations(SWITCHES, 2)
        for setting in SWITCHES[one]
        for another in SWITCHES[other]
        if fits({one: setting}, other, another)
    }
    made = []
    while left:
        begin = min(left, key=lambda pair: sorted(pair))
        choice = _completed(dict(begin), left, {})
        met = {frozenset(pair) for pair in combinations(choice.items(), 2)}
        if not met & left:
            raise AssertionError(f"no choice has {sorted(begin)}: one of them belongs into FORBIDDEN")
        left -= met
        made.append(choice)
    return made


def _completed(begun: Choice, left: set[frozenset[tuple[str, str]]], wanted: Choice) -> Choice:
    """Return a choice of every switch: what is wanted where it fits, else what makes most pairs meet."""
    choice = dict(begun)
    for name, settings in SWITCHES.items():
        if name in choice:
            continue
        able = [setting for setting in settings if fits(choice, name, setting)]
        if wanted.get(name) in able:
            choice[name] = wanted[name]
        else:
            choice[name] = max(
                able, key=lambda setting: sum(frozenset({(name, setting), other}) in left for other in choice.items())
            )
    return choice
