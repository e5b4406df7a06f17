"""Counts of what a context holds."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.context_counts import FactIndex, Points, best_shares, read_points, repetition, windows, words_of


class Tables:
    """A snapshot's tables."""

    def __init__(self, **tables: list[dict[str, Any]]) -> None:
        self.tables = tables

    def table(self, name: str, columns: list[str]) -> pa.Table:
        return pa.Table.from_pylist(self.tables[name]).select(columns)


def test_facts_are_names_and_related_pairs_within_one_record() -> None:
    names = ["Ann Lee", "mill", "Leeds Abbey", "x", "Ann"]
    entities = [{"entity_id": str(at), "layer": 0, "name": name} for at, name in enumerate(names)]
    entities.append({"entity_id": "S", "layer": 1, "name": "owners"})
    relations = [
        {"source_id": "1", "target_id": "0", "kind": "extracted"},
        {"source_id": "1", "target_id": "2", "kind": "extracted"},
        {"source_id": "0", "target_id": "2", "kind": "summary"},
    ]
    facts = FactIndex(Tables(entities=entities, relations=relations))  # type: ignore[arg-type]
    assert facts.count("[E1] Ann Lee owns the mill.\n[E2] The owners of x") == 3, "two names, one pair"
    assert facts.count("[E1] ANN LEE.\n[E2] mill") == 2, "in two records"
    assert facts.count("mill, Leeds  Abbey; mill") == 3
    assert facts.count("") == 0


def test_references_are_no_words_and_repeat_nothing() -> None:
    assert words_of("[E1] Ann's [S2] mill") == ["ann", "s", "s2", "mill"], "at the beginning of a record only"
    assert repetition("[E1] a b c d e\n[E1] a b c d e") == pytest.approx(1 / 6)
    assert repetition("a b") == 0.0


def test_windows_cover_every_word_and_overlap() -> None:
    for count in (0, 1, 29, 60, 61, 90, 91, 200):
        words = [str(at) for at in range(count)]
        parts = windows(words)
        assert {word for part in parts for word in part} == set(words)
        assert all(len(part) <= 60 for part in parts)
        for at in range(count - 30):
            assert any(set(words[at : at + 30]) <= set(part) for part in parts)


def test_a_point_is_held_where_half_of_its_words_by_rarity_stand_together() -> None:
    rarity = {"rare": 4.0, "mill": 2.0, "the": 1.0, "of": 1.0}
    points = [frozenset(("rare", "the")), frozenset(("mill", "the", "of"))]
    parts = [["the", "of", "rare"], ["mill"]]
    assert best_shares(points, parts, rarity).tolist() == [1.0, 0.5]
    assert best_shares(points, [], rarity).tolist() == [0.0, 0.0]
    assert Points(points, rarity).held("The rare. The rare.") == 0.5
    assert math.isnan(Points([], rarity).held("anything"))


def test_points_are_sentences_of_answers_that_the_corpus_holds(tmp_path: Path) -> None:
    def write(name: str, *lines: dict[str, str]) -> None:
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")

    held, other = "Bees visit the clover of the valley.", "Nothing about dragons stands in any text."
    write("queries.jsonl", {"query_id": "q", "query": "Bees?"})
    write("answers.jsonl", *({"query_id": "q", "answer": f"**{held}** {other} Too short."} for _ in range(2)))
    questions, (points,) = read_points(tmp_path, ["In spring bees visit the clover of that valley.", "Sheep."])
    assert (questions, len(points)) == (["Bees?"], 1)
    assert (points.held(held), points.held(other)) == (1.0, 0.0)
    assert np.isfinite(points.held(""))
