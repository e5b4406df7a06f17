"""A layer of three shards: clustered by many tasks, here and on Ray, it has the clusters that one task gives it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from ray import cloudpickle
from ray.cluster_utils import Cluster

from hirag_dist.compute.kernels import CpuKernels
from hirag_dist.core.clustering.partition_tree import ClusterSettings
from hirag_dist.errors import StageFailed
from hirag_dist.execution.dataset import Dataset, DatasetPart
from hirag_dist.execution.events import StageFinished
from hirag_dist.execution.executors import InlineExecutor
from hirag_dist.execution.ray import RayExecutor
from hirag_dist.execution.runner import StageRunner
from hirag_dist.execution.stage import Services
from hirag_dist.indexing.layer_clusters import LayerClusteringOptions, LayerClusters, cluster_layer
from hirag_dist.indexing.stages.embed import vector_matrix, vector_table
from hirag_dist.indexing.stages.memberships import ClusterLayer, ClusterStats
from hirag_dist.llm.limits.coordinator import QuotaCoordinator
from hirag_dist.protocols import Executor
from hirag_dist.schemas import ENTITIES
from hirag_dist.storage.digest import table_digest
from hirag_dist.storage.store import Store
from hirag_dist.types import FloatMatrix
from tests.ray_nodes import started
from tests.table_rows import filled_table

N_ROWS, DIM = 650, 24
SETTINGS = ClusterSettings(target_size=10, max_size=25, threshold=0.1, seed=3, cell_rows=150, shard_rows=256)
HOW = LayerClusteringOptions(SETTINGS, DIM, 8, 40, "cpu")
Clustered = tuple[pa.Table, pa.Table, ClusterStats]
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import a test module


def services(kernels: Any) -> Services:
    nothing: Any = None
    return Services(nothing, nothing, lambda name: kernels, nothing, nothing)


class Mortal(CpuKernels):
    """Kernels whose process dies at the third call of one of them, counted over all processes; or at every call."""

    def __init__(self, kernel: str, trace: str, always: bool = False) -> None:
        self._kernel, self._trace, self._always = kernel, trace, always

    def moments(self, vectors: Any) -> Any:
        self._called("moments")
        return super().moments(vectors)

    def nearest_sums(self, rows: Any, means: Any) -> Any:
        self._called("nearest_sums")
        return super().nearest_sums(rows, means)

    def _called(self, kernel: str) -> None:
        if kernel == self._kernel:
            with open(self._trace, "ab") as trace:
                trace.write(b".")
                trace.flush()
                if self._always or trace.tell() == 3:
                    os.kill(os.getpid(), signal.SIGKILL)


def inline(kernels: Any = None) -> Executor:
    return InlineExecutor(lambda: services(kernels or CpuKernels()))


def on_ray(workers: int, kernels: CpuKernels) -> Executor:
    return RayExecutor(
        lambda client, holder: services(kernels),
        lambda: QuotaCoordinator({}),
        workers=workers,
        in_flight=lambda n_workers: 1,
    )


def layer_tables() -> tuple[pa.Table, pa.Table]:
    """VECTORS and ENTITIES of overlapping groups, the two in different orders."""
    rng = np.random.default_rng(5)
    centres = rng.normal(0, 1, (45, DIM))
    vectors = (centres[rng.integers(45, size=N_ROWS)] + rng.normal(0, 0.7, (N_ROWS, DIM))).astype(np.float32)
    vectors[7] = np.nan  # an embedder's fault must not differ either
    ids = [f"{number:05d}" for number in rng.permutation(N_ROWS)]
    said = {own: f"What is said  of {own}: " + "more " * (int(own) % 20) for own in sorted(ids)}
    entities = ({"entity_id": own, "name": f"name {own}", "description": text} for own, text in said.items())
    return vector_table(pa.chunked_array([ids]), vectors), filled_table(ENTITIES, entities)


def in_parts(store: Store, name: str, table: pa.Table, rows: int) -> Dataset:
    """A dataset of several files, whose bounds are not those of shards."""
    parts = []
    for first in range(0, table.num_rows, rows):
        part = table.slice(first, rows).combine_chunks()
        parts.append(DatasetPart(f"{name}/{first}.parquet", part.num_rows, table_digest(part)))
        store.write_table(parts[-1].path, part)
    return Dataset(table.schema, tuple(parts))


class Bench:
    """A store with a layer in it, and what a run over it tells."""

    def __init__(self, folder: Path) -> None:
        self.store = Store(str(folder))
        vectors, entities = layer_tables()
        self.vectors = in_parts(self.store, "vectors", vectors, 150)
        self.entities = in_parts(self.store, "entities", entities, 350)
        self.events: list[object] = []

    @property
    def finished(self) -> list[StageFinished]:
        return [event for event in self.events if isinstance(event, StageFinished)]

    def run(self, executor: Executor, work: Callable[[StageRunner], LayerClusters]) -> Clustered:
        """Return CLUSTERS and CLUSTER_MEMBERS, sorted, and the figures. Closes the executor."""
        self.events.clear()
        with closing(executor):
            runner = StageRunner(self.store, executor, (self.events.append,), 0.0)
            found = work(runner)
            order = [("cluster_id", "ascending"), ("entity_id", "ascending")]
            clusters = runner.datasets.read(found.clusters).sort_by(order)
            return clusters, runner.datasets.read(found.members).sort_by("cluster_id"), found.stats

    def clustered(self, executor: Executor, how: LayerClusteringOptions = HOW) -> Clustered:
        return self.run(executor, lambda runner: cluster_layer(runner, how, 0, self.vectors, self.entities))


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Clustered:
    """Clusters of the layer by one task."""
    bench = Bench(tmp_path_factory.mktemp("one"))
    stage = ClusterLayer(0, HOW.dim, HOW.reduce_dims, HOW.settings, HOW.description_chars, HOW.kernels)

    def cluster(runner: StageRunner) -> LayerClusters:
        found = runner.run(stage, "cluster", vectors=bench.vectors, entities=bench.entities)
        (stats,) = runner.datasets.read(found.stats).to_pylist()
        return LayerClusters(found.clusters, found.members, ClusterStats(**stats))

    return bench.run(inline(), cluster)


@pytest.fixture
def four_cpus(ray_cluster: Cluster) -> Iterator[None]:
    added = started(lambda: ray_cluster.add_node(num_cpus=2))
    ray_cluster.wait_for_nodes()
    yield
    ray_cluster.remove_node(added)


def test_four_workers_give_what_one_task_gives(four_cpus: None, tmp_path: Path, expected: Clustered) -> None:
    assert Bench(tmp_path).clustered(on_ray(4, CpuKernels())) == expected


def test_a_worker_that_dies_in_a_round_changes_nothing(
    ray_cluster: Cluster, tmp_path: Path, expected: Clustered
) -> None:
    trace = tmp_path / "trace"
    found = Bench(tmp_path / "index").clustered(on_ray(2, Mortal("moments", str(trace))))
    assert trace.stat().st_size > 3
    assert found == expected


def test_a_step_that_kills_every_worker_fails_the_stage_and_another_run_goes_on(
    ray_cluster: Cluster, tmp_path: Path, expected: Clustered
) -> None:
    bench = Bench(tmp_path / "index")
    with pytest.raises(StageFailed, match="5 workers died over the same"):
        bench.clustered(on_ray(2, Mortal("nearest_sums", str(tmp_path / "trace"), always=True)))
    assert bench.clustered(inline()) == expected
    assert [event.label.rpartition(" ")[2] for event in bench.finished if event.reused] == ["axes", "scores"]


def test_many_tasks_give_what_one_gives_also_when_stopped_between_stages_or_in_a_round(
    tmp_path: Path, expected: Clustered
) -> None:
    bench = Bench(tmp_path)
    found = bench.clustered(inline())
    labels = [event.label for event in bench.finished if not event.label.endswith("by key")]
    assert labels[0] == "cluster layer 0: axes"
    assert len(labels) == 10
    folders = {event.label: event.folder for event in bench.finished}
    bench.clustered(inline())
    assert all(event.reused for event in bench.finished)
    for label in labels:  # as if it had been killed before the last marker, and before the stage's own
        bench.store.delete(f"{folders[label]}/done.json")
        names = bench.store.names(f"{folders[label]}/tasks")
        bench.store.delete(f"{folders[label]}/tasks/{names[-1]}")
        assert bench.clustered(inline()) == found
        assert [e.label for e in bench.finished if not e.reused and not e.label.endswith("by key")] == [label]
    assert found == expected


class Columns(CpuKernels):
    """A reduction by neighbours that is easy to check: the first columns."""

    def umap(self, vectors: FloatMatrix, n_components: int, seed: int) -> FloatMatrix:
        return np.ascontiguousarray(vectors[:, :n_components])


@pytest.mark.parametrize("shard_rows", [SETTINGS.shard_rows, 2 * N_ROWS])
def test_a_reduction_by_neighbours_comes_before_either_way(tmp_path: Path, shard_rows: int) -> None:
    bench, how = Bench(tmp_path), replace(HOW, settings=replace(SETTINGS, shard_rows=shard_rows))
    found = bench.clustered(inline(Columns()), replace(how, reduction="umap"))
    assert "cluster layer 0: neighbours" in [event.label for event in bench.finished]
    vectors, _ = layer_tables()
    reduced = vector_table(vectors["id"], vector_matrix(vectors, DIM)[:, : HOW.reduce_dims])
    bench.vectors = in_parts(bench.store, "scores", reduced, 150)
    assert found == bench.clustered(inline(Columns()), replace(how, dim=HOW.reduce_dims))
