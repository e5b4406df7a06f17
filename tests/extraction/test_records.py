from __future__ import annotations

from hirag_dist.config.model import ENTITY_TYPES
from hirag_dist.extraction import find_names
from hirag_dist.extraction.records import extracted
from hirag_dist.extraction.scripts import split_sentences
from tests.extraction.test_builtin import ENGLISH


def test_descriptions_are_sentences_that_hold_the_name() -> None:
    lines = split_sentences(ENGLISH)
    (found,) = find_names([lines], ENTITY_TYPES)
    reply = extracted(found, lines)
    described = {entity.name: entity.description for entity in reply.entities}
    assert described["Jacob Marley"] == " ".join(lines[1:3])
    assert all(0 < len(description) <= 240 for description in described.values())
    names = set(described)
    assert reply.relations
    assert all(relation.source in names and relation.target in names for relation in reply.relations)
    assert all(1 <= relation.strength <= 10 for relation in reply.relations)


def test_the_number_of_names_is_bounded_by_the_text() -> None:
    lines = [f"Mister Number{number} met Lady Letter{number}." for number in range(400)]
    (found,) = find_names([lines], ENTITY_TYPES)
    assert len(found) > 100
    assert len(extracted(found, lines).entities) == 60


def test_nothing_found_is_an_empty_reply() -> None:
    reply = extracted([], [])
    assert reply.entities == reply.relations == ()
