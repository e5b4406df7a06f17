"""Clusters: chains join what can be one, contradictions hold apart, the most mentioned name stays."""

from __future__ import annotations

from collections.abc import Set

from hirag_dist.core.entities.resolution.name_forms import name_form
from hirag_dist.core.entities.resolution.scores import Alias, ScoredPair, group_pairs

PERSON = "person"


class Graph:
    """Names in the order given, with types and numbers of mentions."""

    def __init__(self, kinds: dict[str, str], mentions: dict[str, int] | None = None) -> None:
        self.names = list(kinds)
        self.forms = [name_form(name, kind) for name, kind in kinds.items()]
        self.n_mentions = [(mentions or {}).get(name, 1) for name in kinds]

    def pair(self, one: str, other: str, score: float = 0.9) -> ScoredPair:
        left, right = sorted((self.names.index(one), self.names.index(other)))
        return ScoredPair(left, right, "alias", score, f"{one} is {other}")

    def grouped(self, pairs: list[ScoredPair], apart: Set[tuple[int, int]] = frozenset()) -> list[Alias]:
        return list(group_pairs(self.forms, self.n_mentions, pairs, apart))

    def resolved(self, pairs: list[ScoredPair], apart: Set[tuple[int, int]] = frozenset()) -> dict[str, str]:
        return {self.names[alias.row]: self.names[alias.canonical] for alias in self.grouped(pairs, apart)}


def test_a_chain_is_one_group_under_its_most_mentioned_name() -> None:
    graph = Graph(dict.fromkeys(["Mr. Scrooge", "Scrooge", "Ebenezer Scrooge"], PERSON), mentions={"Scrooge": 5})
    pairs = [graph.pair("Scrooge", "Mr. Scrooge"), graph.pair("Mr. Scrooge", "Ebenezer Scrooge")]
    assert graph.resolved(pairs) == {"Mr. Scrooge": "Scrooge", "Ebenezer Scrooge": "Scrooge"}
    assert graph.resolved(pairs[::-1]) == graph.resolved(pairs)
    far = next(alias for alias in graph.grouped(pairs) if graph.names[alias.row] == "Ebenezer Scrooge")
    assert far.pair == pairs[1]


def test_cannot_link_beats_a_chain_and_the_surer_pair_wins() -> None:
    graph = Graph(dict.fromkeys(["Bob Cratchit", "Cratchit", "Martha Cratchit"], PERSON))
    pairs = [graph.pair("Cratchit", "Bob Cratchit", score=0.9), graph.pair("Cratchit", "Martha Cratchit", score=0.8)]
    (kept,) = graph.grouped(pairs)
    assert {graph.names[kept.row], graph.names[kept.canonical]} == {"Cratchit", "Bob Cratchit"}
    assert kept.pair == pairs[0]


def test_what_a_model_held_apart_no_chain_joins() -> None:
    graph = Graph(dict.fromkeys(["old Joe", "Joe", "Joe Miller"], PERSON))
    pairs = [graph.pair("Joe", "old Joe"), graph.pair("Joe", "Joe Miller", score=0.8)]
    assert len(graph.resolved(pairs)) == 2
    no = graph.pair("old Joe", "Joe Miller")
    assert len(graph.resolved(pairs, {(no.left, no.right)})) == 1


def test_kinds_are_not_joined_by_a_chain_but_by_a_pair() -> None:
    kinds = {"The Sun": "organization", "Sun": "unknown", "the sun": "location"}
    graph = Graph(kinds)
    chain = [graph.pair("The Sun", "Sun"), graph.pair("Sun", "the sun", score=0.8)]
    assert len(graph.resolved(chain)) == 1
    assert len(graph.resolved([*chain, graph.pair("The Sun", "the sun", score=0.7)])) == 2


def test_a_part_of_two_names_joins_one_of_them_alone() -> None:
    graph = Graph(dict.fromkeys(["Georgia", "Republic of Georgia", "State of Georgia"], "location"))
    pairs = [graph.pair("Georgia", "Republic of Georgia", score=0.95), graph.pair("Georgia", "State of Georgia")]
    (kept,) = graph.grouped(pairs)
    assert kept.pair == pairs[0]
