"""Rules that keep entities apart: digits, opposites, other people; and pairs that they must not reject."""

from __future__ import annotations

import pytest

from hirag_dist.core.entities.resolution.name_forms import name_form
from hirag_dist.core.entities.resolution.negative_rules import known_different, same_given_name


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("person", "Henry IV", "Henry V"),
        ("person", "Henry", "Henry IV"),
        ("product", "Python 3.11", "Python 3.12"),
        ("event", "1948 Olympics", "1952 Olympics"),
        ("work", "第一章", "第二章"),
        ("location", "North Korea", "South Korea"),
        ("concept", "Vice President", "President"),
        ("organization", "East Division (NHL)", "East Division (CFL)"),
        ("person", "Mr. Cratchit", "Mrs. Cratchit"),
        ("person", "Carl Demarco", "Carla DeMarco"),
        ("person", "Stephen Henry Parker", "Stephen Stanley Parker"),
        ("person", "Scrooge's nephew", "Scrooge"),
        ("person", "George W. Bush", "George H. W. Bush"),
        ("person", "Anna M. Lee", "Anna R. Lee"),
        ("person", "Sammy Davis Jr.", "Sammy Davis Sr."),
    ],
)
def test_two_things(kind: str, one: str, other: str) -> None:
    assert known_different(name_form(one, kind), name_form(other, kind))
    assert known_different(name_form(other, kind), name_form(one, kind))


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("person", "Scrooge", "Ebenezer Scrooge"),
        ("person", "J. R. R. Tolkien", "John Ronald Reuel Tolkien"),
        ("person", "Jo Swinson", "Jo Anne Swinson"),
        ("person", "Bob Cratchit", "Robert Cratchit"),
        ("person", "Mr. Scrooge", "Uncle Scrooge"),
        ("organization", "World Health Organization", "WHO"),
        ("concept", "international law", "law of nations"),
        ("location", "North Ireland", "Northern Ireland"),
        ("event", "World War II", "Second World War"),
        ("organization", "Department of State", "US Department of State"),
    ],
)
def test_not_held_apart(kind: str, one: str, other: str) -> None:
    assert not known_different(name_form(one, kind), name_form(other, kind))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("j", "john", True),
        ("tim", "timothy", True),
        ("bob", "robert", True),
        ("paul", "paula", False),
        ("jo", "john", False),  # too short to be more than a likeness
        ("peter", "martha", False),
    ],
)
def test_given_names(one: str, other: str, same: bool) -> None:
    assert same_given_name(one, other) is same_given_name(other, one) is same
