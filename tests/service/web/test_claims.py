"""Claims on the page come from chunks that the caller may see."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pyarrow as pa
import pytest
import pytest_asyncio

from hirag_dist import schemas
from hirag_dist.core.text.ids import content_id
from hirag_dist.indexing.publish import ARRAYS
from hirag_dist.retrieval.engine import QueryEngine
from hirag_dist.service.hot_swap import SnapshotSwapper
from hirag_dist.service.request_gate import SERVICE_NAME
from hirag_dist.storage.layout import CONTENT_TABLES, LABEL_TABLES, PART_ARRAYS
from hirag_dist.storage.snapshot.reader import Snapshot, open_snapshot
from hirag_dist.storage.snapshot.writer import write_snapshot
from hirag_dist.storage.store import Store
from tests.leaky_builds import HIDDEN, Indexes, corpus, engine_of
from tests.service import fakes
from tests.toy_builds import rows

pytestmark = pytest.mark.asyncio(loop_scope="module")


def with_claims(built: Snapshot, folder: Path) -> Snapshot:
    """Write the snapshot again; every chunk claims all its words of the entity that its first public word names."""
    ids = {row["name"]: row["entity_id"] for row in rows(built, "entities") if row["layer"] == 0}
    claims = []
    for chunk in rows(built, "chunks"):
        name = next(word for word in chunk["text"].split() if not word.startswith(HIDDEN))
        own = {"claim_id": content_id("claim", chunk["chunk_id"]), "chunk_id": chunk["chunk_id"]}
        ends = {"subject": name, "subject_id": ids[name], "object": "", "object_id": None}
        told = {"type": "order", "status": "true", "start_date": "", "end_date": "", "source_text": chunk["text"]}
        claims.append(own | ends | told | {"description": chunk["text"]})
    names = (*CONTENT_TABLES, *LABEL_TABLES, "usage", "rejects")
    tables = {name: built.table(name).cast(getattr(schemas, name.upper())) for name in names}
    tables["claims"] = pa.Table.from_pylist(claims, schemas.CLAIMS)
    arrays = {name: built.array(name) for name in (*ARRAYS, *PART_ARRAYS)}
    store = Store(str(folder))
    manifest = write_snapshot(
        store, tables, arrays, embedder=built.manifest.embedder, complete=True, build={}, notes={}
    )
    return open_snapshot(store, manifest.snapshot_id)


@pytest_asyncio.fixture(loop_scope="module")
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def test_a_visitor_is_not_told_what_a_hidden_chunk_claims(
    serve: Callable[..., Any], http: Any, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    engine = engine_of(with_claims(Indexes(tmp_path_factory).snapshot(corpus(1)), tmp_path / "claimed"))

    async def opened() -> QueryEngine:
        return engine

    callers = fakes.CallersFile(tmp_path / "callers.yaml").add("visitor", labels=[]).add("agent", labels=["secret"])
    swapper = SnapshotSwapper(opened, lambda: engine.info.snapshot_id, poll_s=3600)
    served = await serve(swapper, page={"callers": True}, callers_file=callers.path)

    async def asked(caller: str) -> list[dict[str, Any]]:
        body = {"query": {"question": "wordaa wordbb", "mode": "MODE_GRAPHRAG_LOCAL", "top_n": 40}}
        headers = {"Authorization": f"Bearer {caller}-token"}
        async with http.post(f"{served.url}{SERVICE_NAME}/Retrieve", json=body, headers=headers) as response:
            assert response.status == 200
            reply = await response.json()
        if caller == "visitor":
            assert HIDDEN not in json.dumps(reply)
        found: list[dict[str, Any]] = reply["retrieval"]["claims"]
        return found

    told, all_told = await asked("visitor"), await asked("agent")
    assert told
    assert any(HIDDEN in claim["description"] for claim in all_told)
    open_to_all = [claim["claimId"] for claim in all_told if HIDDEN not in claim["description"]]
    assert {claim["claimId"] for claim in told} >= set(open_to_all)
