"""Label provenance of each row of a built index, against its tables, a row at a time."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from hirag_dist import schemas
from hirag_dist.core.metadata.columns import DERIVED, DIVISIBLE, WHOLE
from hirag_dist.core.retrieval.levels import RankedCommunity
from hirag_dist.retrieval.view.filtered_index import AccessControlledIndex
from hirag_dist.retrieval.view.index import MappedIndex
from hirag_dist.storage.label_files import Mentions
from hirag_dist.storage.layout import UPDATE_TABLES
from hirag_dist.storage.metadata_files import MetadataFiles
from hirag_dist.storage.serving.mmap_files import ServingFiles
from hirag_dist.storage.serving.text_columns import text_schema
from hirag_dist.storage.snapshot.reader import Snapshot, open_snapshot
from hirag_dist.storage.store import Store
from tests.altered_snapshots import altered
from tests.labelled_builds import build
from tests.storage import snapshots
from tests.storage.serving.test_text_columns import columns_of
from tests.table_rows import filled_table
from tests.toy_builds import Bench, rows


def test_a_hub_is_told_from_its_first_thousand_mentions_in_reach(tmp_path: Path) -> None:
    """Row 2 has five mentions, row 7 three thousand, every other one of them in reach, row 9 one."""
    counts = [5, 3000, 1]
    n = sum(counts)
    mentions = Mentions(
        rows=np.array([2, 7, 9], np.int32),
        indptr=np.cumsum([0, *counts]).astype(np.int64),
        sets=(np.arange(n) % 2).astype(np.int32),
        positions=np.zeros(n, np.int32),
        numbers=np.ones(n, np.bool_),
        texts=columns_of(tmp_path / "texts.arrow", text_schema(["name"])),
    )
    owners, places = mentions.visible(np.array([2, 7, 9]), np.array([False, True, False]))
    assert np.bincount(owners).tolist() == [2, 1000, 1]
    assert places.tolist() == [1, 3, *range(5, 2005, 2), 3005]
    owners, places = mentions.visible(np.array([9]), np.array([True, False, False]))
    assert (owners.tolist(), places.tolist()) == ([], [])


def documents(seed: int) -> list[tuple[str, list[str]]]:
    """Eighteen documents of a dozen words each, some of them in many."""
    choose = random.Random(seed)
    words = [f"word{first}{second}" for first in "abcdef" for second in "abcdefgh"]
    return [
        (" ".join(dict.fromkeys(choose.choices(words, k=12))), choose.sample(["x", "y", "z"], choose.randrange(3)))
        for _ in range(18)
    ]


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    return build(Bench(tmp_path_factory.mktemp("index")), documents(1), lambda request: None)


def patterns(snapshot: Snapshot, what: str) -> list[tuple[set[int], bool]]:
    files = snapshot.serving
    of, indptr, sets, divisible = (
        files.array(f"{what}_{part}") for part in ("patterns", "pattern_indptr", "pattern_sets", "pattern_divisible")
    )
    return [(set(sets[indptr[own] : indptr[own + 1]].tolist()), bool(divisible[own])) for own in of]


def label_sets(files: ServingFiles) -> list[str]:
    texts = files.texts("label_sets.arrow")
    return texts.values("labels", range(texts.n_rows))


def test_what_stands_behind_entities_relations_and_communities(snapshot: Snapshot) -> None:
    numbers = {labels: at for at, labels in enumerate(label_sets(snapshot.serving))}
    of_document = {
        row["document_id"]: numbers[str(row["labels"]).replace("'", '"')] for row in rows(snapshot, "documents")
    }
    of_chunk = {row["chunk_id"]: of_document[row["document_id"]] for row in rows(snapshot, "chunks")}
    assert snapshot.serving.array("chunk_sets").tolist() == list(of_chunk.values())
    clusters: dict[str, set[str]] = {}
    for row in rows(snapshot, "clusters"):
        clusters.setdefault(row["cluster_id"], set()).add(row["entity_id"])
    made_of: dict[str, set[str]] = {}
    for row in rows(snapshot, "summary_sources"):
        made_of.setdefault(row["entity_id"], set()).update(clusters[row["cluster_id"]])
    told = {row["entity_id"] for row in rows(snapshot, "entity_mentions")}
    behind: dict[str, set[int]] = {}
    for row, found in zip(rows(snapshot, "entities"), patterns(snapshot, "entity"), strict=True):
        own = row["entity_id"]
        below = [behind[member] for member in made_of[own]] if row["layer"] else []
        behind[own] = {of_chunk[chunk] for chunk in row["chunk_ids"]}.union(*below)
        assert found == (behind[own], own in told)
        assert (own in told) == (row["layer"] == 0 and len(behind[own]) > 1)
    assert max(row["layer"] for row in rows(snapshot, "entities")) > 1, "else summaries of summaries are not tested"
    relations = rows(snapshot, "relations")
    stated = {row["relation_id"] for row in rows(snapshot, "statements")}
    for row, (found_sets, divisible) in zip(relations, patterns(snapshot, "relation"), strict=True):
        assert found_sets == {of_chunk[chunk] for chunk in row["chunk_ids"]}
        assert divisible == (row["relation_id"] in stated) == (len(found_sets) > 1)
    for row, found in zip(rows(snapshot, "communities"), patterns(snapshot, "community"), strict=True):
        inside = set(row["entity_ids"])
        among = [edge for edge in relations if {edge["source_id"], edge["target_id"]} <= inside]
        sets: set[int] = set().union(*(behind[member] for member in inside))
        assert found == (sets.union(*({of_chunk[chunk] for chunk in edge["chunk_ids"]} for edge in among)), False)


def with_rows(snapshot: Snapshot, table: str, changed: list[dict[str, Any]]) -> Snapshot:
    """The same index with other rows of a table."""
    return altered(snapshot, {table: pa.Table.from_pylist(changed, getattr(schemas, table.upper()))})


def test_a_report_on_a_member_that_is_gone_is_in_nobodys_reach(snapshot: Snapshot) -> None:
    communities = rows(snapshot, "communities")
    communities[0]["entity_ids"][-1] = "gone"
    changed = with_rows(snapshot, "communities", communities)
    unknown = len(label_sets(changed.serving))
    for (before, _), (after, _) in zip(patterns(snapshot, "community"), patterns(changed, "community"), strict=True):
        assert unknown not in before or unknown in after
    assert unknown in patterns(changed, "community")[0][0]
    held = {label for row in rows(changed, "documents") for label in row["labels"]}
    whole = MappedIndex.open(changed)
    seen = AccessControlledIndex(whole, changed).view_for(held)
    assert seen.community(RankedCommunity(0, 1, 0.5)) is None, "nor in that of who holds every label"
    assert whole.community(RankedCommunity(0, 1, 0.5)) is not None
    assert AccessControlledIndex(MappedIndex.open(snapshot), snapshot).view_for(held, ()).access is None, (
        "nothing is unknown here"
    )
    assert any(unknown not in sets for sets, _ in patterns(changed, "community"))


@pytest.mark.parametrize("lost", ["cluster", "member", "chunk", "document"])
def test_what_was_made_from_something_that_is_gone_is_in_nobodys_reach(snapshot: Snapshot, lost: str) -> None:
    source, entities, clusters = (rows(snapshot, name) for name in ("summary_sources", "entities", "clusters"))
    affected, cluster = source[0]["entity_id"], source[0]["cluster_id"]
    if lost == "cluster":
        changed = with_rows(snapshot, "clusters", [row for row in clusters if row["cluster_id"] != cluster])
    elif lost == "member":
        next(row for row in clusters if row["cluster_id"] == cluster)["entity_id"] = "gone"
        changed = with_rows(snapshot, "clusters", clusters)
    elif lost == "chunk":
        affected = entities[3]["entity_id"]
        entities[3]["chunk_ids"][-1] = "gone"
        changed = with_rows(snapshot, "entities", entities)
    else:
        affected, chunks = entities[3]["entity_id"], rows(snapshot, "chunks")
        next(row for row in chunks if row["chunk_id"] in entities[3]["chunk_ids"])["document_id"] = "gone"
        changed = with_rows(snapshot, "chunks", chunks)
    unknown = len(label_sets(changed.serving))
    found = dict(zip([row["entity_id"] for row in entities], patterns(changed, "entity"), strict=True))
    assert unknown in found[affected][0]
    assert sum(unknown in sets for sets, _ in found.values()) < len(found) / 2


def test_an_index_without_labels_has_no_files_but_the_one_that_says_so(tmp_path: Path) -> None:
    snapshot = build(Bench(tmp_path), [("sun moon", []), ("moon sea", [])], lambda request: None, max_layers=0)
    assert label_sets(snapshot.serving) == ["[]"]
    files = set(snapshot.manifest.files) - {f"{name}.parquet" for name in UPDATE_TABLES}
    assert not [name for name in files if "pattern" in name or "mention" in name]


def test_what_filters_by_metadata_know_of_rows(store: Store) -> None:
    rows: dict[str, list[dict[str, Any]]] = {
        "metadata_fields": [{"name": "pages", "type": "number"}],
        "document_metadata": [{"document_id": "d1", "metadata": '{"pages": 2.5}'}],
        "entity_mentions": [{"entity_id": "e2"}],
        "statements": [],
        "clusters": [{"cluster_id": "c", "entity_id": own} for own in ("e3", "e1", "lost")],
        "summary_sources": [{"entity_id": "e4", "cluster_id": "c"}],
    }
    tables = {name: filled_table(getattr(schemas, name.upper()), each) for name, each in rows.items()}
    snapshots.publish(store, snapshots.tiny_tables() | tables)
    snapshot = open_snapshot(store)
    found = MetadataFiles(snapshot.serving)
    assert found.entity_provenance.tolist() == [WHOLE, DIVISIBLE, WHOLE, WHOLE]
    kinds = snapshot.table("relations", ["kind"])["kind"].to_pylist()
    assert found.relation_provenance.tolist() == [WHOLE if kind == "extracted" else DERIVED for kind in kinds]
    assert found.summary_indptr.tolist() == [0, 3]
    assert sorted(found.summary_members.tolist()) == [-1, 0, 2], "a member that is not there is known to be missing"
