"""Imported graphs, built into snapshots: what is asked of models, and what becomes of communities and claims."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

from hirag_dist.interop.importers import ImportedGraph, read_working_folder
from hirag_dist.retrieval.view.index import MappedIndex
from hirag_dist.storage.layout import CLAIMS
from hirag_dist.storage.snapshot.reader import Snapshot, open_snapshot
from tests.interop.importers.conftest import write_parquet
from tests.toy_builds import LONG, Bench, between, rows, task_of

NAMES = LONG.split()
SECRET = "wordaa"


def folder(where: Path, labels: bool = False) -> Path:
    """Forty-eight words in a row in one document, and one of them once more in another; two communities, one report."""
    texts = {"1": LONG, "2": f"Only {SECRET}."}
    documents = [{"id": f"d{at}", "text": text, "title": f"d{at}"} for at, text in texts.items()]
    if labels:
        documents = [row | {"labels": own} for row, own in zip(documents, ([], ["secret"]), strict=True)]
    write_parquet(where / "documents.parquet", documents)
    chunks = [{"id": f"c{at}", "document_id": f"d{at}", "text": text} for at, text in texts.items()]
    write_parquet(where / "text_units.parquet", chunks)
    home = {"text_unit_ids": ["c1"]}
    entities = [{"title": name, "type": "concept", "description": f"{name} is a word."} | home for name in NAMES]
    write_parquet(where / "entities.parquet", [row | {"id": row["title"]} for row in entities])
    relation = {"weight": 3.0, "description": "One stands before the other."} | home
    relations = [relation | {"source": low, "target": high} for low, high in pairwise(NAMES)]
    write_parquet(where / "relationships.parquet", relations)
    claim = {"subject_id": SECRET, "type": "order", "status": "TRUE"}
    told = {"c1": "It comes first of all.", "c2": "It is alone elsewhere."}
    claims = [claim | {"description": said, "text_unit_id": chunk} for chunk, said in told.items()]
    write_parquet(where / "covariates.parquet", claims)
    halves = {0: NAMES[:24], 1: NAMES[24:40]}
    communities = [{"community": key, "level": 0, "entity_ids": names} for key, names in halves.items()]
    write_parquet(where / "communities.parquet", communities)
    report = {"community": 0, "title": "The first half", "summary": "Words.", "rank": 5.0}
    write_parquet(where / "community_reports.parquet", [report])
    return where


def graph_of(where: Path, keep: bool) -> ImportedGraph:
    return read_working_folder(str(where), lambda text: len(text.split()), communities=keep)


def built(bench: Bench, graph: ImportedGraph, **keys: Any) -> Snapshot:
    bench.result = bench.run_work(lambda build: build.index_graph(graph), **keys)
    return open_snapshot(bench.store, bench.result.manifest.snapshot_id, full_check=True)


def asked(bench: Bench) -> set[str]:
    return {task_of(request) for request in bench.model.requests}


def test_communities_anew_take_reports_with_claims_and_no_extraction(bench: Bench, tmp_path: Path) -> None:
    snapshot = built(bench, graph_of(folder(tmp_path / "in"), keep=False))
    assert asked(bench) == {"summarise", "report"}
    assert snapshot.manifest.complete
    assert {row["origin"] for row in rows(snapshot, "reports")} <= {"model", "members"}
    layers = {row["entity_id"]: row["layer"] for row in rows(snapshot, "entities")}
    assert max(layers.values()) >= 1
    covered = {own for row in rows(snapshot, "communities") for own in row["entity_ids"]}
    assert covered == layers.keys()

    assert snapshot.manifest.counts[CLAIMS] == 2
    names = [row["name"] for row in rows(snapshot, "entities")]
    told = MappedIndex.open(snapshot).claims_about([names.index(SECRET)], 100)
    assert {item.description for item in told} == {"It comes first of all.", "It is alone elsewhere."}
    reports = [request for request in bench.asked("report") if "<claims>" in request.messages[1].content]
    shown = {between(request, "claims") for request in reports}
    assert shown == {f"K1. {SECRET}, order (true): It comes first of all."}


def test_kept_communities_take_no_report_and_hold_summaries(bench: Bench, tmp_path: Path) -> None:
    """The same import once more is the same snapshot, and asks nothing."""
    where = folder(tmp_path / "in")
    snapshot = built(bench, graph_of(where, keep=True))
    assert asked(bench) == {"summarise"}
    (report,) = rows(snapshot, "reports")
    assert (report["title"], report["origin"]) == ("The first half", "imported")
    layers = {row["entity_id"]: row["layer"] for row in rows(snapshot, "entities")}
    communities = rows(snapshot, "communities")
    own = {row["community_id"]: [layers[each] for each in row["entity_ids"]] for row in communities}
    assert sorted(held.count(0) for held in own.values()) == [16, 24]
    assert any(1 in held for held in own.values())
    assert report["community_id"] in own
    letters = {(row["stage"], row["reason"]) for row in rows(snapshot, "rejects")}
    assert letters == {("import", "the folder holds none that says something")}
    assert not snapshot.manifest.complete

    again = built(bench, graph_of(where, keep=True))
    assert asked(bench) == set()
    assert bench.result.stages_run == 0
    assert again.manifest.snapshot_id == snapshot.manifest.snapshot_id


def test_a_claim_is_not_told_to_whom_the_reports_are(bench: Bench, tmp_path: Path) -> None:
    """A caller of the first document sees the report of its words, which must not hold claims of the second."""
    built(bench, graph_of(folder(tmp_path / "in", labels=True), keep=False))
    assert not [request for request in bench.asked("report") if "alone elsewhere" in request.messages[1].content]
