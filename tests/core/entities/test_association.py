from __future__ import annotations

from hirag_dist.core.entities.association import MAX_STRENGTH, MIN_STRENGTH, associations, with_strengths
from hirag_dist.core.prompts.records import ExtractionReply, RelationRecord
from hirag_dist.types import FoundName


def name(text: str, *places: tuple[int, int]) -> FoundName:
    return FoundName(text, "concept", places, 1.0)


def strengths(*names: FoundName) -> dict[tuple[str, str], float]:
    return {(names[pair.first].name, names[pair.second].name): pair.strength for pair in associations(names)}


def test_names_that_seldom_occur_apart_are_stronger_than_a_hub() -> None:
    hub = name("hub", *((number, 0) for number in range(8)))
    one, other = name("one", (0, 3), (1, 3)), name("other", (0, 5), (1, 5))
    found = strengths(hub, one, other)
    assert found["one", "other"] > found["hub", "one"]
    assert all(MIN_STRENGTH <= strength <= MAX_STRENGTH for strength in found.values())


def test_every_name_that_has_a_neighbour_is_in_a_pair_and_pairs_are_bounded() -> None:
    crowd = [name(f"n{number}", (0, number)) for number in range(20)]
    pairs = associations([*crowd, name("alone", (3, 0))])
    assert {end for pair in pairs for end in (pair.first, pair.second)} == set(range(21))
    assert len(pairs) <= 1.5 * 21 + 1
    assert pairs == sorted(pairs, key=lambda pair: (-pair.strength, pair.first, pair.second))


def test_relations_without_a_strength_get_that_of_their_names_in_the_text() -> None:
    text = "Anna met Carl in Vienna. Carl and Anna left. Many years later there was a war. Nobody heard of Olga."
    pairs = [
        ("Anna", "Carl", 0.0),
        ("Anna", "Vienna", 0.0),
        ("Anna", "Olga", 0.0),
        ("Anna", "Nemo", 0.0),
        ("A", "B", 7.5),
    ]
    relations = tuple(RelationRecord(one, other, "x", strength) for one, other, strength in pairs)
    found = with_strengths(ExtractionReply((), relations), text).relations
    strengths = [one.strength for one in found]
    assert MAX_STRENGTH >= strengths[0] > strengths[1] > strengths[2] == strengths[3] == MIN_STRENGTH
    assert strengths[4] == 7.5
    assert [(one.source, one.target) for one in found] == [pair[:2] for pair in pairs]
