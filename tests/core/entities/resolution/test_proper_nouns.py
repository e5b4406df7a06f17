"""Proper names, by what a description writes in capitals."""

from __future__ import annotations

import pytest

from hirag_dist.core.entities.resolution.proper_nouns import is_proper


@pytest.mark.parametrize(
    ("name", "description", "proper"),
    [
        ("Windows", "", True),
        ("Windows", "Windows is sold by Microsoft.", True),
        ("Window", "Windows shows it.", True),  # another word says nothing of this one
        ("Bees", "They eat. Bees make honey, and bees dance.", False),
        ("bees", "Where Bees live.", False),
        ("The Beatles", "A band. The Beatles were four.", True),
        ("Honey Bees", "Insects that make honey.", False),
        ("Honey Bees", "An insect. Honey Bees make honey.", False),  # as a sentence begins
        ("Cleveland Browns", "A team, the Cleveland Browns play in Ohio.", True),
        ("Honey Bees", "An insect; the Honey Bees, or honey bees, make honey.", False),
        ("C++ (old", "", False),
        ("", "", False),
        ("孙悟空", "孙悟空", False),
    ],
)
def test_proper_names(name: str, description: str, proper: bool) -> None:
    assert is_proper(name, description) is proper
