"""Groups: chains join, contradictions hold apart, the most mentioned name stays."""

from __future__ import annotations

from collections.abc import Mapping

from hirag_dist.core.entities.resolution.candidate_pairs import CandidatePair
from hirag_dist.core.entities.resolution.entity_features import EntityFeatures
from hirag_dist.core.entities.resolution.union import group_pairs
from tests.core.entities.resolution.graphs import view_of

PERSON = "person"


def pair(view: EntityFeatures, one: str, other: str, tier: str = "alias", score: float = 0.9) -> CandidatePair:
    left, right = sorted((view.names.index(one), view.names.index(other)))
    return CandidatePair(left, right, tier, score, f"{one} is {other}")


def resolved(
    view: EntityFeatures, pairs: list[CandidatePair], apart: Mapping[tuple[int, int], str] | None = None
) -> dict[str, str]:
    found = group_pairs(view, pairs, apart or {})
    return {view.names[alias.row]: view.names[alias.canonical] for alias in found}


def test_a_chain_is_one_group_under_its_most_mentioned_name() -> None:
    view = view_of(dict.fromkeys(["Mr. Scrooge", "Scrooge", "Ebenezer Scrooge"], PERSON), mentions={"Scrooge": 5})
    pairs = [pair(view, "Scrooge", "Mr. Scrooge"), pair(view, "Mr. Scrooge", "Ebenezer Scrooge")]
    assert resolved(view, pairs) == {"Mr. Scrooge": "Scrooge", "Ebenezer Scrooge": "Scrooge"}
    assert resolved(view, pairs[::-1]) == resolved(view, pairs)
    far = next(alias for alias in group_pairs(view, pairs, {}) if view.names[alias.row] == "Ebenezer Scrooge")
    assert (far.pair, view.names[far.via]) == (pairs[1], "Mr. Scrooge")


def test_cannot_link_beats_a_chain_and_the_surer_pair_wins() -> None:
    view = view_of(dict.fromkeys(["Bob Cratchit", "Cratchit", "Martha Cratchit"], PERSON))
    pairs = [pair(view, "Cratchit", "Bob Cratchit", score=0.9), pair(view, "Cratchit", "Martha Cratchit", score=0.8)]
    (kept,) = group_pairs(view, pairs, {})
    assert {view.names[kept.row], view.names[kept.canonical]} == {"Cratchit", "Bob Cratchit"}
    assert kept.pair == pairs[0]


def test_cheaper_tiers_come_first_whatever_their_score() -> None:
    view = view_of(dict.fromkeys(["Bob Cratchit", "Cratchit", "Martha Cratchit"], PERSON))
    pairs = [
        pair(view, "Cratchit", "Bob Cratchit", "llm", score=0.99),
        pair(view, "Cratchit", "Martha Cratchit", "normalise", score=0.5),
    ]
    (kept,) = group_pairs(view, pairs, {})
    assert kept.pair == pairs[1]


def test_what_a_model_held_apart_no_chain_joins() -> None:
    view = view_of(dict.fromkeys(["old Joe", "Joe", "Joe Miller"], PERSON))
    pairs = [pair(view, "Joe", "old Joe"), pair(view, "Joe", "Joe Miller", score=0.8)]
    assert len(resolved(view, pairs)) == 2
    no = pair(view, "old Joe", "Joe Miller")
    assert len(resolved(view, pairs, {(no.left, no.right): "a beggar and a writer"})) == 1


def test_kinds_are_not_joined_by_a_chain_but_by_a_pair() -> None:
    kinds = {"The Sun": "organization", "Sun": "unknown", "the sun": "location"}
    view = view_of(kinds)
    chain = [pair(view, "The Sun", "Sun"), pair(view, "Sun", "the sun", score=0.8)]
    assert len(resolved(view, chain)) == 1
    assert len(resolved(view, [*chain, pair(view, "The Sun", "the sun", score=0.7)])) == 2
