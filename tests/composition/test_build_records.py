"""build.json: what a build was given, did and spent, while it runs and however it ended."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from hirag_dist.composition.build_records import (
    BuildArguments,
    BuildRecord,
    build_usage,
    dead_letters,
    earlier_builds,
    last_build,
    note_not_begun,
    published,
)
from hirag_dist.config.model import Config
from hirag_dist.errors import BudgetReached, StoreError
from hirag_dist.execution.events import CallsProgress, StageFailedEvent, StageFinished, StageStarted, TaskFinished
from hirag_dist.llm.limits.protocol import CallTotals
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.storage.layout import BUILD, LOCK
from hirag_dist.storage.lock import own_process
from hirag_dist.storage.store import Store
from hirag_dist.types import ChatReply

CONFIG = Config.model_validate(
    {"llm": {"endpoints": {"paid": {"base_url": "http://x/v1", "model": "m", "api_key": "sk-very-secret"}}}}
)

CORPUS = BuildArguments.of("index", CONFIG, ["corpus"])
HOLDER = {"host": socket.gethostname(), "pid": os.getppid(), "since": "now", "token": "t", "epoch": 1}


def record(store: Store, clock: Callable[[], float] = lambda: 0.0, given: BuildArguments = CORPUS) -> BuildRecord:
    return BuildRecord(store, given.command, given, CONFIG, {"dim": 3}, {"max_usd": 1.0}, clock=clock)


def spent(calls: int) -> UsageMeter:
    meter = UsageMeter()
    for _ in range(calls):
        meter.count("extract", "m", "paid", ChatReply("", input_tokens=10, output_tokens=2), 0.25, from_ledger=False)
    return meter


def hold(store: Store, **how: Any) -> None:
    store.write_json(LOCK, HOLDER | {"beat": time.time()} | how)


def test_what_was_given_is_kept_without_secrets(store: Store) -> None:
    record(store)
    text = store.read_bytes(BUILD).decode()
    assert "sk-very-secret" not in text
    assert store.read_json(BUILD)["given"]["inputs"] == [str(Path("corpus").absolute())]
    given = BuildArguments.of("index", CONFIG, ["s3://key:secret@bucket/docs?region=eu", "~/docs"])
    assert given.inputs == ("s3://bucket/docs", str(Path.home() / "docs"))


def test_a_running_build_is_seen_once_a_second(store: Store) -> None:
    now = 0.0
    listen = record(store, lambda: now)
    hold(store)
    listen(StageStarted("extract", 4, 1, 40, 10, "work/extract/key"))
    listen(TaskFinished("extract", 10, 1, 0.5, spent(2)))
    assert store.read_json(BUILD)["stages"] == []
    now = 1.0
    listen(TaskFinished("extract", 10, 0, 0.5, spent(3)))
    now = 2.0
    listen(CallsProgress("extract", CallTotals(answered=12, tokens=340)))  # of tasks that have not ended
    seen = last_build(store)
    assert seen["stages"][0]["calls"] == {"answered": 12, "tokens": 340}
    assert seen["state"] == "running"
    (stage,) = seen["stages"]
    assert (stage["state"], stage["rows"], stage["rows_done"], stage["rejects"]) == ("running", 40, 30, 1)
    assert (seen["sent"]["calls"], seen["sent"]["tokens"], seen["sent"]["usd"]) == (5, 60, 1.25)
    (bill,) = build_usage(seen)
    assert (bill["stage"], bill["role"], bill["endpoint"], bill["calls"]) == ("extract", "extract", "paid", 5)
    now = 3.0
    listen(StageFailedEvent("extract", spent(12)))
    assert "calls" not in last_build(store)["stages"][0], "their usage is known"


@pytest.mark.parametrize(
    ("error", "state"),
    [(BudgetReached("stopped before"), "stopped"), (KeyboardInterrupt(), "interrupted"), (ValueError("x"), "failed")],
)
def test_what_was_spent_shows_however_it_ended(store: Store, error: BaseException, state: str) -> None:
    listen = record(store)
    listen(StageStarted("extract", 1, 0, 8, 0, "work/extract/key"))
    listen(StageFailedEvent("extract", spent(7)))
    with pytest.raises(type(error)), listen.closed():
        raise error
    seen = last_build(store)
    assert (seen["state"], seen["sent"]["calls"]) == (state, 7)
    assert build_usage(seen)[0]["cost_usd"] == 1.75
    assert "ended_at" in seen


def test_a_full_disk_does_not_hide_why_it_failed(store: Store) -> None:
    class Full(Store):
        full = False

        def write_bytes(self, path: str, data: bytes, *, durable: bool = True) -> None:
            if self.full:
                raise StoreError("the disk is full")
            super().write_bytes(path, data, durable=durable)

    full = Full(store.root)
    listen = record(full)
    full.full = True
    with pytest.raises(ValueError, match="the cause"), listen.closed():
        raise ValueError("the cause")


def test_a_finished_stage_shows_what_it_rests_on(store: Store) -> None:
    listen = record(store)
    listen(StageFinished("extract", True, 40, 2, 0.1, spent(9), 1, "work/extract/key"))
    listen.close("done", snapshot="abc")
    seen = last_build(store)
    assert [(s["state"], s["rejects"], s["dropped"]) for s in seen["stages"]] == [("kept", 2, 1)]
    assert seen["sent"]["calls"] == 0  # paid before
    assert build_usage(seen)[0]["calls"] == 9


GONE = asdict(own_process()) | {"pid": 2**22 + 1}


@pytest.mark.parametrize("lock", [{"beat": 0.0}, GONE, None], ids=["silent", "no such process", "no lock"])
def test_a_build_that_nobody_holds_any_more_was_killed(store: Store, lock: dict[str, Any] | None) -> None:
    record(store)
    if lock is not None:
        hold(store, **lock)
    seen = last_build(store)
    assert seen["state"] == "killed"


def test_a_damaged_record_keeps_nobody_from_building(store: Store) -> None:
    store.write_bytes(BUILD, b"{")
    record(store).close("done")
    assert earlier_builds(store) == []


def test_the_letters_of_an_import_that_failed(store: Store) -> None:
    given = BuildArguments("import", (), "/data/graph", {}, (("entity X", "it has no name"),))
    record(store, given=given).close("failed", error="…")
    last = last_build(store)
    assert published(store, last) is None
    (letter,) = dead_letters(store, last, {})
    expected = {"stage": "import", "unit_id": "entity X", "reason": "it has no name", "dropped": None}
    assert letter.items() >= expected.items()


def test_a_run_whose_models_could_not_be_asked_is_the_last_build_where_there_was_none(store: Store) -> None:
    begun = datetime(2026, 1, 1, tzinfo=UTC)
    note_not_begun(store, "index", CORPUS, CONFIG, {"max_usd": 1.0}, spent(1), BudgetReached("stopped before"), begun)
    seen = last_build(store)
    assert (seen["started_at"], seen["ended_at"] > seen["started_at"]) == ("2026-01-01T00:00:00+00:00", True)
    assert (seen["state"], seen["error"], seen["stages"], seen["decisive"]) == ("stopped", "stopped before", [], {})
    assert (seen["sent"]["calls"], build_usage(seen)[0]["stage"]) == (1, "probes")
