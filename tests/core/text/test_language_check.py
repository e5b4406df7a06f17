"""A reply in another language is seen where there is no doubt; names, quotations and mixtures are let pass."""

from __future__ import annotations

import pytest

from hirag_dist.core.prompts.reply_validation import other_language

# Our own sentences about one bridge, long enough together to tell a language by.
TEXTS = {
    "English": "The old bridge was built by the monks of the abbey, and it is the only one that crosses the river. "
    "For many years the people have paid a toll at the gate, which is now in the hands of the town. ",
    "German": "Die alte Brücke wurde von den Mönchen der Abtei gebaut und ist die einzige, die den Fluss überquert. "
    "Viele Jahre haben die Leute am Tor einen Zoll bezahlt, der sich nun im Besitz der Stadt befindet. ",
    "Russian": "Старый мост построили монахи аббатства, и он единственный пересекает реку. Много лет люди платили "
    "пошлину у ворот, которые теперь принадлежат городу. ",
    "Chinese": "这座古桥是修道院的僧侣修建的，是唯一一座横跨河流的桥。多年来，人们在桥门口缴纳过桥费，"
    "如今桥门归镇上所有。",
    "Arabic": "بنى رهبان الدير الجسر القديم وهو الجسر الوحيد الذي يعبر النهر وقد دفع الناس رسوما عند البوابة. ",
}


@pytest.mark.parametrize("read", TEXTS)
@pytest.mark.parametrize("written", TEXTS)
def test_two_languages_are_told_apart(written: str, read: str) -> None:
    unsure = {("Japanese", "Chinese")}  # Japanese has Chinese letters too
    differ = written != read and (written, read) not in unsure
    assert bool(other_language([TEXTS[written] * 3], TEXTS[read] * 5)) == differ


def test_the_reason_names_both() -> None:
    assert other_language([TEXTS["German"] * 3], TEXTS["English"] * 5) == (
        "the descriptions are in German, the text is in English"
    )
    assert "in Cyrillic script, the text is in Latin" in other_language([TEXTS["Russian"] * 3], TEXTS["English"] * 5)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ([TEXTS["German"]], "Short."),
        (["Kurz."], TEXTS["English"] * 5),
        (["Ludwig van Beethoven, Brücke, Kölner Dom, Frauenkirche"] * 4, TEXTS["English"] * 5),
        ([TEXTS["English"] + " „Die alte Brücke wurde gebaut.“ " + TEXTS["English"]], TEXTS["English"] * 5),
        (
            ["孙悟空 (Sun Wukong) 是花果山的美猴王，Monkey King 的名字很有名，他在天宫做过官，后来到西天取经。" * 3],
            TEXTS["Chinese"] * 5,
        ),
        ([TEXTS["Chinese"] * 3], TEXTS["Chinese"] * 3 + TEXTS["English"] * 3),
        ([TEXTS["English"] * 3], "def main(): return 0; x = [i for i in range(9)] " * 20),
    ],
)
def test_names_quotations_mixtures_and_short_texts_pass(written: list[str], read: str) -> None:
    assert other_language(written, read) == ""
