"""Copies of a corpus under other names, edited documents, and what is found of a removed one."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.peers.leftovers import left_behind, markers
from benchmarks.update_corpora import (
    CorpusFolder,
    common_words,
    of_median_length,
    read_corpus,
    renamed,
    with_new_sentence,
)
from benchmarks.updates import changes

TEXT = "Captain Ahab sailed with Starbuck. Starbuck doubted the captain of the Pequod. The Pequod sank."


def test_a_copy_has_other_names_and_the_same_common_words() -> None:
    common = frozenset({"with", "the", "of", "sailed", "doubted", "sank"})
    first, second = renamed(TEXT, 1, common), renamed(TEXT, 2, common)
    assert len(first) == len(second) == len(TEXT)
    assert len({TEXT, first, second}) == 3
    words, own = TEXT.replace(".", "").split(), first.replace(".", "").split()
    assert [new for old, new in zip(words, own, strict=True) if old.lower() in common] == [
        old for old in words if old.lower() in common
    ]
    names = {(old, new) for old, new in zip(words, own, strict=True) if old.lower() not in common}
    assert len({new for _, new in names}) == len({old for old, _ in names}), "one word has one new word"
    assert all(old != new and old[0].isupper() == new[0].isupper() for old, new in names)


def test_words_are_common_that_a_fifth_of_the_texts_use() -> None:
    texts = ["the whale", "The ship", "the sea", "the sky", "the sun", "the moon"]
    assert common_words(texts) == frozenset({"the"})
    assert "whale" in common_words(texts[:5])


def test_a_corpus_of_copies_is_shuffled_and_the_same_again(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    texts = ["Ishmael", "Queequeg", "Starbuck", "Stubb", "Flask", "Fedallah"]
    path.write_text("".join(json.dumps({"text": f"The {name}"}) + "\n" for name in texts), encoding="utf-8")
    documents = read_corpus(path, 6, copies=3)
    assert len(documents) == len(set(documents.values())) == 18
    assert list(documents) != sorted(documents)
    assert list(documents) == list(read_corpus(path, 6, copies=3))
    folder = CorpusFolder(tmp_path / "input")
    folder.write(documents)
    folder.write({"one": "Text"})
    assert [each.name for each in folder.path.iterdir()] == ["one.txt"]


def test_one_sentence_is_replaced() -> None:
    edited = with_new_sentence(TEXT)
    assert edited.startswith("Captain Ahab sailed with Starbuck. Ottoline")
    assert edited.endswith("Vanterpool. The Pequod sank.")
    assert with_new_sentence("No end").startswith("No end Ottoline")


def test_changes_name_what_the_index_holds_then_and_what_was_changed() -> None:
    base = {f"b{n}": "x. " * (n + 1) for n in range(20)}
    held = {"h0": "long " * 9, "h1": "y"}
    found = changes(base, held)
    assert list(found) == ["nothing", "+1", "+10 %", "a sentence", "-1", "-10 %"]
    assert found["+1"].documents == {**base, **found["+1"].changed}
    assert list(found["+1"].changed) == [of_median_length(held)]
    assert found["+10 %"].changed == held
    assert len(found["-10 %"].documents) == 18
    assert not set(found["-10 %"].changed) & set(found["-10 %"].documents)
    assert found["a sentence"].documents.keys() == base.keys()


def test_sentences_and_names_are_found_in_files_of_every_kind(tmp_path: Path) -> None:
    removed = "On deck stood Ahab, and near him Queequeg watched the sea.\nThey hunted a whale that no one had caught."
    wanted = markers(removed, ["On deck stood no one near the sea, said Ahab."])
    assert wanted["names"] == [" queequeg "]
    assert len(wanted["sentences"]) == 2
    pq.write_table(pa.table({"text": [["they hunted a whale, that no one had caught!"]]}), tmp_path / "a.parquet")
    (tmp_path / "b.json").write_text(json.dumps({"QUEEQUEG": "is a name"}), encoding="utf-8")
    (tmp_path / "c.json").write_text("no JSON", encoding="utf-8")
    (tmp_path / "d.graphml").write_text("<d>On deck stood Ahab</d>", encoding="utf-8")
    assert left_behind(tmp_path, wanted) == {
        "sentences": {"found": 1, "of": 2},
        "names": {"found": 1, "of": 1},
        "files": {"a.parquet": 1, "b.json": 1},
    }
