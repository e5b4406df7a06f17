"""Sets of questions that are made from public data, and the choice of constants."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.source_choice import GRID, combinations, described
from benchmarks.source_ranking import read_passages, read_questions
from benchmarks.source_sets import PART_WORDS, PASSAGES_OF_QUESTION, parts_of, write_hotpotqa50
from benchmarks.source_variants import parsed


def test_the_evidence_of_a_question_are_its_passages_with_the_answer(tmp_path: Path) -> None:
    texts = ["It was 1755.", "Nothing."] * PASSAGES_OF_QUESTION
    passages = [{"passage_id": f"p{row}", "text": text} for row, text in enumerate(texts)]
    questions = [{"question": "When?", "answer": "1755"}, {"question": "Was it?", "answer": "yes"}]
    for name, rows in (("corpus", passages), ("questions", questions)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_hotpotqa50(tmp_path, tmp_path / "out")
    assert [one.passage_id for one in read_passages(tmp_path / "out")] == ["p0", "p1"], "equal passages are one"
    assert [(one.text, one.gold) for one in read_questions(tmp_path / "out")] == [("When?", frozenset({"p0"}))]


def test_parts_are_whole_sentences_and_count_for_their_chunk() -> None:
    text = " ".join(f"Sentence {row} has five words." for row in range(100))
    parts = list(parts_of("T", [("c", text), ("d", "Short.")]))
    assert " ".join(part["text"] for part in parts if part["part_of"] == "c") == text
    assert [part["passage_id"] for part in parts] == ["c/0", "c/1", "c/2", "d/0"]
    assert all(PART_WORDS <= len(part["text"].split()) < PART_WORDS + 5 for part in parts[:2])


def test_every_combination_has_a_spec() -> None:
    grid = combinations()
    expected = 1
    for values in GRID.values():
        expected *= len(values)
    assert len(set(grid)) == expected
    assert all(parsed(described(variant)) == variant for variant in grid)
