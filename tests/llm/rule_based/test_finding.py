"""Names, terms and strings of characters found in small texts."""

from __future__ import annotations

import pytest

from hirag_dist.llm.rule_based.entity_types import TypeWords, listed_types
from hirag_dist.llm.rule_based.extraction import candidates
from hirag_dist.llm.rule_based.names import NameOccurrence
from hirag_dist.llm.rule_based.sentences import clean, sentences


def found_in(text: str) -> dict[str, NameOccurrence]:
    return {one.name: one for one in candidates(sentences(clean(text)))}


def test_full_names_take_the_places_of_short_ones() -> None:
    found = found_in(
        "Old Marley was dead. Scrooge knew it. Ebenezer Scrooge signed the register, and Mr. Scrooge was the sole "
        "mourner. Everyone in London feared Scrooge's frown."
    )
    assert len(found["Ebenezer Scrooge"].places) == 4
    assert not {"Scrooge", "Mr. Scrooge", "Everyone"} & set(found)
    assert found["Ebenezer Scrooge"].kind == "person"
    assert found["London"].kind == "location"


def test_a_surname_of_two_people_stays_as_it_is() -> None:
    found = found_in("Anna Bell met Carl Bell in Rome. Later Bell was seen with Bell in Paris.")
    assert {"Anna Bell", "Carl Bell", "Bell"} <= set(found)


@pytest.mark.parametrize(
    ("text", "name", "kind"),
    [
        ("He studied at the University of Bonn for years.", "University of Bonn", "organization"),
        ("They sailed down the Potomac River in June.", "Potomac River", "location"),
        ("He fell in the Battle of the Somme that day.", "Battle of the Somme", "event"),
        ("The prize went to J. Lee Thompson that year.", "J. Lee Thompson", "person"),
        ("It was written by Ludwig van Beethoven alone.", "Ludwig van Beethoven", "person"),
        ("He won the Giro d'Italia twice.", "Giro d'Italia", "event"),
        ("The shop was bought by Acme Motors Inc last week.", "Acme Motors Inc", "organization"),
        ("She taught at King's College for years.", "King's College", "organization"),
        ("Роман написал Лев Толстой в деревне.", "Лев Толстой", "person"),
    ],
)
def test_names_and_their_kinds(text: str, name: str, kind: str) -> None:
    assert found_in(text)[name].kind == kind


def test_terms_come_in_the_singular_and_in_small_letters() -> None:
    found = found_in(
        "Honey bees live in colonies. A honey bee visits flowers. Queen cells are built when honey bees swarm. "
        "Each queen cell hangs down. The beekeeper cuts out queen cells before the swarming season."
    )
    assert len(found["honey bee"].places) == 3
    assert len(found["queen cell"].places) == 3
    assert not any(name.endswith(("bees", "cells")) for name in found)


def test_common_words_make_a_term_together_where_they_recur() -> None:
    found = found_in("The interest rate rose. An interest rate of two per cent is low. Interest rates fell last year.")
    assert list(found) == ["interest rate"]


def test_junk_is_kept_out() -> None:
    found = found_in(
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
    ranked = sorted(candidates(sentences(text)), key=lambda one: -one.score)
    assert [one.name for one in ranked[:2]] == ["孙悟空", "玉帝"]
    assert ranked[0].kind == "person"


def test_japanese_runs_of_kanji_and_katakana() -> None:
    found = found_in("東京タワーは東京にある。東京の人はコーヒーが好きで、コーヒーをよく飲む。")
    assert {"東京", "コーヒー"} <= set(found)


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
