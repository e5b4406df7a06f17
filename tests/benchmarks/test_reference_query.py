"""The baseline does what the reference does: nearest entities, communities by votes, one walk through the keys."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.generated import generate, questions
from benchmarks.reference_query import TOKENS, TOP_K, ReferenceQuery
from hirag_dist.storage.snapshot.reader import Snapshot, open_snapshot
from hirag_dist.storage.store import Store


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    store = Store(str(tmp_path_factory.mktemp("reference")))
    generate(store, 1000)
    return open_snapshot(store)


def test_an_answer_holds_every_section_in_order(snapshot: Snapshot) -> None:
    asked = questions(snapshot.entity_vectors, 1)[0]
    context, times = ReferenceQuery(snapshot, len).ask(asked)
    titles = [line.strip("-") for line in context.splitlines() if line.startswith("-----")]
    assert titles == ["Entities", "Reports", "Reasoning Path", "Relationships", "Sources"]
    assert sum(times[part] for part in ("search", "communities", "local", "bridge", "render")) <= times["total"]


def test_local_entities_are_the_nearest_by_brute_force(snapshot: Snapshot) -> None:
    asked = questions(snapshot.entity_vectors, 1)[0]
    context, _ = ReferenceQuery(snapshot, len).ask(asked)
    names = snapshot.table("entities")["name"].to_pylist()
    nearest = np.argsort(-(np.asarray(snapshot.entity_vectors) @ asked))[:TOP_K]
    rows = context.split("-----Entities-----\n```csv\n")[1].split("```")[0].splitlines()
    assert [row.split(",")[1] for row in rows] == [names[at] for at in nearest]


def test_sections_keep_to_their_tokens(snapshot: Snapshot) -> None:
    asked = questions(snapshot.entity_vectors, 1)[0]
    counted: list[int] = []

    def count(text: str) -> int:
        counted.append(len(text) // 4)
        return counted[-1]

    small, _ = ReferenceQuery(snapshot, lambda text: 1).ask(asked)
    large, _ = ReferenceQuery(snapshot, lambda text: TOKENS["relations"]).ask(asked)
    ReferenceQuery(snapshot, count).ask(asked)
    assert counted  # counted for each question, as the reference does
    assert len(large) < len(small)


def test_consecutive_path_nodes_are_related(snapshot: Snapshot) -> None:
    asked = questions(snapshot.entity_vectors, 1)[0]
    context, _ = ReferenceQuery(snapshot, lambda text: 1).ask(asked)
    rows = context.split("-----Reasoning Path-----\n```csv\n")[1].split("```")[0].splitlines()
    names = snapshot.table("entities")["name"].to_pylist()
    ids = dict(zip(snapshot.table("entities")["entity_id"].to_pylist(), names, strict=True))
    relations = snapshot.table("relations")
    related = {
        frozenset((ids[source], ids[target]))
        for source, target in zip(relations["source_id"].to_pylist(), relations["target_id"].to_pylist(), strict=True)
    }
    assert rows
    assert all(frozenset(row.split(",")[1:3]) in related for row in rows)
