"""Milvus for an index: rebuilt when lost or half filled, filled by one process, a Lite file owned by one."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from milvus_lite.server_manager import server_manager_instance
from pymilvus import MilvusClient, MilvusException

from hirag_dist.config.model import Config, VectorsConfig
from hirag_dist.errors import BackendUnavailable, ConfigError
from hirag_dist.retrieval.vector_index.memory import make_vector_index
from hirag_dist.retrieval.vector_index.milvus import collection_name, open_milvus, open_milvus_lite
from hirag_dist.retrieval.vector_index.milvus.collection import (
    aliases,
    choose_index,
    drop,
    list_keys,
    resolved,
    search_params,
)
from hirag_dist.retrieval.vector_index.milvus.fill import CollectionFill
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.storage.store import Store
from tests.cable import Cable
from tests.lineages import publish, unit

ROOT = Path(__file__).parents[3]
OWNER = """
import sys
from hirag_dist.retrieval.vector_index.milvus import open_milvus_lite
from hirag_dist.config.model import VectorsConfig
from hirag_dist.storage.snapshot.reader import open_snapshot
from hirag_dist.storage.store import Store
held = open_milvus_lite(open_snapshot(Store(sys.argv[1]), sys.argv[2]), VectorsConfig())
print("held", flush=True)
sys.stdin.read()
held.close()
"""


VECTORS = {f"e{at:02d}": unit(at) for at in range(60)} | {f"s{at:02d}": unit(100 + at) for at in range(27)}


@pytest.fixture
def snapshot(tmp_path: Path) -> Snapshot:
    return publish(Store(str(tmp_path)), VECTORS, salt=uuid.uuid4().hex)


def nearest(snapshot: Snapshot) -> list[int]:
    with closing(open_milvus_lite(snapshot, VectorsConfig())) as index:
        return list(asyncio.run(index.search(snapshot.entity_vectors[7], 12))[0].tolist())


def client(snapshot: Snapshot) -> Any:
    assert snapshot.store.local
    (snapshot.store.local / "milvus").mkdir(exist_ok=True)
    return MilvusClient(str(snapshot.store.local / "milvus" / "milvus.db"))


def name_of(snapshot: Snapshot) -> str:
    return collection_name(snapshot.manifest.snapshot_id)


def test_a_lost_collection_is_made_again(snapshot: Snapshot) -> None:
    before = nearest(snapshot)
    held = client(snapshot)
    drop(held, resolved(held, name_of(snapshot)))
    held.close()
    assert nearest(snapshot) == before
    snapshot.store.delete("milvus")
    assert nearest(snapshot) == before


def test_a_half_filled_collection_is_made_again(snapshot: Snapshot) -> None:
    before = nearest(snapshot)
    held = client(snapshot)
    name = resolved(held, name_of(snapshot))
    keys = list_keys(held, name)
    assert len(keys) == len(snapshot.entity_vectors)
    held.delete(name, ids=keys[:30].tolist())
    held.flush(name)
    assert len(list_keys(held, name)) == len(keys) - 30
    assert nearest(snapshot) == before
    assert list_keys(held, name).tolist() == keys.tolist()
    held.close()


@pytest.fixture
def owner(snapshot: Snapshot) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the Lite file."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, snapshot.store.root, snapshot.manifest.snapshot_id],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.communicate(timeout=120)


@pytest.mark.integration
def test_one_process_owns_the_file(snapshot: Snapshot, owner: subprocess.Popen[str]) -> None:
    with pytest.raises(BackendUnavailable, match=r"another process owns the Milvus Lite file.*query --server"):
        open_milvus_lite(snapshot, VectorsConfig())
    named = Config.model_validate({"vectors": {"backend": "milvus-lite"}})
    with pytest.raises(BackendUnavailable, match="another process owns"):
        make_vector_index(named, snapshot)
    assert make_vector_index(Config(), snapshot).name == "memory"  # auto
    owner.communicate(timeout=120)
    assert make_vector_index(Config(), snapshot).name == "memory"
    with closing(make_vector_index(named, snapshot)) as chosen:
        assert chosen.name == "milvus-lite"


def test_a_server_that_is_not_there(snapshot: Snapshot) -> None:
    with pytest.raises(BackendUnavailable, match=r"no Milvus answers at http://127\.0\.0\.1:9"):
        open_milvus(snapshot, VectorsConfig(uri="http://127.0.0.1:9"), timeout_s=1)
    for uri in ("http://ada:secret@127.0.0.1:9", "http://ada:secret@127.0.0.1:port", "ada:secret@127.0.0.1:9"):
        with pytest.raises(BackendUnavailable, match=r"no Milvus answers at (http://)?127\.0\.0\.1") as raised:
            open_milvus(snapshot, VectorsConfig(uri=uri), timeout_s=1)
        assert "secret" not in str(raised.value)
    with pytest.raises(ConfigError, match=r"vectors\.uri"):
        make_vector_index(Config.model_validate({"vectors": {"backend": "milvus"}}), snapshot)


async def test_searches_that_come_together_find_what_each_finds_alone(snapshot: Snapshot) -> None:
    vectors = snapshot.entity_vectors
    with closing(open_milvus_lite(snapshot, VectorsConfig())) as index:
        asked = [(vectors[row], limit, layer) for row in range(8) for limit in (3, 9) for layer in (None, 0)]
        together = await asyncio.gather(*(index.search(*each) for each in asked))
        for each, found in zip(asked, together, strict=True):
            assert np.array_equal(found, await index.search(*each))


async def test_a_lost_connection_is_said_and_made_again(snapshot: Snapshot, tmp_path: Path) -> None:
    uri = server_manager_instance.start_and_get_uri(str(tmp_path / "milvus.db"))
    cable = Cable(f"127.0.0.1:{uri.rpartition(':')[2]}")
    await cable.plug_in()
    config = VectorsConfig(uri=f"http://{cable.address}")
    index = await asyncio.to_thread(open_milvus, snapshot, config, timeout_s=1.0)

    async def found() -> list[int]:
        return list((await index.search(snapshot.entity_vectors[7], 5))[0].tolist())

    before, again = await found(), None
    await cable.unplug()
    with pytest.raises(BackendUnavailable, match=f"Milvus at http://{cable.address} does not search"):
        await found()
    await cable.plug_in()
    async with asyncio.timeout(10):
        while again is None:
            with suppress(BackendUnavailable):  # the channel tries again within a second
                again = await found()
            await asyncio.sleep(0.05)
    assert again == before
    await cable.unplug()
    await cable.plug_in()
    assert await found() == before
    index.close()
    await cable.unplug()


class Clock:
    """Time that passes with each sleep, and events at given times."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.meanwhile: Callable[[], None] = lambda: None

    def pause(self, seconds: float) -> None:
        self.seconds += seconds
        self.meanwhile()


