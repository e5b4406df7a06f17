"""Sentences that support an answer."""

from __future__ import annotations

import pytest

from hirag_dist.core.retrieval.support import placed_citations, statements, supporting_spans
from hirag_dist.types import Citation, Place, Retrieval, SourceItem

SOURCE = (
    "The Alpha Lighthouse guards the Bay of Mist. Dr. Anna Holm, its first keeper, lit the lamp in 1921. "
    "Supplies came by boat every second Tuesday, weather permitting.\nThe tower was repainted in 1987. "
    "After the storm of 1954 the lamp was replaced by an electric one, which needed no keeper."
)


def supports(answer: str, ref: str = "S1", source: str = SOURCE) -> list[str]:
    return [source[start:end] for start, end in supporting_spans(answer, ref, source)]


@pytest.mark.parametrize(
    ("answer", "beginning"),
    [
        ("Anna Holm was the first keeper, and she lit the lamp in 1921 [S1].", "Dr. Anna Holm"),
        ("A boat brought supplies every second Tuesday [S2][S1].", "Supplies came"),
        ("The tower got new paint in 1987 [S1], long after that [S2].", "The tower was repainted"),
        ("An electric lamp replaced the old one after the 1954 storm [S1].", "After the storm"),
    ],
)
def test_the_sentence_that_states_it_is_found(answer: str, beginning: str) -> None:
    (found,) = supports(answer)
    assert found.startswith(beginning)


def test_nothing_is_claimed_where_no_sentence_clearly_states_it() -> None:
    assert supports("Coastal communities depended on maritime infrastructure [S1].") == []
    assert supports("The lamp [S2].") == []
    assert supports("", "S1") == []
    assert supports("It is so [S1].", source="") == []


WRAPPED = """\
The Alpha Lighthouse guards the Bay of Mist. Dr. Anna Holm, who was its
first keeper and lived in the tower for thirty years, lit the lamp in
1921. Supplies came by boat every second Tuesday, weather permitting.

The tower was repainted in 1987, after the storm had taken the paint from
Its northern side."""


@pytest.mark.parametrize(
    ("answer", "beginning", "end"),
    [
        ("Anna Holm lived in the tower for thirty years [S1].", "Dr. Anna Holm, who", "lamp in\n1921."),
        ("The storm took the paint of the northern side [S1].", "The tower was", "northern side."),
    ],
)
def test_a_sentence_of_a_wrapped_text_is_found_whole(answer: str, beginning: str, end: str) -> None:
    (found,) = supports(answer, source=WRAPPED)
    assert found.startswith(beginning)
    assert found.endswith(end)


def test_each_statement_has_its_sentence() -> None:
    answer = "Anna Holm lit the lamp in 1921 [S1]. Much later the tower was repainted, in 1987 [S1]."
    assert [each[:9] for each in supports(answer)] == ["Dr. Anna ", "The tower"]


def test_scripts_without_spaces() -> None:
    source = "北京是中国的首都。上海是最大的城市。"
    assert supports("中国的首都是北京[S1]。", source=source) == ["北京是中国的首都。"]


def test_statements_end_at_the_citation_before() -> None:
    assert list(statements("He left [S1], she stayed [S2].", "S2")) == ["she stayed"]
    assert list(statements("[S1] It rained.", "S1")) == []


def test_citations_of_chunks_get_the_places_of_their_sentences() -> None:
    source = SourceItem("k1", "d1", "Log", "log.txt", 100, 100 + len(SOURCE), SOURCE, 0.5)
    retrieval = Retrieval("q", "local", "s", sources=(source,))
    given = (Citation("S1", "chunk", "k1", "Log"), Citation("E1", "entity", "e1", "Anna"))
    text = "The tower was repainted in 1987 [S1][E1]."
    chunk, entity = placed_citations(text, given, retrieval)
    assert entity == given[1]
    assert (chunk.document_id, chunk.uri) == ("d1", "log.txt")
    (place,) = chunk.places
    assert SOURCE[place.start - 100 : place.end - 100] == "The tower was repainted in 1987."
    (whole,) = placed_citations("Quite so [S1].", given[:1], retrieval)
    assert [(place.start, place.end) for place in whole.places] == [(100, 100 + len(SOURCE))]
    (own,) = placed_citations(text, given[:1], retrieval, lambda item, start, end: (Place(start, end, "page", page=7),))
    assert own.places[0].page == 7
