"""Merging as a stage: whole or in partitions, with hubs, the same entities and relations."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from hirag_dist.core.entities.merging import merge_relations
from hirag_dist.core.text.ids import entity_id, relation_id
from hirag_dist.execution.dataset import Dataset
from hirag_dist.execution.executors import InlineExecutor
from hirag_dist.execution.runner import StageRunner
from hirag_dist.execution.stage import ByKey, Split
from hirag_dist.indexing.stages.merge import MergeEntities, MergeRelations
from hirag_dist.schemas import MENTIONS, RELATION_MENTIONS
from hirag_dist.storage.store import Store
from tests.bare_services import SERVICES

SEPARATE = 1000  # of the descriptions of one entity or relation at most are merged
N_HUB = 1100
N_REST = 300


@dataclass(frozen=True)
class InParts(MergeEntities):
    split: ClassVar[Split] = ByKey("name_key", 500)


@dataclass(frozen=True)
class RelationsInParts(MergeRelations):
    split: ClassVar[Split] = ByKey("source_key", 500)


def mentions() -> list[dict[str, Any]]:
    """A hub with a description in each of its chunks, one with few, and names that come up three times; also pairs."""
    names = ["hub"] * N_HUB + ["terse"] * 300 + [f"name {at // 3}" for at in range(N_REST)]
    rows = [
        {"name_key": name, "chunk_id": f"c{at:05d}", "position": at % 7, "name": name.title()}
        | {"type": ("person", "place")[at % 3 == 0], "described": at % 50 != 49}
        | {"source_key": name, "target_key": "the other", "strength": float(at % 10)}
        | {"description": f"{name} as of {at % 5 if name == 'terse' else at}."}
        for at, name in enumerate(names)
    ]
    random.Random(0).shuffle(rows)
    return rows


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[StageRunner]:
    executor = InlineExecutor(lambda: SERVICES)
    yield StageRunner(Store(str(tmp_path)), executor, (), 0.0)
    executor.close()


def put(runner: StageRunner, schema: pa.Schema) -> Dataset:
    """Return the mentions as files of a hundred."""
    rows, whole = mentions(), Dataset(schema, ())
    for first in range(0, len(rows), 100):
        given = [{name: row[name] for name in schema.names} for row in rows[first : first + 100]]
        whole += runner.datasets.put("mentions", pa.Table.from_pylist(given, schema))
    return whole


def test_entities_of_partitions_are_those_of_the_whole(runner: StageRunner) -> None:
    given = put(runner, MENTIONS)
    parts = runner.run(InParts(), "in parts", mentions=given)
    whole = runner.run(MergeEntities(), "whole", mentions=given)
    assert (len(parts.entities.parts), len(whole.entities.parts)) == (4, 1)
    entities = runner.datasets.read(whole.entities)
    assert runner.datasets.read(parts.entities).sort_by("entity_id").equals(entities)
    for found in (parts, whole):
        assert runner.datasets.read(found.cut).to_pylist() == [{"id": entity_id(0, "hub")}]
    found = {row["name"]: (row["n_mentions"], row["description"].count("\n") + 1) for row in entities.to_pylist()}
    assert (found["Hub"], found["Terse"]) == ((N_HUB, SEPARATE), (300, 5))


def test_relations_of_partitions_are_those_of_the_whole(runner: StageRunner) -> None:
    given = put(runner, RELATION_MENTIONS)
    parts = runner.run(RelationsInParts(100), "in parts", relation_mentions=given)
    whole = runner.run(MergeRelations(100), "whole", relation_mentions=given)
    assert len(parts.relations.parts) > 1
    relations = runner.datasets.read(whole.relations)
    assert runner.datasets.read(parts.relations).sort_by("relation_id").equals(relations)
    unbound = merge_relations(runner.datasets.read(given), 400)
    assert relations.equals(unbound)  # the strongest fill what there is room for long before the bound
    ends = sorted((entity_id(0, "hub"), entity_id(0, "the other")))
    for found in (parts, whole):
        assert runner.datasets.read(found.cut).to_pylist() == [{"id": relation_id("extracted", *ends)}]
