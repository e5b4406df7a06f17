"""Vector indexes without the package of the extra `milvus-lite`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hirag_dist.config.model import Config, VectorsConfig
from hirag_dist.errors import BackendUnavailable
from hirag_dist.retrieval.vector_index.memory import make_vector_index
from hirag_dist.storage.snapshot.reader import Snapshot, current_id, open_snapshot
from hirag_dist.storage.store import Store
from tests.toy_builds import Bench


@pytest.fixture
def snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Snapshot:
    monkeypatch.setitem(sys.modules, "milvus_lite", None)
    Bench(tmp_path).build(["alpha beta gamma", "gamma delta"])
    store = Store(str(tmp_path / "index"))
    return open_snapshot(store, current_id(store))


def test_vectors_are_searched_in_memory(snapshot: Snapshot) -> None:
    assert make_vector_index(Config(), snapshot).name == "memory"


def test_milvus_lite_says_what_to_install(snapshot: Snapshot) -> None:
    vectors = VectorsConfig(backend="milvus-lite")
    with pytest.raises(
        BackendUnavailable, match=r"needs the extra `milvus-lite`: pip install 'hirag-dist\[milvus-lite\]'$"
    ):
        make_vector_index(Config(vectors=vectors), snapshot)
