"""Evidence, tallies and differences of `eval retrieval`, worked by hand."""

from __future__ import annotations

from typing import Any

import pytest

from hirag_dist.config.model import RetrievalConfig as Settings
from hirag_dist.evaluation import Question, SystemUnderTest
from hirag_dist.evaluation.evidence import LEVELS, Evidence
from hirag_dist.evaluation.kinds.retrieval import RetrievalTally, findings
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.types import CommunityItem, EntityItem, PathItem, Retrieval, SourceItem, TripleItem
from tests.toy_builds import Bench, rows

TEXTS = ["ant bee cat", "cat dog elk", "fox gnu hen", "ant bee cat"]  # the last is the first again


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    """Words are entities, neighbours are related: cat is in two documents."""
    return Bench(tmp_path_factory.mktemp("toy")).build(TEXTS)


def chunk_rows(snapshot: Snapshot, *words: str) -> set[int]:
    return {at for at, row in enumerate(rows(snapshot, "chunks")) if any(word in row["text"] for word in words)}


def entity(snapshot: Snapshot, name: str, layer: int = 0) -> EntityItem:
    found = [row for row in rows(snapshot, "entities") if row["layer"] == layer and (row["name"] == name or layer)]
    return EntityItem(found[0]["entity_id"], name, "", "", layer)


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


def test_what_stands_behind_a_level(snapshot: Snapshot) -> None:
    evidence = Evidence(snapshot, [])
    ant, cat, gnu = (entity(snapshot, name) for name in ("ant", "cat", "gnu"))
    relation = next(row for row in rows(snapshot, "relations") if row["description"].startswith("fox"))
    community = next(row for row in rows(snapshot, "communities") if gnu.entity_id in row["entity_ids"])
    sources = [rows(snapshot, "chunks")[row] for row in (2, 0)]
    found = Retrieval(
        "q",
        "hirag",
        snapshot.manifest.snapshot_id,
        local=(ant, entity(snapshot, "", layer=1)),
        communities=(CommunityItem(community["community_id"], 0, "", "", 0.0, 1, 0.0),),
        key_entities=(cat,),
        paths=(PathItem(gnu.entity_id, gnu.entity_id, (gnu.entity_id,), ("gnu",)), PathItem("a", "b", (), ())),
        triples=(TripleItem(relation["relation_id"], "", "", "", "", "", "", 1.0, 0.0),),
        sources=tuple(SourceItem(row["chunk_id"], "", "", "", 0, 1, "", 0.0) for row in sources),
    )
    behind = {level: places.tolist() for level, places in evidence.behind(found).items()}
    members = {row["name"] for row in rows(snapshot, "entities") if row["entity_id"] in community["entity_ids"]}
    assert tuple(behind) == LEVELS
    assert set(behind["local"]) == chunk_rows(snapshot, "ant")
    assert set(behind["global"]) == chunk_rows(snapshot, *(name for name in members if len(name) == 3))
    assert set(behind["bridge"]) == chunk_rows(snapshot, "cat", "gnu", "fox")
    assert behind["sources"] == [2, 0]


def system(name: str) -> SystemUnderTest:
    return SystemUnderTest(name, name, "", Settings())


def value(ranks: list[int | None], **reached: list[bool]) -> dict[str, Any]:
    none = [False] * len(ranks)
    return {
        "ranks": ranks,
        "reached": {level: reached.get(level, none) for level in LEVELS},
        "chunks": {level: 2 if level in reached else 0 for level in LEVELS},
        "ms": {"search": 1.0, "total": 3.0},
        "context_tokens": 100,
    }


def told() -> Any:
    """Two questions, two modes; naive has a dead letter for the second question."""
    questions = [Question("a", "A?", "multi", gold=("1", "2")), Question("b", "B?", "single", gold=("3",))]
    systems = [system("hirag"), system("naive")]
    tally = RetrievalTally(questions, systems)
    tally.add(questions[0], systems[0], value([1, 5], local=[True, True], sources=[True, False]))
    tally.add(questions[1], systems[0], value([None], bridge=[True]))
    tally.add(questions[0], systems[1], value([3, None], sources=[True, False]))
    return findings(tally, [2, 5], 10, {"questions": 2, "without_gold": 0, "gold_ids_unknown": 1})


def test_recall_and_whole_evidence_by_hand() -> None:
    """hirag finds ids 1 and 2 of question a at ranks 1 and 5, and nothing of b: 1/2 and 0 at 2, 1 and 0 at 5."""
    found = told().results["systems"]
    assert {name: each.value for name, each in found["hirag"].items()} == {
        "recall@2": 0.25,
        "recall@5": 0.5,
        "all@2": 0.0,
        "all@5": 0.5,
    }
    assert (found["hirag"]["recall@5"].low, found["hirag"]["recall@5"].high) == (0.0, 1.0)
    assert {name: each.value for name, each in found["naive"].items()} == {
        "recall@2": 0.0,
        "recall@5": 0.5,
        "all@2": 0.0,
        "all@5": 0.0,
    }


def test_differences_are_over_questions_that_both_answered() -> None:
    found = told().results["differences"]
    assert [(each["system"], each["against"]) for each in found] == [("hirag", "naive")] * 4
    assert [each["difference"].value for each in found] == [0.5, 0.5, 0.0, 1.0]
