from __future__ import annotations

import pytest

from hirag_dist.config.model import ENTITY_TYPES
from hirag_dist.core.text.normalize import name_key
from hirag_dist.extraction import find_names
from hirag_dist.extraction.scripts import split_sentences
from hirag_dist.types import FoundName
from tests.extraction.test_phrases import CASES

ENGLISH = (
    "Ebenezer Scrooge was a miser in London. Scrooge met the ghost of Jacob Marley on Christmas Eve. "
    "Marley was the partner of Scrooge. Bob Cratchit worked for Scrooge in London."
)
GERMAN = (
    "Die Universität Heidelberg wurde 1386 gegründet. Heute studieren an der Universität viele Menschen. Die "
    "Bibliothek der Universität besitzt den Codex Manesse. Der Codex Manesse stammt aus Zürich."
)


def find(text: str) -> dict[str, FoundName]:
    (found,) = find_names([split_sentences(text)], ENTITY_TYPES)
    assert all(one.type in ENTITY_TYPES and one.places for one in found)
    assert len({name_key(one.name) for one in found}) == len(found)
    return {one.name: one for one in found}


def test_names_of_english_with_their_types() -> None:
    found = find(ENGLISH)
    assert found["Ebenezer Scrooge"].type == found["Bob Cratchit"].type == "person"
    assert found["London"].type == "location"
    assert next(iter(found)) == "Ebenezer Scrooge", "the one that is named most"


def test_names_of_another_language_with_capitals() -> None:
    assert {"Universität Heidelberg", "Codex Manesse", "Zürich"} <= find(GERMAN).keys()
    assert "Manesse" not in find(GERMAN)


@pytest.mark.parametrize(("text", "names"), CASES)
def test_names_of_writing_without_capitals(text: str, names: set[str]) -> None:
    assert names <= find(text).keys()


def test_names_of_japanese_and_of_latin_words_in_korean() -> None:
    assert "徳川家康" in find("徳川家康は江戸幕府を開いた。江戸幕府は江戸に置かれた。徳川家康は勝った。")
    text = "삼성전자는 Samsung Galaxy를 만들었다. 삼성전자는 서울에 있다. 애플은 삼성전자의 경쟁자이다."
    assert {"삼성전자", "Samsung Galaxy"} <= find(text).keys()


def test_a_text_without_letters_holds_no_name() -> None:
    assert find_names([[], ["1234 5678"], ["…"]], ENTITY_TYPES) == [[], [], []]
