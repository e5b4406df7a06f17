"""Contract of VectorIndex, against brute force: memory, Milvus Lite and, where it is installed, a Milvus server."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from hirag_dist.config.model import VectorsConfig
from hirag_dist.protocols import VectorIndex
from hirag_dist.retrieval.vector_index.memory import MemoryVectors
from hirag_dist.retrieval.vector_index.milvus import open_milvus, open_milvus_lite
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.storage.store import Store
from tests.lineages import DIM, publish

LAYERS = [0] * 60 + [1] * 20 + [2] * 7
Opener = Callable[[Snapshot], VectorIndex]


def make_vectors() -> NDArray[np.float32]:
    """Unit rows; ten of them equal, so that rows must decide; one all zero."""
    random = np.random.default_rng(5)
    vectors = random.normal(size=(len(LAYERS), DIM)).astype(np.float32)
    vectors[20:25] = vectors[70:75] = vectors[3]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors[40] = 0
    return vectors


def make_snapshot(folder: Path, n_rows: int = len(LAYERS)) -> Snapshot:
    """Write one with an id, and so a collection, of its own."""
    ids = [f"{'est'[layer]}{at:03d}" for at, layer in enumerate(LAYERS[:n_rows])]
    return publish(Store(str(folder)), dict(zip(ids, make_vectors(), strict=False)), salt=uuid.uuid4().hex)


@pytest.fixture(
    scope="module",
    params=[
        "memory",
        "milvus-lite flat",
        "milvus-lite hnsw",
        pytest.param("milvus flat", marks=[pytest.mark.integration, pytest.mark.smoke]),
        pytest.param("milvus hnsw", marks=pytest.mark.integration),
    ],
)
def opener(request: pytest.FixtureRequest) -> Opener:
    backend, _, index = request.param.partition(" ")
    if backend == "memory":
        return MemoryVectors
    flat_rows = {"flat": 1000, "hnsw": 0}[index]
    if backend == "milvus-lite":
        return lambda snapshot: open_milvus_lite(snapshot, VectorsConfig(), flat_rows)
    config = VectorsConfig(uri=request.getfixturevalue("milvus_uri"))
    return lambda snapshot: open_milvus(snapshot, config, flat_rows)


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory, opener: Opener) -> Snapshot:
    return make_snapshot(tmp_path_factory.mktemp("index"))


@pytest.fixture(scope="module")
def index(snapshot: Snapshot, opener: Opener) -> Iterator[VectorIndex]:
    made = opener(snapshot)
    yield made
    made.close()


def brute_force(
    snapshot: Snapshot, vector: NDArray[np.float32], limit: int, max_layer: int | None
) -> tuple[list[int], list[float]]:
    scores = [float(np.dot(row, vector)) for row in snapshot.entity_vectors]
    rows = [row for row in range(len(scores)) if max_layer is None or LAYERS[row] <= max_layer]
    best = sorted(rows, key=lambda row: (-np.float32(scores[row]), row))[:limit]
    return best, [scores[row] for row in best]


@pytest.mark.parametrize("max_layer", [None, 0, 1])
@pytest.mark.parametrize("limit", [4, 13, 500])
async def test_gives_the_rows_and_scores_of_brute_force(
    index: VectorIndex, snapshot: Snapshot, limit: int, max_layer: int | None
) -> None:
    """Ties go by row: eleven rows are equal to the first vector."""
    others = np.random.default_rng(0).normal(size=(2, DIM)).astype(np.float32)
    for vector in (snapshot.entity_vectors[3], *others / np.linalg.norm(others, axis=1, keepdims=True)):
        rows, scores = await index.search(vector, limit, max_layer)
        expected, similarities = brute_force(snapshot, vector, limit, max_layer)
        assert rows.tolist() == expected
        assert scores == pytest.approx(similarities, abs=1e-6)
        assert (rows.dtype, scores.dtype) == (np.int64, np.float32)


async def test_opens_again_and_finds_the_same(snapshot: Snapshot, opener: Opener, index: VectorIndex) -> None:
    vector, zeros = snapshot.entity_vectors[7], np.zeros(DIM, np.float32)
    before = (await index.search(vector, 9))[0].tolist()
    index.close()
    with closing(opener(snapshot)) as again:
        assert (await again.search(vector, 9))[0].tolist() == before
        assert (await again.search(zeros, 4))[1].tolist() == [0.0] * 4, "zeros are near nothing"


async def test_an_index_without_entities(tmp_path: Path, opener: Opener) -> None:
    index = opener(make_snapshot(tmp_path, n_rows=0))
    for max_layer in (None, 0):
        rows, scores = await index.search(np.ones(DIM, np.float32), 5, max_layer)
        assert (rows.tolist(), scores.tolist()) == ([], [])
    index.close()
