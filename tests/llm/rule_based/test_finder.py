"""Names and noun phrases found in small texts, and the records made of them."""

from __future__ import annotations

import pytest

from hirag_dist.config.model import ENTITY_TYPES
from hirag_dist.core.text.normalize import name_key
from hirag_dist.llm.rule_based.finder import extract_records, find_entities
from hirag_dist.llm.rule_based.language import split_sentences
from hirag_dist.types import FoundName

ENGLISH = (
    "Ebenezer Scrooge was a miser in London. Scrooge met the ghost of Jacob Marley on Christmas Eve. "
    "Marley was the partner of Scrooge. Bob Cratchit worked for Scrooge in London."
)
ARABIC = (
    "ولد نجيب محفوظ في القاهرة عام 1911. كتب نجيب محفوظ رواية أولاد حارتنا. نال نجيب محفوظ جائزة نوبل في الأدب. "
    "تدور أحداث رواية أولاد حارتنا في القاهرة. جائزة نوبل في الأدب هي أرفع جائزة أدبية."
)
KOREAN = (
    "훈민정음은 1446년에 반포되었다. 세종대왕은 훈민정음을 만들었다. 세종대왕은 집현전 학자들과 함께 연구하였다. "
    "집현전은 경복궁에 있었다. 경복궁은 서울에 있다."
)
THAI = (
    "กรุงเทพมหานครเป็นเมืองหลวงของประเทศไทย กรุงเทพมหานครตั้งอยู่บนแม่น้ำเจ้าพระยา แม่น้ำเจ้าพระยาไหลลงสู่อ่าวไทย "
    "ประเทศไทยมีพระมหากษัตริย์เป็นประมุข รัชกาลที่ 1 ทรงสถาปนากรุงเทพมหานคร"
)
CASES = [
    (ARABIC, {"نجيب محفوظ", "رواية أولاد حارتنا", "القاهرة", "جائزة نوبل"}),
    (KOREAN, {"훈민정음", "집현전", "경복궁"}),
    (THAI, {"กรุงเทพมหานคร", "แม่น้ำเจ้าพระยา", "ประเทศไทย"}),
]


def find(text: str) -> dict[str, FoundName]:
    found = find_entities(split_sentences(text))
    assert all(one.places for one in found)
    assert len({name_key(one.name) for one in found}) == len(found)
    return {one.name: one for one in found}


def test_names_of_english_with_their_types() -> None:
    found = find(ENGLISH)
    assert found["Ebenezer Scrooge"].type == found["Bob Cratchit"].type == "person"
    assert found["London"].type == "location"
    assert next(iter(found)) == "Ebenezer Scrooge", "the one that is named most"


@pytest.mark.parametrize(("text", "names"), CASES)
def test_names_of_writing_without_capitals(text: str, names: set[str]) -> None:
    assert names <= find(text).keys()


@pytest.mark.parametrize(
    ("text", "name", "kind"),
    [
        ("He studied at the University of Bonn for years.", "University of Bonn", "organization"),
        ("The prize went to J. Lee Thompson that year.", "J. Lee Thompson", "person"),
        ("The shop was bought by Acme Motors Inc last week.", "Acme Motors Inc", "organization"),
    ],
)
def test_names_and_their_kinds(text: str, name: str, kind: str) -> None:
    assert find(text)[name].type == kind


def test_chinese_names_come_first() -> None:
    text = (
        "孙悟空大闹天宫。玉帝大怒，命天王捉拿孙悟空。孙悟空道：“俺老孙来也！”玉帝又差金星招安，"
        "金星奏玉帝道：“孙悟空有神通。”众神见孙悟空来，都怕他。唐僧叫声孙悟空，却不见玉帝。"
    )
    ranked = list(find(text).values())
    assert [one.name for one in ranked[:2]] == ["孙悟空", "玉帝"]
    assert ranked[0].type == "person"


def test_descriptions_are_sentences_that_hold_the_name() -> None:
    lines = split_sentences(ENGLISH)
    reply = extract_records(ENGLISH, ENTITY_TYPES)
    described = {entity.name: entity.description for entity in reply.entities}
    assert described["Jacob Marley"] == " ".join(lines[1:3])
    assert all(0 < len(description) <= 240 for description in described.values())
    assert all(entity.type in ENTITY_TYPES for entity in reply.entities)
    names = set(described)
    assert reply.relations
    assert all(relation.source in names and relation.target in names for relation in reply.relations)
    assert all(1 <= relation.strength <= 10 for relation in reply.relations)
