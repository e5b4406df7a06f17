"""Snapshots of a lineage in one collection: each finds its own rows, whatever the others add or remove."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from pymilvus import MilvusClient

from hirag_dist.config.model import VectorsConfig
from hirag_dist.retrieval.vector_index.memory import MemoryVectors
from hirag_dist.retrieval.vector_index.milvus import (
    MilvusCollections,
    MilvusVectors,
    open_milvus,
    open_milvus_lite,
)
from hirag_dist.retrieval.vector_index.milvus.collection import aliases, drop, list_keys, resolved
from hirag_dist.retrieval.view.filtered_index import AccessControlledIndex
from hirag_dist.retrieval.view.index import MappedIndex
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.storage.store import Store
from hirag_dist.types import AccessFilter
from tests.labelled_builds import build
from tests.leaky_builds import script
from tests.lineages import as_update, publish, unit
from tests.mortal_store import Killed
from tests.retrieval.vector_index.test_milvus import ROOT, Clock, filling, name_of
from tests.toy_builds import Bench

Vectors = dict[str, NDArray[np.float32]]


class Place(NamedTuple):
    """A Milvus, and the index whose collections it has."""

    store: Store
    open: Callable[[Snapshot], MilvusVectors]
    client: Any
    salt: str

    def publish(self, vectors: Mapping[str, NDArray[np.float32]], base: Snapshot | None = None) -> Snapshot:
        return publish(self.store, vectors, base.manifest.snapshot_id if base else None, salt=self.salt)

    def collection(self, snapshot: Snapshot) -> str:
        return resolved(self.client, name_of(snapshot))

    def size(self, snapshot: Snapshot) -> int:
        return len(list_keys(self.client, self.collection(snapshot)))

    def check(self, *snapshots: Snapshot) -> None:
        """Open each, search it and close it."""
        for snapshot in snapshots:
            with closing(self.open(snapshot)) as index:
                assert_exact(index, snapshot)


@pytest.fixture(params=["milvus-lite", pytest.param("milvus", marks=pytest.mark.integration)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "milvus-lite":
        made = in_lite(tmp_path)
    else:
        uri, store = request.getfixturevalue("milvus_uri"), Store(str(tmp_path))
        opened = partial(open_milvus, config=VectorsConfig(uri=uri))
        made = Place(store, opened, MilvusClient(uri), uuid.uuid4().hex)
    yield made
    for name in made.client.list_collections():
        if any(name.startswith(f"hirag_{snapshot_id}_") for snapshot_id in made.store.names("snapshots")):
            drop(made.client, name)
    made.client.close()


def in_lite(folder: Path) -> Place:
    (folder / "milvus").mkdir()
    client = MilvusClient(str(folder / "milvus" / "milvus.db"))
    return Place(Store(str(folder)), partial(open_milvus_lite, config=VectorsConfig()), client, "")


@pytest.fixture
def vectors() -> Vectors:
    return {f"e{at:02d}": unit(at) for at in range(60)} | {f"s{at:02d}": unit(100 + at) for at in range(15)}


def updated(vectors: Vectors) -> Vectors:
    """Three entities less, four with another vector and two more: rows of both layers have other numbers."""
    changed = {own: vector for own, vector in vectors.items() if own not in ("e00", "e31", "s02")}
    changed |= {own: unit(1000 + at) for at, own in enumerate(("e05", "e59", "s00", "s14"))}
    return changed | {"e005": unit(2000), "s99": unit(2001)}


def assert_exact(index: MilvusVectors, snapshot: Snapshot) -> None:
    """Each search finds the rows and scores of brute force."""
    vectors = np.asarray(snapshot.entity_vectors, np.float64)
    layers = snapshot.serving.array("entity_layers")
    for max_layer in (None, 0):
        n_rows = len(layers) if max_layer is None else int((layers <= max_layer).sum())
        for seed in (5, 1003, 2000):
            query = unit(seed)
            scores = vectors[:n_rows] @ query
            for limit in (1, 100):
                rows, similarities = asyncio.run(index.search(query, limit, max_layer))
                assert rows.tolist() == np.argsort(-scores, kind="stable")[:limit].tolist()
                assert similarities == pytest.approx(np.sort(scores)[::-1][:limit], abs=1e-6)


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if "vectors" in record.message]


def test_an_update_inserts_what_changed_and_both_snapshots_are_searched(
    place: Place, vectors: Vectors, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "hirag_dist.retrieval.vector_index.milvus")
    base = place.publish(vectors)
    old = place.open(base)
    assert_exact(old, base)
    update = place.publish(updated(vectors), base)
    new = place.open(update)
    collection = place.collection(base)
    assert messages(caplog) == [
        f"filling Milvus collection {name_of(base)} with 75 vectors",
        f"inserting 6 of 74 vectors into Milvus collection {collection}",
    ]
    assert sorted(aliases(place.client, collection)) == sorted([name_of(base), name_of(update)])
    assert place.size(base) == 75 + 6
    for index, snapshot in ((old, base), (new, update)):
        assert_exact(index, snapshot)
        index.close()
    place.check(base, update)
    assert len(messages(caplog)) == 2, "nothing is inserted when they open again"


def test_a_removed_base_is_passed_over(place: Place, vectors: Vectors) -> None:
    base = place.publish(vectors)
    update = place.publish(updated(vectors), base)
    place.store.delete(f"snapshots/{base.manifest.snapshot_id}")
    place.check(update)
    assert place.collection(update).startswith(name_of(update))


def test_too_large_a_change_is_a_collection_of_its_own(place: Place, vectors: Vectors) -> None:
    base = place.publish(vectors)
    old = place.open(base)
    halved = place.publish({own: vector for own, vector in vectors.items() if int(own[1:]) % 2}, base)
    doubled = place.publish(vectors | {f"e1{at:03d}": unit(3000 + at) for at in range(80)}, base)
    for snapshot in (halved, doubled):
        place.check(snapshot)
        assert place.collection(snapshot).startswith(name_of(snapshot))
    assert aliases(place.client, place.collection(base)) == [name_of(base)]
    assert_exact(old, base)  # in Lite one process serves all of them
    old.close()


def test_rows_of_others_that_fill_the_hits_are_searched_past(place: Place, vectors: Vectors) -> None:
    """Thirty versions of five entities, all of them nearer to the question than what the last one has."""
    chain = [place.publish(vectors)]
    place.open(chain[0]).close()
    for version in range(6):
        changed = {f"e{at:02d}": unit(31) + np.float32(0.001 * (5 * version + at)) for at in range(5)}
        chain.append(place.publish(vectors | changed, chain[-1]))
        place.open(chain[-1]).close()
    last = place.publish({own: vector for own, vector in vectors.items() if own not in changed}, chain[-1])
    place.check(last, chain[0], chain[3])
    assert len({place.collection(snapshot) for snapshot in (*chain, last)}) == 1


def dropped(place: Place, removed: Snapshot, *kept: Snapshot) -> None:
    """As `prune` removes a snapshot."""
    collections = MilvusCollections(place.client, "here")
    names = collections.of([removed.manifest.snapshot_id])
    collections.drop(names, lambda: kept)


def test_rows_that_no_kept_snapshot_needs_are_deleted(place: Place, vectors: Vectors) -> None:
    base = place.publish(vectors)
    place.open(base).close()
    update = place.publish(updated(vectors), base)
    index = place.open(update)
    collection = place.collection(base)
    dropped(place, base, update)
    assert place.client.has_collection(collection), "it is named after the base, and the update needs it"
    assert aliases(place.client, collection) == [name_of(update)]
    assert MilvusCollections(place.client, "here").of([base.manifest.snapshot_id]) == []
    assert place.size(update) == 74
    assert_exact(index, update)
    restored = place.publish(vectors | {"e98": unit(8)}, update)
    place.check(restored)
    assert place.collection(restored) == collection
    assert_exact(index, update)
    index.close()
    dropped(place, update, restored)
    assert place.size(restored) == 76
    dropped(place, restored)
    assert not place.client.has_collection(collection)


def test_rows_of_an_unknown_snapshot_stay(place: Place, vectors: Vectors) -> None:
    """A copy of the index has an update of its own at the same server."""
    base = place.publish(vectors)
    place.open(base).close()
    update = place.publish(updated(vectors), base)
    other = place.publish(vectors | {"e98": unit(8)}, base)
    index = place.open(other)
    place.open(update).close()
    dropped(place, base, update)
    assert_exact(index, other)
    assert place.size(update) == 75 + 6 + 1
    assert MilvusCollections(place.client, "here").of([base.manifest.snapshot_id]) == [f"{name_of(base)}_removed"]
    dropped(place, other, update)
    assert place.size(update) == 74
    assert aliases(place.client, place.collection(update)) == [name_of(update)]
    index.close()


def test_a_removal_that_was_interrupted_is_repeated(place: Place, vectors: Vectors) -> None:
    base = place.publish(vectors)
    place.open(base).close()
    update = place.publish(updated(vectors), base)
    index = place.open(update)
    collections = MilvusCollections(place.client, "here")
    names = collections.of([base.manifest.snapshot_id])
    assert names == [name_of(base)]

    def killed() -> list[Snapshot]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        collections.drop(names, killed)
    assert not place.collection(base), "it is not complete any more"
    assert collections.snapshots() >= {base.manifest.snapshot_id}
    dropped(place, base, update)
    assert place.size(update) == 74
    assert_exact(index, update)
    index.close()


class MortalClient:
    """A client of a process that is killed before a call that changes something, or after it."""

    def __init__(self, client: Any, calls: float) -> None:
        self._client = client
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        if name not in ("insert", "flush", "create_alias", "drop_alias", "create_collection", "create_index"):
            return found

        def called(*values: Any, **options: Any) -> Any:
            self._count()
            result = found(*values, **options)
            self._count()
            return result

        return called

    def _count(self) -> None:
        self._calls -= 0.5
        if self._calls < 0:
            raise Killed


@pytest.mark.integration
def test_a_kill_at_any_call_is_made_good_by_the_next(tmp_path: Path, vectors: Vectors) -> None:
    """With the rules of a server, in a Lite file."""
    place, clock = in_lite(tmp_path), Clock()
    base = place.publish(vectors)
    old = place.open(base)
    for kills in count():
        update = place.publish(updated(vectors) | {"e97": unit(4000 + kills)}, base)
        try:
            filling(update, clock, MortalClient(place.client, kills / 2)).ensure()
            break
        except Killed:
            assert_exact(old, base)
            found = filling(update, clock, place.client).ensure()
            assert place.collection(update) == found.name
            place.check(update)
    assert kills >= 10
    assert_exact(old, base)
    old.close()


OPENER = """
import sys
from hirag_dist.retrieval.vector_index.milvus import open_milvus
from hirag_dist.config.model import VectorsConfig
from hirag_dist.storage.snapshot.reader import open_snapshot
from hirag_dist.storage.store import Store
open_milvus(open_snapshot(Store(sys.argv[1]), sys.argv[2]), VectorsConfig(uri=sys.argv[3])).close()
"""


@pytest.mark.parametrize("place", ["milvus"], indirect=True)
def test_processes_open_an_update_at_once(place: Place, vectors: Vectors, milvus_uri: str) -> None:
    base = place.publish(vectors)
    old = place.open(base)
    update = place.publish(updated(vectors), base)
    command = [sys.executable, "-c", OPENER, place.store.root, update.manifest.snapshot_id, milvus_uri]
    processes = [
        subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE) for _ in range(3)
    ]
    while any(process.poll() is None for process in processes):
        assert_exact(old, base)
    ended = [(process.communicate(timeout=200)[1], process.returncode) for process in processes]
    assert [code for _, code in ended] == [0, 0, 0], ended
    collection = place.collection(base)
    assert sorted(aliases(place.client, collection)) == sorted([name_of(base), name_of(update)])
    found = place.client.query(collection, filter="", output_fields=["count(*)"], consistency_level="Strong")
    assert found[0]["count(*)"] == 75 + 6, "each row once"
    place.check(update)
    assert_exact(old, base)
    old.close()


def labelled_documents() -> list[tuple[str, list[str]]]:
    """Documents of two tenants and of none, some of them secret; most words are of one document, some of several."""
    found = []
    for number in range(24):
        tenant = (["tenant:north"], ["tenant:south"], [])[number % 3]
        secret = ["secret"] if number % 4 == 0 else []
        words = [f"word{'abcdefghijklmnopqrstuvwx'[number]}{letter}" for letter in "abcd"]
        found.append((" ".join([*words, f"shared{'abcdef'[number // 4]}"]), [*tenant, *secret]))
    return found


def filters(snapshot: Snapshot) -> list[AccessFilter]:
    """The filters of several callers."""
    index = AccessControlledIndex(MappedIndex.open(snapshot), snapshot)
    reaches = [(), ("tenant:north",), ("tenant:south", "secret"), ("secret", "aside"), ("tenant:north", "tenant:south")]
    found = [index.view_for(frozenset(reach)).access for reach in reaches]
    assert None not in found
    return found


@pytest.mark.parametrize("uri", ["", pytest.param("server", marks=pytest.mark.integration)])
def test_numbers_of_labels_that_shift_leave_rows_as_they_are(
    request: pytest.FixtureRequest, tmp_path: Path, uri: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A new label set comes first in the order of all, and so do patterns with it."""
    server = request.getfixturevalue("milvus_uri") if uri else None
    config = VectorsConfig(uri=server)
    opened = open_milvus if server else open_milvus_lite
    documents = [(f"{text} {uuid.uuid4().hex}", labels) for text, labels in labelled_documents()]
    bench = Bench(tmp_path)
    base = build(bench, documents, script)
    old = opened(base, config)
    changed = [*documents[:5], *documents[6:], ("new words sharedc", ["aside"])]
    update = as_update(build(bench, changed, script), base.manifest.snapshot_id)
    caplog.set_level("INFO", "hirag_dist.retrieval.vector_index.milvus")
    new = opened(update, config)
    (message,) = messages(caplog)
    n_inserted, n_rows = map(int, message.removeprefix("inserting ").split(" vectors")[0].split(" of "))
    assert 0 < n_inserted < n_rows / 2
    for snapshot, index in ((base, old), (update, new)):
        exact = MemoryVectors(snapshot)
        for access in (None, *filters(snapshot)):
            for row in (0, len(snapshot.entity_vectors) - 1):
                for limit, max_layer in ((25, 0), (200, None)):
                    asked = snapshot.entity_vectors[row], limit, max_layer, access
                    rows, scores = asyncio.run(index.search(*asked))
                    expected, similarities = asyncio.run(exact.search(*asked))
                    assert rows.tolist() == expected.tolist()
                    assert scores.tolist() == similarities.tolist()
    old.close()
    new.close()
