"""Dead letters asked again: no reply is paid twice, and what comes out is what an undisturbed build gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hirag_dist.core.prompts.templates import DONE
from hirag_dist.errors import HiragError, ModelUnavailable, RequestRejected, StageFailed
from hirag_dist.execution.events import StageFinished
from hirag_dist.execution.stage_results import DroppedLetter, add_drops, load_drops, stage_letters
from hirag_dist.indexing.publish import republish
from hirag_dist.storage.layout import DROPS
from hirag_dist.storage.snapshot.reader import open_snapshot
from hirag_dist.types import ChatReply, ChatRequest
from tests.toy_builds import LONG, Bench, Script, between, extract, members, obedient, rows, task_of

TEXTS = ["sun light", "moon light", "sea water"]
REFUSAL = "I'm sorry, but I cannot help with that."


@pytest.fixture
def clean(tmp_path: Path) -> Bench:
    """Builds elsewhere, to compare with."""
    (tmp_path / "clean").mkdir()
    return Bench(tmp_path / "clean")


def about(word: str, says: str = "") -> Script:
    """A model that fails at the texts with a word."""

    def script(request: ChatRequest) -> str | None:
        return says if task_of(request) == "extract-graph" and word in between(request, "text") else None

    return script


def cut_at(word: str) -> Callable[[ChatRequest], ChatReply | None]:
    """A model whose every reply about the texts with a word is cut off in its last record."""

    def script(request: ChatRequest) -> ChatReply | None:
        if task_of(request) == "extract-graph" and word in between(request, "text"):
            return ChatReply(extract(request).removesuffix(DONE)[:-30], "length")
        return None

    return script


def test_complete_records_of_cut_replies_are_kept_and_the_rest_is_a_dead_letter(bench: Bench, clean: Bench) -> None:
    cut = bench.build(TEXTS, cut_at("sea"))
    assert not cut.manifest.complete
    assert {"sea", "water"} <= {row["name"] for row in rows(cut, "entities")}
    whole = clean.build(TEXTS)
    assert len(rows(cut, "relations")) < len(rows(whole, "relations"))
    (letter,) = rows(cut, "rejects")
    assert letter["reason"] == "only its complete records were kept: the reply was cut off at the token limit"
    assert (letter["stage"], letter["attempts"]) == ("extract", 2)
    sea = next(row["chunk_id"] for row in rows(cut, "chunks") if "sea" in row["text"])
    assert letter["unit_id"] == sea

    add_drops(bench.store, [DroppedLetter("extract", sea, "me", "now", "short")])
    accepted = bench.build(TEXTS, cut_at("sea"), fresh=True)
    assert accepted.manifest.complete
    assert len(rows(accepted, "entities")) == len(rows(cut, "entities")), "what was kept stays"
    bench.store.delete(DROPS)
    healed = bench.build(TEXTS, retry=True)
    assert healed.manifest.snapshot_id == whole.manifest.snapshot_id


def refusing_summary(request: ChatRequest) -> str | None:
    return REFUSAL if task_of(request) == "summarise" and "wordaa" in members(request) else None


def drop(bench: Bench, *units: str, stage: str = "extract") -> None:
    add_drops(
        bench.store,
        (DroppedLetter(stage, unit, "me@here", "2026-01-01T00:00:00+00:00", "not worth it") for unit in units),
    )


def unit_of(snapshot: Any, text: str) -> str:
    return next(row["chunk_id"] for row in rows(snapshot, "chunks") if row["text"] == text)


class TestAgain:
    def test_only_the_dead_chunk_is_asked_and_the_snapshot_is_the_undisturbed_one(
        self, bench: Bench, clean: Bench
    ) -> None:
        first = bench.build(TEXTS, about("moon"), max_layers=0)
        again = bench.build(TEXTS, obedient, max_layers=0)
        assert bench.model.requests == [], "a plain build asks for none again"
        assert again.manifest.snapshot_id == first.manifest.snapshot_id
        healed = bench.build(TEXTS, obedient, retry=True, max_layers=0)
        assert [between(request, "text") for request in bench.asked("extract-graph")] == ["moon light"]
        assert healed.manifest.complete
        assert healed.manifest.snapshot_id == clean.build(TEXTS, max_layers=0).manifest.snapshot_id

    def test_each_retry_gives_as_many_new_attempts(self, bench: Bench) -> None:
        for tries in (2, 4, 6):
            bench.build(TEXTS, about("moon"), retry=tries > 2, max_layers=0)
            (folder,) = (e.folder for e in bench.events if isinstance(e, StageFinished) and e.label == "extract")
            (letter,) = stage_letters(bench.store, folder).to_pylist()
            assert letter["attempts"] == tries
            assert len([r for r in bench.asked("extract-graph") if "moon" in between(r, "text")]) == 2
        assert len(bench.asked("extract-graph")) == 2  # no other call was made

    def test_a_dead_summary_is_written_and_no_chunk_is_read_again(self, bench: Bench, clean: Bench) -> None:
        before = bench.build([LONG], refusing_summary, max_layers=1)
        assert "stand-in" in {row["origin"] for row in rows(before, "summaries")}
        healed = bench.build([LONG], obedient, retry=True, max_layers=1)
        assert bench.asked("extract-graph") == []
        assert all("wordaa" in members(request) for request in bench.asked("summarise"))
        assert {row["origin"] for row in rows(healed, "summaries")} == {"model"}
        whole = clean.build([LONG], max_layers=1)
        assert healed.manifest.snapshot_id == whole.manifest.snapshot_id
        n_summaries = len(clean.asked("summarise"))
        assert 0 < len(bench.asked("summarise")) < n_summaries

    def test_a_letter_whose_text_is_gone_closes_by_itself(self, bench: Bench, clean: Bench) -> None:
        assert not bench.build(TEXTS, about("moon"), max_layers=0).manifest.complete
        left = [TEXTS[0], TEXTS[2]]
        closed = bench.build(left, obedient, max_layers=0)
        assert rows(closed, "rejects") == []
        assert closed.manifest.complete
        assert bench.asked("extract-graph") == []

    def test_a_stage_that_failed_by_its_share_is_asked_again_by_a_retry_alone(self, bench: Bench, clean: Bench) -> None:
        keys: dict[str, Any] = {"max_layers": 0, "max_reject_ratio": 0}
        for _ in range(2):
            with pytest.raises(StageFailed, match=r"1 of 3 units.*`hirag-dist retry --index .* asks them again"):
                bench.run(TEXTS, about("moon"), **keys)
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
    def test_publishing_again_gives_the_snapshot_of_a_build(self, bench: Bench) -> None:
        before = bench.build(["moon dew", *TEXTS], about("moon"), max_layers=0)
        drop(bench, unit_of(before, "moon light"))
        again = republish(bench.store, before.manifest.snapshot_id, load_drops(bench.store))
        assert not again.complete
        assert [row["unit_id"] for row in rows(open_snapshot(bench.store, again.snapshot_id), "rejects")] == [
            unit_of(before, "moon dew")
        ]
        drop(bench, unit_of(before, "moon dew"))
        done = republish(bench.store, again.snapshot_id, load_drops(bench.store))
        assert done.complete
        built = bench.build(["moon dew", *TEXTS], obedient, max_layers=0)
        assert built.manifest.snapshot_id == done.snapshot_id
        assert built.entity_vectors.tolist() == before.entity_vectors.tolist()

    def test_a_retry_leaves_it_alone(self, bench: Bench) -> None:
        """Also where it shares a task with a letter that is asked again."""
        texts = ["moon dew", *TEXTS]
        before = bench.build(texts, about("moon"), max_layers=0)
        drop(bench, unit_of(before, "moon dew"))
        after = bench.build(texts, obedient, retry=True, max_layers=0)
        assert [between(request, "text") for request in bench.asked("extract-graph")] == ["moon light"]
        (gone,) = rows(after, "dropped")
        assert (gone["unit_id"], gone["attempts"]) == (unit_of(before, "moon dew"), 2)
        assert (gone["dropped_by"], gone["dropped_why"]) == ("me@here", "not worth it")
        assert (bench.result.rejects, bench.result.dropped) == (0, 1)
        assert after.manifest.complete
        assert "dew" not in {row["name"] for row in rows(after, "entities")}

    @pytest.mark.parametrize("task", ["extract-graph", "report"])
    def test_doing_everything_again_leaves_it_alone(self, bench: Bench, task: str) -> None:
        """A rejected request leaves no reply in the ledger: only the drop keeps it from being sent again."""
        seen: list[str] = []

        def rejecting(request: ChatRequest) -> str | None:
            if task_of(request) == task and (not seen or request.unit in seen):
                seen.append(request.unit)
                raise RequestRejected("the content filter was triggered")
            return None

        texts = [LONG, "moon light"]
        before = bench.build(texts, rejecting, max_layers=1)
        (letter,) = rows(before, "rejects")
        drop(bench, letter["unit_id"], stage=letter["stage"])
        fresh = bench.build(texts, obedient, fresh=True, max_layers=1)
        assert bench.model.requests == []
        (gone,) = rows(fresh, "dropped")
        assert {name: gone[name] for name in letter} == letter
        assert fresh.manifest.complete
