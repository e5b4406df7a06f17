"""Milvus Lite beside an index: rebuilt when lost or half filled, owned by one process."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pymilvus import MilvusClient

from hirag_dist.backends.milvus import collection_name, open_milvus, open_milvus_lite
from hirag_dist.backends.vector_index import make_vector_index
from hirag_dist.config import Config
from hirag_dist.errors import BackendUnavailable, ConfigError
from hirag_dist.index.reader import Snapshot

ROOT = Path(__file__).parents[2]
OWNER = """
import sys
from hirag_dist.backends.milvus import open_milvus_lite
from hirag_dist.index.reader import open_snapshot
from hirag_dist.index.store import Store
held = open_milvus_lite(open_snapshot(Store(sys.argv[1]), sys.argv[2]))
print("held", flush=True)
sys.stdin.read()
held.close()
"""


def _contract() -> ModuleType:
    """The module with the snapshot that the contract searches."""
    spec = importlib.util.spec_from_file_location(
        "vector_contract", ROOT / "tests" / "contracts" / "test_vector_index.py"
    )
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def snapshot(tmp_path: Path) -> Snapshot:
    made: Snapshot = _contract().make_snapshot(tmp_path)
    return made


def nearest(snapshot: Snapshot) -> list[int]:
    index = open_milvus_lite(snapshot)
    try:
        return list(index.search(snapshot.entity_vectors[7], 12)[0].tolist())
    finally:
        index.close()


def client(snapshot: Snapshot) -> Any:
    assert snapshot.store.local
    return MilvusClient(str(snapshot.store.local / "milvus" / "milvus.db"))


def test_a_lost_collection_is_made_again(snapshot: Snapshot) -> None:
    before = nearest(snapshot)
    held = client(snapshot)
    held.drop_collection(collection_name(snapshot.manifest.snapshot_id))
    held.close()
    assert nearest(snapshot) == before
    snapshot.store.delete("milvus")
    assert nearest(snapshot) == before


def test_a_half_filled_collection_is_made_again(snapshot: Snapshot) -> None:
    before = nearest(snapshot)
    held = client(snapshot)
    name = collection_name(snapshot.manifest.snapshot_id)
    held.delete(name, filter="row < 30")
    held.flush(name)
    held.close()
    assert nearest(snapshot) == before


def test_a_collection_that_is_whole_is_kept(snapshot: Snapshot, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "hirag_dist.backends.milvus")
    nearest(snapshot)
    nearest(snapshot)
    assert [record.message for record in caplog.records] == [
        f"filling Milvus collection hirag_{snapshot.manifest.snapshot_id} with 87 vectors"
    ]


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
    assert process.stdout
    assert process.stdout.readline() == "held\n"
    yield process
    process.communicate(timeout=120)


def test_one_process_owns_the_file(snapshot: Snapshot, owner: subprocess.Popen[str]) -> None:
    with pytest.raises(BackendUnavailable, match=r"another process owns the Milvus Lite file.*query --server"):
        open_milvus_lite(snapshot)
    named = Config.model_validate({"vectors": {"backend": "milvus-lite"}})
    with pytest.raises(BackendUnavailable, match="another process owns"):
        make_vector_index(named, snapshot)
    assert make_vector_index(Config(), snapshot).name == "memory"  # auto may choose
    owner.communicate(timeout=120)
    chosen = make_vector_index(Config(), snapshot)
    assert chosen.name == "milvus-lite"
    chosen.close()


def test_a_server_that_is_not_there(snapshot: Snapshot) -> None:
    with pytest.raises(BackendUnavailable, match=r"no Milvus answers at http://127\.0\.0\.1:9"):
        open_milvus("http://127.0.0.1:9", "", snapshot)
    with pytest.raises(ConfigError, match=r"vectors\.uri"):
        make_vector_index(Config.model_validate({"vectors": {"backend": "milvus"}}), snapshot)
