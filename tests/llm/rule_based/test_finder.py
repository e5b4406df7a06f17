"""Names and noun phrases found in small texts, and the records made of them."""

from __future__ import annotations

import pytest

from hirag_dist.config.model import ENTITY_TYPES
from hirag_dist.core.text.normalize import name_key
from hirag_dist.llm.rule_based.entity_types import TypeWords, listed_types
from hirag_dist.llm.rule_based.finder import extract_records, find_entities
from hirag_dist.llm.rule_based.language import split_sentences
from hirag_dist.types import FoundName

ENGLISH = (
    "Ebenezer Scrooge was a miser in London. Scrooge met the ghost of Jacob Marley on Christmas Eve. "
    "Marley was the partner of Scrooge. Bob Cratchit worked for Scrooge in London."
)
GERMAN = (
    "Die Universität Heidelberg wurde 1386 gegründet. Heute studieren an der Universität viele Menschen. Die "
    "Bibliothek der Universität besitzt den Codex Manesse. Der Codex Manesse stammt aus Zürich."
)
ARABIC = (
    "ولد نجيب محفوظ في القاهرة عام 1911. كتب نجيب محفوظ رواية أولاد حارتنا. نال نجيب محفوظ جائزة نوبل في الأدب. "
    "تدور أحداث رواية أولاد حارتنا في القاهرة. جائزة نوبل في الأدب هي أرفع جائزة أدبية."
)
KOREAN = (
    "훈민정음은 1446년에 반포되었다. 세종대왕은 훈민정음을 만들었다. 세종대왕은 집현전 학자들과 함께 연구하였다. "
    "집현전은 경복궁에 있었다. 경복궁은 서울에 있다."
)
HINDI = "महात्मा गांधी का जन्म पोरबंदर में हुआ। महात्मा गांधी ने दक्षिण अफ्रीका में वकालत की। दक्षिण अफ्रीका में वे रहे।"
HEBREW = "מדינת ישראל הוקמה בתל אביב. בירת מדינת ישראל היא ירושלים. ירושלים עיר עתיקה."
THAI = (
    "กรุงเทพมหานครเป็นเมืองหลวงของประเทศไทย กรุงเทพมหานครตั้งอยู่บนแม่น้ำเจ้าพระยา แม่น้ำเจ้าพระยาไหลลงสู่อ่าวไทย "
    "ประเทศไทยมีพระมหากษัตริย์เป็นประมุข รัชกาลที่ 1 ทรงสถาปนากรุงเทพมหานคร"
)
CASES = [
    (ARABIC, {"نجيب محفوظ", "رواية أولاد حارتنا", "القاهرة", "جائزة نوبل"}),
    (KOREAN, {"훈민정음", "집현전", "경복궁"}),
    (HINDI, {"महात्मा गांधी", "दक्षिण अफ्रीका"}),
    (HEBREW, {"מדינת ישראל", "ירושלים"}),
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


def test_names_of_another_language_with_capitals() -> None:
    assert {"Universität Heidelberg", "Codex Manesse", "Zürich"} <= find(GERMAN).keys()
    assert "Manesse" not in find(GERMAN)


@pytest.mark.parametrize(("text", "names"), CASES)
def test_names_of_writing_without_capitals(text: str, names: set[str]) -> None:
    assert names <= find(text).keys()


def test_full_names_take_the_places_of_short_ones() -> None:
    found = find(
        "Old Marley was dead. Scrooge knew it. Ebenezer Scrooge signed the register, and Mr. Scrooge was the sole "
        "mourner. Everyone in London feared Scrooge's frown."
    )
    assert len(found["Ebenezer Scrooge"].places) == 4
    assert not {"Scrooge", "Mr. Scrooge", "Everyone"} & set(found)
    assert found["Ebenezer Scrooge"].type == "person"
    assert found["London"].type == "location"


@pytest.mark.parametrize(
    ("text", "name", "kind"),
    [
        ("He studied at the University of Bonn for years.", "University of Bonn", "organization"),
        ("He fell in the Battle of the Somme that day.", "Battle of the Somme", "event"),
        ("The prize went to J. Lee Thompson that year.", "J. Lee Thompson", "person"),
        ("It was written by Ludwig van Beethoven alone.", "Ludwig van Beethoven", "person"),
        ("The shop was bought by Acme Motors Inc last week.", "Acme Motors Inc", "organization"),
        ("Роман написал Лев Толстой в деревне.", "Лев Толстой", "person"),
    ],
)
def test_names_and_their_kinds(text: str, name: str, kind: str) -> None:
    assert find(text)[name].type == kind


def test_terms_come_in_the_singular_and_in_small_letters() -> None:
    found = find(
        "Honey bees live in colonies. A honey bee visits flowers. Queen cells are built when honey bees swarm. "
        "Each queen cell hangs down. The beekeeper cuts out queen cells before the swarming season."
    )
    assert len(found["honey bee"].places) == 3
    assert len(found["queen cell"].places) == 3
    assert not any(name.endswith(("bees", "cells")) for name in found)


def test_junk_is_kept_out() -> None:
    found = find(
        "However, on Monday 5 May 1950 they used the number of items in Figure 2 and Chapter 3. "
        "In Chapter 3 the "
        "number of items is shown; see www.example.org and Table 4. He and She said I know. "
        "On Tuesday, Section 3.2 was used. "
        "American and English readers used the use of 12,000 items. Therefore it is so. Vol. II, pp. 3-4."
    )
    assert set(found) <= {"item", "reader"}, set(found)


def test_chinese_names_come_first() -> None:
    text = (
        "孙悟空大闹天宫。玉帝大怒，命天王捉拿孙悟空。孙悟空道：“俺老孙来也！”玉帝又差金星招安，"
        "金星奏玉帝道：“孙悟空有神通。”众神见孙悟空来，都怕他。唐僧叫声孙悟空，却不见玉帝。"
    )
    ranked = list(find(text).values())
    assert [one.name for one in ranked[:2]] == ["孙悟空", "玉帝"]
    assert ranked[0].type == "person"


def test_types_are_read_from_the_prompt() -> None:
    system = "Task: extract-graph\n\nRead.\nTypes to prefer: People, place, idea. Use another short type."
    assert listed_types(system) == ["People", "place", "idea"]
    assert listed_types("each of one of these types: a, b c, d.\nName each") == ["a", "b c", "d"]
    assert "concept" in listed_types("no list here")
    words = TypeWords(["People", "place", "idea"])
    assert [words.word(kind) for kind in ("person", "location", "event", "technology")] == [
        "People",
        "place",
        "idea",
        "idea",
    ]
    assert TypeWords(["gene", "disease"]).word("person") == "disease"


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
