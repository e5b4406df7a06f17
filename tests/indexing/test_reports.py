"""Reports in updates by the share that is written: what is left out stays missing until a refresh writes it."""

from __future__ import annotations

from typing import Any

import pytest

from hirag_dist.storage.snapshot.reader import Snapshot
from tests.indexing.test_updates import LivingBench, corpus, text
from tests.toy_builds import task_of


def communities(share: float) -> dict[str, Any]:
    return {"communities": {"max_size": 12, "report_share": share}}


def n_missing(snapshot: Snapshot) -> int:
    """Return the missing reports of a snapshot, by its tables."""
    known = set(snapshot.table("reports")["community_id"].to_pylist())
    table = snapshot.table("communities", ["community_id", "n_entities"]).to_pylist()
    missing = [row for row in table if row["n_entities"] >= 2 and row["community_id"] not in known]
    assert snapshot.manifest.missing_reports == len(missing)
    return len(missing)


def n_reports_asked(living: LivingBench) -> int:
    return sum(task_of(request) == "report" for request in living.bench.model.requests)


def test_a_share_is_followed_from_the_first_build_and_changed_without_another(living: LivingBench) -> None:
    first = living.index(corpus(6), **communities(0.0))
    everything = n_missing(first)
    assert n_reports_asked(living) == 0
    assert everything > 4
    second = living.index(corpus(7), **communities(0.5))
    assert not living.result.rebuilt_because
    assert 0 < n_missing(second) < everything
    whole = living.refresh(**communities(1.0))
    assert n_missing(whole) == 0
    assert "reports" not in whole.manifest.notes
    assert living.index(corpus(7), **communities(0.0)).manifest.snapshot_id == whole.manifest.snapshot_id


def test_an_update_writes_no_report_that_is_left_out(living: LivingBench) -> None:
    living.index(corpus(6), **communities(0.0))
    changed = corpus(6) | {"00.txt": text("sun", 99)}
    updated = living.index(changed, **communities(0.0))
    assert n_reports_asked(living) == 0
    counts = living.result.update.reports
    assert (counts.written, counts.deferred, counts.missing) == (0, 0, n_missing(updated))


@pytest.mark.integration
def test_a_refresh_of_all_reports_writes_what_the_budget_pays_and_no_stand_ins(living: LivingBench) -> None:
    keys = communities(0.0)
    missing = n_missing(living.index(corpus(6), **keys))
    run = living.bench.run_work
    some = living._done(run(lambda build: build.refresh(2_000, all_reports=True), **{"llm": {}} | keys))
    assert 0 < n_missing(some) < missing
    assert "stand-in" not in some.table("reports")["origin"].to_pylist()
    whole = living._done(run(lambda build: build.refresh(all_reports=True), **keys))
    assert n_missing(whole) == 0
