"""Dead letters asked again: no reply is paid twice, and what comes out is what an undisturbed build gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hirag_dist.core.prompts.templates import DONE
from hirag_dist.errors import HiragError, ModelUnavailable, RequestRejected, StageFailed
from hirag_dist.execution.events import StageFinished
from hirag_dist.execution.stage_results import DroppedLetter, add_drops, stage_letters
from hirag_dist.storage.layout import DROPS
from hirag_dist.types import ChatReply, ChatRequest
from tests.toy_builds import LAYER_0_ALONE, LONG, Bench, between, extract, members, obedient, rows, task_of

TEXTS = ["sun light", "moon light", "sea water"]
REFUSAL = "I'm sorry, but I cannot help with that."


@pytest.fixture
def clean(tmp_path: Path) -> Bench:
    """Builds elsewhere, to compare with."""
    return Bench(tmp_path / "clean")


def moonless(request: ChatRequest) -> str | None:
    """A model that says nothing of texts with a moon."""
    return "" if task_of(request) == "extract-graph" and "moon" in between(request, "text") else None


def cut_off(request: ChatRequest) -> ChatReply | None:
    """A model whose replies about texts with a sea are cut off in their last record."""
    if task_of(request) == "extract-graph" and "sea" in between(request, "text"):
        return ChatReply(extract(request).removesuffix(DONE)[:-30], "length")
    return None


def test_complete_records_of_cut_replies_are_kept_and_the_rest_is_a_dead_letter(bench: Bench, clean: Bench) -> None:
    cut = bench.build(TEXTS, cut_off, **LAYER_0_ALONE)
    assert not cut.manifest.complete
    assert {"sea", "water"} <= {row["name"] for row in rows(cut, "entities")}
    whole = clean.build(TEXTS, **LAYER_0_ALONE)
    assert len(rows(cut, "relations")) < len(rows(whole, "relations"))
    (letter,) = rows(cut, "rejects")
    assert letter["reason"] == "only its complete records were kept: the reply was cut off at the token limit"
    assert (letter["stage"], letter["attempts"]) == ("extract", 2)
    sea = unit_of(cut, "sea water")
    assert letter["unit_id"] == sea

    drop(bench, sea)
    accepted = bench.build(TEXTS, cut_off, fresh=True, **LAYER_0_ALONE)
    assert accepted.manifest.complete
    assert len(rows(accepted, "entities")) == len(rows(cut, "entities")), "what was kept stays"
    bench.store.delete(DROPS)
    healed = bench.build(TEXTS, retry=True, **LAYER_0_ALONE)
    assert healed.manifest.snapshot_id == whole.manifest.snapshot_id


def refusing_summary(request: ChatRequest) -> str | None:
    return REFUSAL if task_of(request) == "summarise" and "wordaa" in members(request) else None


def drop(bench: Bench, *units: str, stage: str = "extract") -> None:
    dropped = (DroppedLetter(stage, unit, "me@here", "2026-01-01T00:00:00+00:00", "not worth it") for unit in units)
    add_drops(bench.store, dropped)


def unit_of(snapshot: Any, text: str) -> str:
    return next(row["chunk_id"] for row in rows(snapshot, "chunks") if row["text"] == text)


class TestAgain:
    def test_only_the_dead_chunk_is_asked_and_the_snapshot_is_the_undisturbed_one(
        self, bench: Bench, clean: Bench
    ) -> None:
        first = bench.build(TEXTS, moonless, **LAYER_0_ALONE)
        assert {row["name"] for row in rows(first, "entities")} == {"sun", "light", "sea", "water"}
        (dead,) = rows(first, "rejects")
        assert (dead["stage"], dead["unit_id"], dead["reason"]) == (
            *("extract", unit_of(first, "moon light"), "the reply is empty"),
        )
        assert "moon light" in dead["request"]
        assert not first.manifest.complete
        again = bench.build(TEXTS, obedient, **LAYER_0_ALONE)
        assert bench.model.requests == [], "a plain build asks for none again"
        assert again.manifest.snapshot_id == first.manifest.snapshot_id
        healed = bench.build(TEXTS, obedient, retry=True, **LAYER_0_ALONE)
        assert [between(request, "text") for request in bench.asked("extract-graph")] == ["moon light"]
        assert healed.manifest.complete
        assert healed.manifest.snapshot_id == clean.build(TEXTS, **LAYER_0_ALONE).manifest.snapshot_id

    def test_each_retry_gives_as_many_new_attempts(self, bench: Bench) -> None:
        for tries in (2, 4, 6):
            bench.build(TEXTS, moonless, retry=tries > 2, **LAYER_0_ALONE)
            (folder,) = (e.folder for e in bench.events if isinstance(e, StageFinished) and e.label == "extract")
            (letter,) = stage_letters(bench.store, folder).to_pylist()
            assert letter["attempts"] == tries
            assert len([r for r in bench.asked("extract-graph") if "moon" in between(r, "text")]) == 2
        assert len(bench.asked("extract-graph")) == 2  # no other call was made

    def test_a_dead_summary_is_written_by_rules_until_it_is_asked_for_and_no_chunk_is_read_again(
        self, bench: Bench, clean: Bench
    ) -> None:
        before = bench.build([LONG], refusing_summary, max_layers=1)
        names = {row["entity_id"]: row["name"] for row in rows(before, "entities")}
        attached = {names[row["source_id"]] for row in rows(before, "relations") if row["kind"] == "summary"}
        assert {name for name in names.values() if name.startswith("word")} == attached
        dead = rows(before, "rejects")
        assert {(row["stage"], row["attempts"]) for row in dead} == {("summarise", 2)}
        by_rules = {row["cluster_id"] for row in rows(before, "summaries") if row["origin"] == "stand-in"}
        assert {row["unit_id"] for row in dead} == by_rules
        assert before.manifest.notes["update"]["debt"]["summaries"]["units"] == len(by_rules)
        assert not before.manifest.complete
        assert bench.result.dead_letters == len(dead)

        healed = bench.build([LONG], obedient, retry=True, max_layers=1)
        assert bench.asked("extract-graph") == []
        assert all("wordaa" in members(request) for request in bench.asked("summarise"))
        assert {row["origin"] for row in rows(healed, "summaries")} == {"model"}
        whole = clean.build([LONG], max_layers=1)
        assert healed.manifest.snapshot_id == whole.manifest.snapshot_id
        n_summaries = len(clean.asked("summarise"))
        assert 0 < len(bench.asked("summarise")) < n_summaries

    def test_a_letter_whose_text_is_gone_closes_by_itself(self, bench: Bench) -> None:
        assert not bench.build(TEXTS, moonless, **LAYER_0_ALONE).manifest.complete
        left = [TEXTS[0], TEXTS[2]]
        closed = bench.build(left, obedient, **LAYER_0_ALONE)
        assert rows(closed, "rejects") == []
        assert closed.manifest.complete
        assert bench.asked("extract-graph") == []

    def test_a_stage_that_failed_by_its_share_is_asked_again_by_a_retry_alone(self, bench: Bench, clean: Bench) -> None:
        keys = LAYER_0_ALONE | {"max_reject_ratio": 0}
        for _ in range(2):
            with pytest.raises(StageFailed, match=r"1 of 3 units.*`hirag-dist retry --index .* asks them again"):
                bench.run(TEXTS, moonless, **keys)
            n_asked = len(bench.asked("extract-graph"))
        assert n_asked == 0
        healed = bench.build(TEXTS, obedient, retry=True, **keys)
        assert len(bench.asked("extract-graph")) == 1
        assert healed.manifest.snapshot_id == clean.build(TEXTS, **keys).manifest.snapshot_id


def test_an_endpoint_that_is_gone_fails_the_build(bench: Bench) -> None:
    def gone(request: ChatRequest) -> str:
        raise ModelUnavailable("no answer")

    with pytest.raises(HiragError, match="no answer"):
        bench.run(TEXTS, gone)


class TestDropped:
    def test_a_retry_leaves_it_alone(self, bench: Bench) -> None:
        """Also where it shares a task with a letter that is asked again."""
        texts = ["moon dew", *TEXTS]
        before = bench.build(texts, moonless, **LAYER_0_ALONE)
        drop(bench, unit_of(before, "moon dew"))
        after = bench.build(texts, obedient, retry=True, **LAYER_0_ALONE)
        assert [between(request, "text") for request in bench.asked("extract-graph")] == ["moon light"]
        (gone,) = rows(after, "dropped")
        assert (gone["unit_id"], gone["attempts"]) == (unit_of(before, "moon dew"), 2)
        assert (gone["dropped_by"], gone["dropped_why"]) == ("me@here", "not worth it")
        assert (bench.result.dead_letters, bench.result.dropped) == (0, 1)
        assert after.manifest.complete
        assert "dew" not in {row["name"] for row in rows(after, "entities")}

    def test_doing_everything_again_leaves_it_alone(self, bench: Bench) -> None:
        """A rejected request leaves no reply in the ledger: only the drop keeps it from being sent again."""
        rejected: list[str] = []

        def rejecting(request: ChatRequest) -> str | None:
            is_report = task_of(request) == "report"
            if (is_report and request.unit in (rejected or [request.unit])) or moonless(request) == "":
                rejected.extend([request.unit] if is_report else [])
                raise RequestRejected("the content filter was triggered")
            return None

        texts = [LONG, "moon light"]
        before = bench.build(texts, rejecting, max_layers=0)
        letters = rows(before, "rejects")
        assert sorted(row["stage"] for row in letters) == ["extract", "reports"]
        for letter in letters:
            drop(bench, letter["unit_id"], stage=letter["stage"])
        fresh = bench.build(texts, obedient, fresh=True, max_layers=0)
        assert bench.model.requests == []
        assert [{name: gone[name] for name in letters[0]} for gone in rows(fresh, "dropped")] == letters
        assert fresh.manifest.complete
