"""Clusters: chains join what can be one, contradictions hold apart, the most mentioned name stays."""

from __future__ import annotations

from collections.abc import Set

from hirag_dist.core.entities.resolution.candidate_pairs import CandidatePair
from hirag_dist.core.entities.resolution.clusters import group_pairs
from hirag_dist.core.entities.resolution.entity_features import EntityFeatures
from tests.core.entities.resolution.graphs import view_of

PERSON = "person"


def pair(view: EntityFeatures, one: str, other: str, tier: str = "alias", score: float = 0.9) -> CandidatePair:
    left, right = sorted((view.names.index(one), view.names.index(other)))
    return CandidatePair(left, right, tier, score, f"{one} is {other}")


def resolved(
    view: EntityFeatures, pairs: list[CandidatePair], apart: Set[tuple[int, int]] = frozenset()
) -> dict[str, str]:
    found = group_pairs(view, pairs, apart)
    return {view.names[alias.row]: view.names[alias.canonical] for alias in found}


def test_a_chain_is_one_group_under_its_most_mentioned_name() -> None:
    view = view_of(dict.fromkeys(["Mr. Scrooge", "Scrooge", "Ebenezer Scrooge"], PERSON), mentions={"Scrooge": 5})
    pairs = [pair(view, "Scrooge", "Mr. Scrooge"), pair(view, "Mr. Scrooge", "Ebenezer Scrooge")]
    assert resolved(view, pairs) == {"Mr. Scrooge": "Scrooge", "Ebenezer Scrooge": "Scrooge"}
    assert resolved(view, pairs[::-1]) == resolved(view, pairs)
    far = next(alias for alias in group_pairs(view, pairs, frozenset()) if view.names[alias.row] == "Ebenezer Scrooge")
    assert (far.pair, view.names[far.via]) == (pairs[1], "Mr. Scrooge")


def test_cannot_link_beats_a_chain_and_the_surer_pair_wins() -> None:
    view = view_of(dict.fromkeys(["Bob Cratchit", "Cratchit", "Martha Cratchit"], PERSON))
    pairs = [pair(view, "Cratchit", "Bob Cratchit", score=0.9), pair(view, "Cratchit", "Martha Cratchit", score=0.8)]
    (kept,) = group_pairs(view, pairs, frozenset())
    assert {view.names[kept.row], view.names[kept.canonical]} == {"Cratchit", "Bob Cratchit"}
    assert kept.pair == pairs[0]


def test_what_a_model_held_apart_no_chain_joins() -> None:
    view = view_of(dict.fromkeys(["old Joe", "Joe", "Joe Miller"], PERSON))
    pairs = [pair(view, "Joe", "old Joe"), pair(view, "Joe", "Joe Miller", score=0.8)]
    assert len(resolved(view, pairs)) == 2
    no = pair(view, "old Joe", "Joe Miller")
    assert len(resolved(view, pairs, {(no.left, no.right)})) == 1


def test_kinds_are_not_joined_by_a_chain_but_by_a_pair() -> None:
    kinds = {"The Sun": "organization", "Sun": "unknown", "the sun": "location"}
    view = view_of(kinds)
    chain = [pair(view, "The Sun", "Sun"), pair(view, "Sun", "the sun", score=0.8)]
    assert len(resolved(view, chain)) == 1
    assert len(resolved(view, [*chain, pair(view, "The Sun", "the sun", score=0.7)])) == 2


def test_a_part_of_two_names_joins_one_of_them_alone() -> None:
    view = view_of(dict.fromkeys(["Georgia", "Republic of Georgia", "State of Georgia"], "location"))
    pairs = [pair(view, "Georgia", "Republic of Georgia", score=0.95), pair(view, "Georgia", "State of Georgia")]
    (kept,) = group_pairs(view, pairs, frozenset())
    assert kept.pair == pairs[0]
