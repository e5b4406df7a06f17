"""Evidence, tallies and differences of `eval retrieval`, worked by hand."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from hirag_dist.evaluation.kinds.retrieval import Evidence, findings, measured, retrieval_board
from hirag_dist.storage.snapshot.reader import Snapshot
from tests.toy_builds import Bench, rows

TEXTS = ["ant bee cat", "cat dog elk", "fox gnu hen", "ant bee cat"]  # the last is the first again


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    """Words are entities, neighbours are related: cat is in two documents."""
    return Bench(tmp_path_factory.mktemp("toy")).build(TEXTS)


def chunk_rows(snapshot: Snapshot, *words: str) -> set[int]:
    return {at for at, row in enumerate(rows(snapshot, "chunks")) if any(word in row["text"] for word in words)}


def test_gold_ids_are_looked_for_from_the_owners_to_ours(snapshot: Snapshot) -> None:
    document = next(row for row in rows(snapshot, "documents") if "fox" in row["text"])
    chunk = next(row for row in rows(snapshot, "chunks") if "dog" in row["text"])
    wanted = ["0.txt", "3.txt", document["document_id"], chunk["chunk_id"], "2", "nobody's"]
    evidence = Evidence(snapshot, wanted)
    assert evidence.of("0.txt") == evidence.of("3.txt") == chunk_rows(snapshot, "ant")  # one document, two ids
    assert evidence.of(document["document_id"]) == chunk_rows(snapshot, "fox")
    assert evidence.of(chunk["chunk_id"]) == chunk_rows(snapshot, "dog")
    assert evidence.of("2") == chunk_rows(snapshot, "fox")  # its title
    assert evidence.of("nobody's") == frozenset()
    assert evidence.known == set(wanted) - {"nobody's"}


def value(ranks: list[int | None]) -> dict[str, Any]:
    return {"ranks": ranks, "ms": {"search": 1.0, "total": 3.0}, "context_tokens": 100}


@cache
def told() -> Any:
    """Two questions, two modes; naive has a dead letter for the second question."""
    board = retrieval_board(["multi", "single"], ["hirag", "naive"], [2, 5])
    board.add(0, "hirag", measured(value([1, 5]), [2, 5]))
    board.add(1, "hirag", measured(value([None]), [2, 5]))
    board.add(0, "naive", measured(value([3, None]), [2, 5]))
    return findings(board, [2, 5], 10, {"questions": 2, "without_gold": 0, "gold_ids_unknown": 1}, 2)


def test_recall_and_whole_evidence_by_hand() -> None:
    """hirag finds ids 1 and 2 of question a at ranks 1 and 5, and nothing of b: 1/2 and 0 at 2, 1 and 0 at 5."""
    found = told().results["systems"]
    assert {system: {name: each.value for name, each in values.items()} for system, values in found.items()} == {
        "hirag": {"recall@2": 0.25, "recall@5": 0.5, "all@2": 0.0, "all@5": 0.5},
        "naive": {"recall@2": 0.0, "recall@5": 0.5, "all@2": 0.0, "all@5": 0.0},
    }
    assert (found["hirag"]["recall@5"].low, found["hirag"]["recall@5"].high) == (0.0, 1.0)


def test_differences_are_over_questions_that_both_answered() -> None:
    found = told().results["differences"]
    assert [(each["first"], each["second"]) for each in found] == [("hirag", "naive")] * 4
    assert [each["difference"].value for each in found] == [0.5, 0.5, 0.0, 1.0]
