"""Mentions that a generated index would have been merged from, documents about its entities, and times by part."""

from __future__ import annotations

import json
from types import SimpleNamespace
from unittest import mock

import pyarrow.compute as pc
import pytest

from benchmarks import update_scale
from benchmarks.generated import generate
from benchmarks.update_scale import PartClock, documents, mentions_of, relation_mentions_of
from hirag_dist.core.text.ids import entity_id, relation_id
from hirag_dist.core.text.normalize import name_key
from hirag_dist.storage.snapshot.reader import Snapshot, open_snapshot
from hirag_dist.storage.store import Store


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    store = Store(str(tmp_path_factory.mktemp("generated")))
    generate(store, 1000)
    return open_snapshot(store)


def test_mentions_merge_to_the_entities_of_layer_0(snapshot: Snapshot) -> None:
    entities = snapshot.table("entities")
    bottom = entities.filter(pc.equal(entities["layer"], 0))
    found = mentions_of(entities)
    assert {entity_id(0, key) for key in found["name_key"].to_pylist()} == set(bottom["entity_id"].to_pylist())
    assert found.num_rows == pc.sum(bottom["n_mentions"]).as_py()
    assert found["name_key"].to_pylist() == [name_key(name) for name in found["name"].to_pylist()]


def test_relation_mentions_merge_to_the_extracted_relations(snapshot: Snapshot) -> None:
    relations = snapshot.table("relations")
    extracted = relations.filter(pc.equal(relations["kind"], "extracted"))
    rows = relation_mentions_of(relations, snapshot.table("entities")).to_pylist()
    assert all(row["source_key"] < row["target_key"] for row in rows)
    ids = [
        relation_id("extracted", *sorted((entity_id(0, row["source_key"]), entity_id(0, row["target_key"]))))
        for row in rows
    ]
    assert sorted(ids) == sorted(extracted["relation_id"].to_pylist())


def test_new_documents_name_known_and_new_entities(snapshot: Snapshot) -> None:
    entities = snapshot.table("entities")
    names = set(entities["name"].to_pylist())
    rows = [json.loads(line) for line in documents(snapshot, 3)]
    assert len({row["id"] for row in rows}) == 3
    assert [json.loads(line) for line in documents(snapshot, 3)] == rows
    for row in rows:
        assert any(name in row["text"] for name in names)
        assert "Xba" + 6 * "na" in row["text"], "the beginning of the new names"


def test_a_part_in_another_counts_for_the_outer_one() -> None:
    module = SimpleNamespace(inner=lambda: 1)
    module.outer = lambda: module.inner() + module.inner()
    with mock.patch.object(update_scale, "PARTS", {"inner": (module, "inner"), "outer": (module, "outer")}):
        clock = PartClock()
        with clock.watching():
            assert module.outer() == 2
    assert list(clock.parts) == ["outer"]
    assert set(clock.parts["outer"]) == {"wall_s", "cpu_s", "peak_mb"}


def test_the_parts_are_functions_of_an_update() -> None:
    assert all(callable(getattr(module, name)) for module, name in update_scale.PARTS.values())
