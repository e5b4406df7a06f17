"""Short names: initials, and what a text says that something is also called."""

from __future__ import annotations

import pytest

from hirag_dist.core.entities.resolution.acronyms import StatedAlias, initials_of, stated_aliases
from hirag_dist.core.entities.resolution.name_forms import name_form


@pytest.mark.parametrize(
    ("name", "initials"),
    [
        ("World Health Organization", {"who"}),
        ("Food and Drug Administration", {"fada", "fda"}),
        ("World War II", {"ww"}),
        ("Berlin", set()),
    ],
)
def test_initials(name: str, initials: set[str]) -> None:
    assert initials_of(name_form(name, "organization")) == initials


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        ("The World Health Organization (WHO) leads.", StatedAlias("World Health Organization", "WHO")),
        ("Work by the World Health Organization (W.H.O.).", StatedAlias("World Health Organization", "W.H.O")),
        ("A monkey, also known as the Great Sage.", StatedAlias("", "Great Sage")),
        ("Known widely (a.k.a. “Wukong”).", StatedAlias("", "Wukong")),
        ("孙悟空，又称齐天大圣。", StatedAlias("", "齐天大圣")),
    ],
)
def test_what_a_text_states(text: str, stated: StatedAlias) -> None:
    assert stated in set(stated_aliases(text))


@pytest.mark.parametrize("text", ["Founded in Paris (France).", "It ran (slowly) on.", "", "A team (see it).", "(WHO)"])
def test_what_states_nothing(text: str) -> None:
    assert [found for found in stated_aliases(text) if found.short.isupper()] == []
