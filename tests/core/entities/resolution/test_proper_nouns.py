"""Proper names, by what a description writes in capitals."""

from __future__ import annotations

import pytest

from hirag_dist.core.entities.resolution.candidate_pairs import is_proper


@pytest.mark.parametrize(
    ("name", "description", "proper"),
    [
        ("Windows", "", True),
        ("Window", "Windows shows it.", True),  # another word says nothing of this one
        ("Bees", "They eat. Bees make honey, and bees dance.", False),
        ("The Beatles", "A band. The Beatles were four.", True),
        ("Honey Bees", "An insect. Honey Bees make honey.", False),  # as a sentence begins
        ("Honey Bees", "An insect; the Honey Bees, or honey bees, make honey.", False),
        ("C++ (old", "", False),
        ("", "", False),
    ],
)
def test_proper_names(name: str, description: str, proper: bool) -> None:
    assert is_proper(name, description) is proper
