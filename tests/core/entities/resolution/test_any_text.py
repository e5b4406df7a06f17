"""Names of any characters: read without failing, compared the same both ways."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from hirag_dist.core.entities.resolution.name_forms import compatible, known_different, name_form
from tests.core.entities.resolution.graphs import proposed

KINDS = st.sampled_from(["person", "organization", "location", "event", "concept", "unknown", ""])
PIECES = st.sampled_from(
    ["the", "Mr.", "Inc.", "II", "4th", "the", "'s", "(", ")", "of", ",", ".", "-", "王", "が", "é", "ё"]
)
NAMES = st.text(max_size=12) | st.lists(PIECES | st.text(max_size=4), max_size=6).map(" ".join)


@settings(max_examples=100, deadline=None)
@given(NAMES, NAMES, KINDS, KINDS)
def test_any_two_names(one: str, other: str, kind: str, other_kind: str) -> None:
    left, right = name_form(one, kind), name_form(other, other_kind)
    assert " ".join(left.words) == left.text
    assert name_form(one, kind) == left
    assert known_different(left, right) == known_different(right, left)
    assert not known_different(left, left)
    assert compatible(left, right) == compatible(right, left)
    assert compatible(left, left)
    assert all(2 <= len(letters) <= 8 for letters in left.initials)


@settings(max_examples=25, deadline=None)
@given(st.dictionaries(NAMES, KINDS, max_size=8))
def test_any_names_give_pairs_of_two(kinds: dict[str, str]) -> None:
    said = {name: f"{name} ({name}), also known as {name}" for name in kinds}
    for pair in proposed(kinds, {name: ["c"] for name in kinds}, said).values():
        assert 0 <= pair.left < pair.right < len(kinds)
        assert 0.4 <= pair.score <= 1.0
