"""Passages are found whatever the case, punctuation and line breaks, and those of other texts are not distinctive."""

from __future__ import annotations

from hirag_dist.core.text.terms import SHINGLE_WORDS, Passages, shingles, words

TEXT = "Ada Lovelace wrote the longest of her notes\non the Analytical Engine, in 1843."


def test_a_passage_is_found_in_another_layout() -> None:
    passages = Passages(shingles(TEXT))
    assert len(passages) == len(words(TEXT)) - SHINGLE_WORDS + 1
    assert passages.within('It says: "ADA LOVELACE wrote the longest of her notes."')
    assert not passages.within("Ada Lovelace wrote the longest of her letters.")


def test_what_another_text_has_is_not_distinctive() -> None:
    passages = Passages(shingles(TEXT))
    passages.discard_within("We read that Ada Lovelace wrote the longest of her notes in London.")
    assert not passages.within("Ada Lovelace wrote the longest of her notes")
    assert passages.within(TEXT)


def test_writing_without_spaces_is_searched_by_characters() -> None:
    passages = Passages(shingles("吾輩は猫である。名前はまだ無い。"))
    assert passages.within("「吾輩は猫である。名前はまだ無い。どこで生れたか")
    assert not passages.within("吾輩は犬である。")


def test_short_texts() -> None:
    assert list(shingles("And who is it?")) == [], "a phrase that any text may have"
    assert list(shingles("")) == []
    passages = Passages([(), ("engine",)])
    assert len(passages) == 1
    assert passages.within("Engine!") == {("engine",)}
    assert Passages().within(TEXT) == set()