def filling(snapshot: Snapshot, clock: Clock, own: Any = None) -> CollectionFill:
    """As at a server, where others may be filling too; Lite keeps the same rules of names and aliases."""
    own = own or client(snapshot)
    return CollectionFill(own, snapshot, "hnsw", lite=False, now=lambda: clock.seconds, pause=clock.pause)


def only_collection(held: Any, snapshot: Snapshot) -> str:
    """The name of the snapshot's collection, which is the only one and has no other alias."""
    (name,) = held.list_collections()
    assert aliases(held, name) == [name_of(snapshot)]
    return str(name)


def test_who_finds_a_fill_under_way_waits_and_uses_it(snapshot: Snapshot) -> None:
    first, clock = filling(snapshot, Clock()), Clock()
    filled = first.ensure()
    second = filling(snapshot, clock)
    held = second.client
    held.drop_alias(name_of(snapshot))  # not complete yet, as far as names tell
    held.create_alias(filled.name, name_of(snapshot) + "_filling")

    def ends() -> None:
        if clock.seconds > 200:
            held.create_alias(filled.name, name_of(snapshot))
            for alias in aliases(held, filled.name):
                if alias != name_of(snapshot):
                    held.drop_alias(alias)
            clock.meanwhile = lambda: None
        else:  # it lives
            held.create_alias(filled.name, f"beat_{clock.seconds:.0f}")

    clock.meanwhile = ends
    assert second.ensure() == filled
    assert clock.seconds == pytest.approx(201)
    assert only_collection(held, snapshot) == filled.name


