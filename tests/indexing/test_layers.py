"""Layers of the hierarchy as values."""

from __future__ import annotations

import pyarrow as pa

from hirag_dist.execution.dataset import Dataset, DatasetPart
from hirag_dist.indexing.layers import BaseLayer, Hierarchy, LayerRecord, SummaryLayer, layer_table
from hirag_dist.schemas import LAYERS

SCHEMA = pa.schema([pa.field("x", pa.int64())])


def dataset(name: str) -> Dataset:
    return Dataset(SCHEMA, (DatasetPart(name, 1, name),))


def paths(of: Dataset) -> list[str]:
    return [part.path for part in of.parts]


def summary(layer: int) -> SummaryLayer:
    names = ("entities", "relations", "vectors", "clusters", "mentions", "names")
    return SummaryLayer(**{name: dataset(f"{name}{layer}") for name in names})


def test_a_hierarchy_has_the_datasets_of_all_layers_from_the_lowest_up() -> None:
    base = BaseLayer(dataset("entities0"), dataset("relations0"), dataset("vectors0"), dataset("rejects0"))
    hierarchy = Hierarchy(base, (summary(1), summary(2)), dataset("equal names"), (), dataset("rejects"))
    assert paths(hierarchy.entities) == ["entities0", "entities1", "entities2"]
    assert paths(hierarchy.vectors) == ["vectors0", "vectors1", "vectors2"]
    assert paths(hierarchy.relations) == ["relations0", "relations1", "relations2", "equal names"]
    assert paths(hierarchy.clusters) == ["clusters1", "clusters2"]


def test_records_are_rows_of_the_layers_table() -> None:
    records = [LayerRecord(0, 5, n_clusters=2, sparsity=0.5), LayerRecord(1, 2, decision="max_layers")]
    table = layer_table(records)
    assert table.schema == LAYERS
    assert table["decision"].to_pylist() == ["go on", "max_layers"]
    assert table["sparsity"].to_pylist() == [0.5, None]
