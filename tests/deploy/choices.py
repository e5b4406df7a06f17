"""Choices of switches that are tested: few releases in which every setting occurs."""

from __future__ import annotations

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


def covering() -> list[Choice]:
    """Return choices in which every setting of every switch occurs, the first of the defaults alone."""
    left = [(name, setting) for name, settings in SWITCHES.items() for setting in settings]
    made: list[Choice] = [{name: next(iter(settings)) for name, settings in SWITCHES.items()}]
    while left := [one for one in left if one not in made[-1].items()]:
        choice = dict(left[:1])
        for name, settings in SWITCHES.items():
            able = [setting for setting in settings if name not in choice and fits(choice, name, setting)]
            if able:
                choice[name] = next((setting for setting in able if (name, setting) in left), able[0])
        made.append(choice)
    return made


def everything() -> Choice:
    """Return the settings that make most objects."""
    return covering()[0] | {
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