def test_a_fill_that_was_killed_is_begun_anew(snapshot: Snapshot, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    filled = filling(snapshot, clock)
    held = filled.client
    killed = f"{name_of(snapshot)}_rows_killed"
    held.create_collection(killed, dimension=8)
    held.create_alias(killed, f"{name_of(snapshot)}_filling")
    found = filled.ensure()
    assert 60 < clock.seconds < 65
    assert "has stopped: continuing its work" in caplog.text
    assert only_collection(held, snapshot) == found.name != killed
    assert int(held.get_collection_stats(found.name)["row_count"]) == len(snapshot.entity_vectors)


class SlowFlush:
    """A client whose flush lasts until three heartbeats of the fill, and that drops no alias meanwhile, if so asked."""

    def __init__(self, held: Any, *, keeps: bool = False) -> None:
        self._held = held
        self._keeps = keeps
        self.beats: list[str] = []
        self._shown = threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._held, name)

    def create_alias(self, collection: str, alias: str) -> None:
        self._held.create_alias(collection, alias)
        if alias.startswith(collection):
            self.beats.append(alias)
            if len(self.beats) == 3:
                self._shown.set()

    def drop_alias(self, alias: str) -> None:
        if not (self._keeps and threading.current_thread().name == "milvus-beat"):
            self._held.drop_alias(alias)

    def flush(self, name: str, **options: Any) -> None:
        assert self._shown.wait(30), "nothing shows that a fill lives while Milvus flushes"
        self._held.flush(name, **options)


@pytest.mark.parametrize("keeps", [False, True])
def test_a_fill_shows_that_it_lives_while_milvus_flushes(snapshot: Snapshot, keeps: bool) -> None:
    filled = filling(snapshot, Clock())
    filled.client, filled.beat_s = SlowFlush(filled.client, keeps=keeps), 0.01
    filled.ensure()
    assert len(set(filled.client.beats)) >= 3
    only_collection(filled.client, snapshot)
    assert not [thread for thread in threading.enumerate() if thread.name == "milvus-beat"]


def test_a_claim_that_nobody_may_make(snapshot: Snapshot) -> None:
    """An alias that Milvus refuses for another reason than another process must not be waited for for ever."""
    filled = filling(snapshot, Clock())
    filled.client.create_collection(f"{name_of(snapshot)}_filling", dimension=8)
    with pytest.raises(MilvusException):
        filled.ensure()
    assert filled.client.list_collections() == [f"{name_of(snapshot)}_filling"]


def test_the_index_goes_by_size() -> None:
    assert choose_index(2_000, 2_000) == "flat"
    assert choose_index(2_001, 2_000) == "hnsw"


@pytest.mark.parametrize(
    ("kind", "limit", "admitted", "expected"),
    [
        ("hnsw", 36, 1.0, {"ef": 512}),
        ("hnsw", 1016, 1.0, {"ef": 1016}),
        ("hnsw", 36, 0.5, {"ef": 1024}),
        ("hnsw", 36, 0.0, {"ef": 10_000}),
        ("flat", 36, 0.01, {}),
    ],
)
def test_a_narrow_filter_and_many_results_widen_a_search(
    kind: str, limit: int, admitted: float, expected: dict[str, int]
) -> None:
    assert search_params(kind, limit, 10_000, admitted) == expected


def test_without_milvus_lite_vectors_are_in_memory_or_it_is_said_what_to_install(
    snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "milvus_lite", None)
    assert make_vector_index(Config(), snapshot).name == "memory"
    with pytest.raises(
        BackendUnavailable, match=r"needs the extra `milvus-lite`: pip install 'hirag-dist\[milvus-lite\]'$"
    ):
        make_vector_index(Config(vectors=VectorsConfig(backend="milvus-lite")), snapshot)
