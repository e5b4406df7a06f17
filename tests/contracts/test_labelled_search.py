"""Contract of VectorIndex for callers with labels, against brute force over the visible rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext

import numpy as np
import pytest
from numpy.typing import NDArray
from pymilvus import MilvusClient

from hirag_dist.config.model import VectorsConfig
from hirag_dist.core.access import PARTIAL, VISIBLE
from hirag_dist.protocols import VectorIndex
from hirag_dist.retrieval.vector_index.memory import MemoryVectors
from hirag_dist.retrieval.vector_index.milvus import MilvusVectors, collection_name, open_milvus, open_milvus_lite
from hirag_dist.retrieval.vector_index.milvus.collection import KEY, SnapshotRows, resolved
from hirag_dist.retrieval.vector_index.milvus.fill import FilledCollection
from hirag_dist.retrieval.vector_index.milvus.labels import LabelledRows, RowFilter
from hirag_dist.retrieval.view.filtered_index import AccessControlledIndex
from hirag_dist.retrieval.view.index import MappedIndex
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.types import AccessFilter
from tests.labelled_builds import build
from tests.leaky_builds import script
from tests.toy_builds import Bench


def documents() -> list[tuple[str, list[str]]]:
    """Documents of two tenants and without a tenant, some of them secret; tenants share half of their words."""
    random = np.random.default_rng(4)
    found = []
    for number in range(40):
        tenant = ("tenant:north", "tenant:south", "")[number % 3]
        words = [f"word{'abc'[number % 3]}{letter}" for letter in random.choice(list("abcdefgh"), 5, replace=False)]
        words += [f"wordz{letter}" for letter in random.choice(list("abcdefgh"), 5, replace=False)]
        found.append((" ".join(words), [*([tenant] if tenant else []), *(["secret"] if number % 4 == 0 else [])]))
    return found


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    return build(Bench(tmp_path_factory.mktemp("index")), documents(), script)


@pytest.fixture(
    scope="module",
    params=[
        "memory",
        "milvus-lite",
        pytest.param("milvus", marks=pytest.mark.integration),
    ],
)
def index(request: pytest.FixtureRequest, snapshot: Snapshot) -> Iterator[VectorIndex]:
    opened: VectorIndex
    if request.param == "memory":
        opened = MemoryVectors(snapshot)
    elif request.param == "milvus-lite":
        opened = open_milvus_lite(snapshot, VectorsConfig())
    else:
        opened = open_milvus(snapshot, VectorsConfig(uri=request.getfixturevalue("milvus_uri")))
    yield opened
    opened.close()


REACHES = [
    frozenset(),
    frozenset({"tenant:north"}),
    frozenset({"tenant:south", "secret"}),
    frozenset({"tenant:north", "tenant:south"}),
    frozenset({"secret"}),
]


def admission_of(snapshot: Snapshot, reach: frozenset[str]) -> AccessFilter:
    seen = AccessControlledIndex(MappedIndex.open(snapshot), snapshot).view_for(reach)
    assert seen.access is not None
    return seen.access


def brute_force(
    snapshot: Snapshot, access: AccessFilter, vector: NDArray[np.float32], limit: int, max_layer: int | None
) -> tuple[list[int], list[float]]:
    layers = snapshot.table("entities")["layer"].to_pylist()
    parts = list(zip(access.part_entities.tolist(), access.part_sets.tolist(), strict=True))
    scores: dict[int, float] = {}
    for row, layer in enumerate(layers):
        state = access.entity_states[access.entity_patterns[row]]
        if max_layer is not None and layer > max_layer:
            continue
        if state == VISIBLE:
            scores[row] = float(np.float32(snapshot.entity_vectors[row].astype(float) @ vector.astype(float)))
        elif state == PARTIAL:
            own = [at for at, (owner, part) in enumerate(parts) if owner == row and access.sets[part]]
            scores[row] = max(float(np.float32(access.part_vectors[at].astype(float) @ vector)) for at in own)
    best = sorted(scores, key=lambda row: (-scores[row], row))[:limit]
    return best, [scores[row] for row in best]


@pytest.mark.parametrize("max_layer", [None, 0])
@pytest.mark.parametrize("limit", [1, 200])
@pytest.mark.parametrize("reach", REACHES)
async def test_finds_what_may_be_seen_and_nothing_else(
    index: VectorIndex, snapshot: Snapshot, reach: frozenset[str], limit: int, max_layer: int | None
) -> None:
    access = admission_of(snapshot, reach)
    assert (access.entity_states == PARTIAL).any()
    for seed in range(2):
        vector = np.random.default_rng(seed).normal(size=32).astype(np.float32)
        vector /= np.linalg.norm(vector)
        rows, scores = await index.search(vector, limit, max_layer, access)
        expected, similarities = brute_force(snapshot, access, vector, limit, max_layer)
        assert scores.tolist() == pytest.approx(similarities, abs=1e-6)
        assert rows.tolist() == expected
        assert (rows.dtype, scores.dtype) == (np.int64, np.float32)


@contextmanager
def searched_with(snapshot: Snapshot, labelled: LabelledRows, max_exact_rows: int = 65_536) -> Iterator[MilvusVectors]:
    """A complete collection in Lite, searched with the filters of another object."""
    config = VectorsConfig()
    open_milvus_lite(snapshot, config).close()
    assert snapshot.store.local
    client = MilvusClient(str(snapshot.store.local / "milvus" / "milvus.db"))
    rows = SnapshotRows(snapshot, LabelledRows(snapshot))
    name = resolved(client, collection_name(snapshot.manifest.snapshot_id, LabelledRows(snapshot)))
    collection = FilledCollection(name, rows.n)
    options = {"lite": True, "labelled": labelled, "max_exact_rows": max_exact_rows}
    with closing(MilvusVectors(client, snapshot, config, collection, rows, **options)) as opened:
        yield opened


def some_rows(access: AccessFilter, share: float, seed: int) -> AccessFilter:
    """Return a filter of a part of the rows that a caller may see, by row, as filters by metadata have it."""
    states = access.entity_states[access.entity_patterns]
    hidden = np.random.default_rng(seed).random(len(states)) >= share
    rows = np.arange(len(states), dtype=np.int32)
    return access._replace(entity_patterns=rows, entity_states=np.where(hidden, 0, states).astype(np.uint8))


@pytest.mark.parametrize("max_layer", [None, 0])
@pytest.mark.parametrize("share", [0.9, 0.5, 0.05])
async def test_finds_what_passes_a_filter_by_metadata(
    index: VectorIndex, snapshot: Snapshot, share: float, max_layer: int | None
) -> None:
    """By Milvus, or by an exact search where few rows pass."""
    in_lite = isinstance(index, MilvusVectors) and index.name == "milvus-lite"
    with searched_with(snapshot, LabelledRows(snapshot), 0) if in_lite else nullcontext(index) as wide:
        for seed in range(3):
            access = some_rows(admission_of(snapshot, REACHES[3]), share, seed)
            vector = snapshot.entity_vectors[seed]
            expected = brute_force(snapshot, access, vector, 9, max_layer)[0]
            for each in {index, wide}:
                assert (await each.search(vector, 9, max_layer, access, True))[0].tolist() == expected


def test_the_filter_passes_the_rows_that_may_be_seen_and_says_how_many(snapshot: Snapshot) -> None:
    """Of an entity that is seen whole its own row, of one that is seen in part those of its parts that are."""
    labelled = LabelledRows(snapshot)
    with searched_with(snapshot, labelled) as index:
        for reach in REACHES:
            access = admission_of(snapshot, reach)
            states = access.entity_states[access.entity_patterns]
            parts = (states[access.part_entities] == PARTIAL) & access.sets[access.part_sets]
            expected = [*np.flatnonzero(states == VISIBLE), *len(states) + np.flatnonzero(parts)]
            visible = labelled.filter(access)
            assert visible
            hits = index._client.query(index._collection, visible.text, [KEY])
            assert sorted(index._rows.rows(np.array([hit[KEY] for hit in hits]))) == expected
            assert visible.n_rows == len(expected)


class Heedless(LabelledRows):
    """A filter that lets everything through, as of a Milvus that does not heed it."""

    def filter(self, access: AccessFilter) -> RowFilter:
        return RowFilter("part >= -1", self.n_entities)


@pytest.mark.parametrize("kind", ["too long a filter", "a filter that is not heeded"])
async def test_what_milvus_finds_is_checked_and_what_it_cannot_filter_is_searched_exactly(
    snapshot: Snapshot, kind: str
) -> None:
    labelled = LabelledRows(snapshot, max_listed=0) if "long" in kind else Heedless(snapshot)
    access, vector = admission_of(snapshot, REACHES[1 if "long" in kind else 0]), snapshot.entity_vectors[5]
    assert LabelledRows(snapshot).filter(access)
    assert (labelled.filter(access) is None) == ("long" in kind)
    with searched_with(snapshot, labelled) as index:
        found, _ = await index.search(vector, 200, None, access)
    assert found.tolist() == brute_force(snapshot, access, vector, 200, None)[0]
