"""Claims in a snapshot: their effect on it, their visibility, and their lookup by entity."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from hirag_dist import schemas
from hirag_dist.retrieval.view.filtered_index import AccessControlledIndex
from hirag_dist.retrieval.view.index import MappedIndex
from hirag_dist.storage.snapshot.reader import Snapshot, open_snapshot
from hirag_dist.storage.store import Store
from tests.altered_snapshots import altered
from tests.labelled_builds import build
from tests.storage import snapshots
from tests.toy_builds import Bench, rows


def claim(own: str, subject: str | None, thing: str | None, chunk: str) -> dict[str, Any]:
    ends = {"subject_id": subject, "object_id": thing, "subject": "Somebody", "object": "somebody else"}
    told = {"type": "debt", "status": "true", "start_date": "1843-12-24", "end_date": "", "source_text": "“He owes.”"}
    return {"claim_id": own, "chunk_id": chunk, "description": f"What {own} says."} | ends | told


def table(*claims: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(claims), schemas.CLAIMS)


def told_of(index: MappedIndex, *entities: int) -> list[str]:
    return [item.claim_id for item in index.claims_about(entities, 100)]


@pytest.fixture
def snapshot(store: Store) -> Snapshot:
    """Scrooge (e1) and Marley (e2) are claimed to owe each other; c4 is about no entity."""
    claims = table(
        claim("c1", "e2", "e1", "k1"),
        claim("c2", "e1", "e1", "k1"),
        claim("c3", "e1", "e2", "gone"),
        claim("c4", None, None, ""),
    )
    manifest = snapshots.publish(store, snapshots.tiny_tables() | {"claims": claims})
    return open_snapshot(store, manifest.snapshot_id, full_check=True)


def test_claims_are_found_by_whom_they_are_about(snapshot: Snapshot) -> None:
    index = MappedIndex.open(snapshot)
    assert told_of(index, 0) == ["c2", "c3", "c1"], "as subject first, then as object"
    assert told_of(index, 2, 3) == []
    for limit in range(5):
        cut = [item.claim_id for item in index.claims_about([1, 0], limit)]
        assert cut == ["c1", "c3", "c2"][:limit], "each once, in the order asked for"
    (first, *_) = index.claims_about([1], 100)
    assert first.subject_id == "e2"
    assert first.line == "Somebody → somebody else, debt (true, from 1843-12-24): What c1 says."
    assert snapshot.info().counts["claims"] == 4


def test_claims_are_content_and_their_absence_changes_nothing(store: Store, snapshot: Snapshot) -> None:
    without = snapshots.publish(store)
    assert without.snapshot_id != snapshot.manifest.snapshot_id
    assert "claims" not in without.content
    assert not [name for name in without.files if "claim" in name]
    plain = open_snapshot(store, without.snapshot_id)
    assert plain.table("claims").equals(schemas.CLAIMS.empty_table())
    assert MappedIndex.open(plain).claims_about([0, 1], 100) == ()
    other = snapshots.publish(store, snapshots.tiny_tables() | {"claims": table(claim("c1", "e2", "e1", "k1"))})
    assert other.snapshot_id not in (without.snapshot_id, snapshot.manifest.snapshot_id)


def test_a_caller_is_told_the_claims_of_chunks_in_reach(tmp_path: Path) -> None:
    documents = [("Ann/person: one.\nBob/person: two.", []), ("Ann/person: three.\nCid/person: four.", ["secret"])]
    built = build(Bench(tmp_path), documents)
    chunks = {row["text"]: row["chunk_id"] for row in rows(built, "chunks")}
    (in_reach, _), (secret, _) = documents
    entities = [row["entity_id"] for row in rows(built, "entities")]
    ids = {row["name"]: row["entity_id"] for row in rows(built, "entities") if row["layer"] == 0}
    ann = ids["Ann"]
    claims = table(
        claim("c1", ann, None, chunks[secret]),
        claim("c2", ann, ids["Cid"], chunks[in_reach]),
        claim("c3", ann, None, "gone"),
    )
    snapshot = altered(built, {"claims": claims})
    index = MappedIndex.open(snapshot)
    views = AccessControlledIndex(index, snapshot)
    row = entities.index(ann)
    assert told_of(index, row) == ["c1", "c2", "c3"]
    seen = views.view_for(frozenset())
    (told,) = seen.claims_about([row], 10)
    assert (told.claim_id, told.subject_id) == ("c2", ann)
    assert (told.object, told.object_id) == ("somebody else", "")  # only another text says that this is an entity
    assert seen.info(snapshot.info()).counts["claims"] == 1
    assert built.info().counts.get("claims") is None
    cleared = views.view_for(frozenset(["secret"]))
    assert set(told_of(cleared, row)) >= {"c1", "c2"}
