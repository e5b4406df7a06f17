from __future__ import annotations

import pytest

from hirag_dist.llm.rule_based.phrases import find_phrases
from hirag_dist.llm.rule_based.sentences import split_sentences, tokens
from hirag_dist.types import FoundName

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
CASES = [
    (ARABIC, {"نجيب محفوظ", "رواية أولاد حارتنا", "القاهرة", "جائزة نوبل"}),
    (KOREAN, {"훈민정음", "집현전", "경복궁"}),
    (HINDI, {"महात्मा गांधी", "दक्षिण अफ्रीका"}),
    (HEBREW, {"מדינת ישראל", "ירושלים"}),
]


def phrases(lines: list[str]) -> list[FoundName]:
    return find_phrases([tokens(line) for line in lines], None)


@pytest.mark.parametrize(("text", "names"), CASES)
def test_what_recurs_is_found_in_writing_without_capitals(text: str, names: set[str]) -> None:
    found = phrases(split_sentences(text))
    assert names <= {one.name for one in found}


def test_places_are_sentences_and_words() -> None:
    (one,) = [one for one in phrases(split_sentences(KOREAN)) if one.name == "경복궁"]
    assert one.places == ((3, 1), (4, 0))


def test_frequent_short_words_are_neither_names_nor_ends_of_names() -> None:
    found = phrases([f"und wieder sagte Nummer{number} etwas über Papier und Tinte" for number in range(8)])
    assert all("und" not in (one.name.split()[0], one.name.split()[-1]) for one in found)


def test_what_occurs_once_is_no_phrase() -> None:
    assert phrases(["alpha beta gamma delta"]) == []
    assert phrases([]) == []
