"""Reports in updates by policy: what is missing stays missing, what is due by no policy is dropped."""

from __future__ import annotations

from typing import Any

import pytest

from hirag_dist.core.text.ids import text_keys
from hirag_dist.storage.snapshot.late_reports import LateReport, LateReportFiles
from hirag_dist.storage.snapshot.reader import Snapshot
from tests.indexing.update.test_run import LivingBench, corpus, living, text, texts_of
from tests.toy_builds import task_of

__all__ = ["living"]


def communities(policy: str, **more: Any) -> dict[str, Any]:
    reports = {"policy": policy} | more
    return {"communities": {"report_min_entities": 2, "max_size": 12, "reports": reports}}


def n_missing(snapshot: Snapshot) -> int:
    """Return the missing reports of a snapshot, by its tables."""
    known = set(snapshot.table("reports")["community_id"].to_pylist())
    table = snapshot.table("communities", ["community_id", "n_entities"]).to_pylist()
    missing = [row for row in table if row["n_entities"] >= 2 and row["community_id"] not in known]
    assert snapshot.manifest.missing_reports == len(missing)
    return len(missing)


def n_reports_asked(living: LivingBench) -> int:
    assert living.bench.model is not None
    return sum(task_of(request) == "report" for request in living.bench.model.requests)


def add_late(snapshot: Snapshot, living: LivingBench) -> str:
    """Write a late report on a missing community that holds entities of a removable text; return its id."""
    known = set(snapshot.table("reports")["community_id"].to_pylist())
    rows = snapshot.table("communities").to_pylist()
    row = max((row for row in rows if row["community_id"] not in known), key=lambda row: row["n_entities"])
    report = {
        "community_id": row["community_id"],
        "level": row["level"],
        "title": "Late",
        "summary": "Written for a question.",
        "rating": 1.0,
        "rating_explanation": "",
        "findings": [],
        "origin": "model",
        "n_dropped_references": 0,
    }
    use = {"calls": 1, "input_tokens": 70, "output_tokens": 30, "cost_usd": 0.25}
    usage = [{"role": "report", "model": "m", "endpoint": "model"} | use]
    LateReportFiles(living.bench.store, snapshot.manifest.snapshot_id).write(LateReport(report, usage, 1.0))
    return str(row["community_id"])


def test_a_policy_is_followed_from_the_first_build_and_changed_without_another(living: LivingBench) -> None:
    first = living.index(corpus(6), **communities("on_demand"))
    everything = n_missing(first)
    assert n_reports_asked(living) == 0
    assert everything > 4
    second = living.index(corpus(7), **communities("top", share=0.5))
    assert not living.result.rebuilt_because
    assert 0 < n_missing(second) < everything
    whole = living.refresh(**communities("all"))
    assert n_missing(whole) == 0
    assert "reports" not in whole.manifest.notes
    assert living.index(corpus(7), **communities("on_demand")).manifest.snapshot_id == whole.manifest.snapshot_id


def test_an_update_writes_no_report_that_is_left_to_questions(living: LivingBench) -> None:
    living.index(corpus(6), **communities("on_demand"))
    changed = corpus(6) | {"00.txt": text("sun", 99)}
    updated = living.index(changed, **communities("on_demand"))
    assert n_reports_asked(living) == 0
    counts = living.result.update.reports
    assert (counts.written, counts.deferred, counts.missing) == (0, 0, n_missing(updated))


@pytest.mark.integration
def test_a_late_report_is_taken_over_with_its_cost_and_dropped_when_its_text_is_removed(living: LivingBench) -> None:
    keys = communities("on_demand")
    first = living.index(corpus(6), **keys)
    own = add_late(first, living)
    taken = living.refresh(**keys)
    rows = {row["community_id"]: row for row in taken.table("reports").to_pylist()}
    assert rows[own]["summary"] == "Written for a question."
    assert n_missing(taken) == n_missing(first) - 1
    bill = [row for row in taken.table("usage").to_pylist() if row["stage"] == "reports on demand"]
    assert [(row["calls"], row["input_tokens"], row["cost_usd"]) for row in bill] == [(1, 70, 0.25)]
    inputs = {row["community_id"]: row["sources"] for row in taken.table("report_inputs").to_pylist()}
    sources = set(inputs[own])
    chunks = taken.table("chunks", ["chunk_id", "document_id"])
    keys_of = text_keys(chunks["chunk_id"]).tolist()
    gone = next(
        document for document, key in zip(chunks["document_id"].to_pylist(), keys_of, strict=True) if key in sources
    )
    after = living.remove(gone, **keys)
    assert "Written for a question." not in texts_of(after)
    assert living.result.update.reports.stand_ins == 0
    n_missing(after)


@pytest.mark.integration
def test_a_refresh_of_all_reports_writes_what_the_budget_pays_and_no_stand_ins(living: LivingBench) -> None:
    keys = communities("on_demand")
    missing = n_missing(living.index(corpus(6), **keys))
    run = living.bench.run_work
    some = living._done(run(lambda build: build.refresh(2_000, all_reports=True), **{"llm": {}} | keys))
    assert 0 < n_missing(some) < missing
    assert "stand-in" not in some.table("reports")["origin"].to_pylist()
    whole = living._done(run(lambda build: build.refresh(all_reports=True), **keys))
    assert n_missing(whole) == 0


@pytest.mark.integration
def test_equal_inputs_give_equal_indexes(living: LivingBench) -> None:
    keys = communities("top", share=0.4)
    first = living.index(corpus(6), **keys)
    assert living.fresh(corpus(6), **keys).manifest.snapshot_id == first.manifest.snapshot_id
