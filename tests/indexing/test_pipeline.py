"""The build on toy texts, with a model that is a function: every word is an entity, neighbours are related."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hirag_dist.application.build import run_build
from hirag_dist.config.model import Config
from hirag_dist.core.prompts.templates import DONE
from hirag_dist.errors import InputError, StageFailed, StoreError
from hirag_dist.execution.events import StageFailedEvent
from hirag_dist.execution.runner import MIN_REJECTS
from hirag_dist.indexing import hierarchy
from hirag_dist.storage.snapshot.reader import Snapshot, open_snapshot
from hirag_dist.storage.store import Store
from hirag_dist.types import ChatRequest
from tests.toy_builds import LAYER_0_ALONE, LONG, Bench, extract, members, rows, summarise, task_of


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no such device here")
def test_a_full_temporary_folder_loses_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = bench.build([LONG], **LAYER_0_ALONE).manifest
    bench.store.delete("snapshots")
    with monkeypatch.context() as patched:
        for name in ("_SMALL_BYTES", "_MEMORY_BYTES"):
            patched.setattr(f"hirag_dist.storage.spill.{name}", 0)
        patched.setattr("hirag_dist.storage.spill._Buffer._flush", lambda *_: Path("/dev/full").write_bytes(b"x"))
        with pytest.raises(StoreError, match="the disk is full; let TMPDIR name a folder"):
            bench.build([LONG], **LAYER_0_ALONE)
        assert bench.store.names("snapshots") == []
    again = bench.build([LONG], **LAYER_0_ALONE)
    assert bench.model.requests == []
    assert again.manifest.content == whole.content


def test_layers_of_a_chain_of_words(bench: Bench) -> None:
    snapshot = bench.build([LONG])
    layers = rows(snapshot, "layers")
    assert len(layers) > 1
    assert layers[0]["n_entities"] == 48
    assert [layer["decision"] for layer in layers[:-1]] == ["go on"] * (len(layers) - 1)
    entities = {row["entity_id"]: row for row in rows(snapshot, "entities")}
    for above, below in zip(layers[1:], layers, strict=False):
        assert above["n_entities"] == below["n_summaries"] < below["n_entities"]
    reached = {row["source_id"] for row in rows(snapshot, "relations") if row["kind"] == "summary"}
    lower = {own for own, row in entities.items() if row["layer"] < len(layers) - 1}
    assert reached == lower  # every entity below the top belongs to a summary
    assert {row["entity_id"] for row in rows(snapshot, "clusters")} == lower
    assert snapshot.manifest.complete


def test_descriptions_past_their_limit_of_tokens_are_summarised_and_others_are_kept(bench: Bench) -> None:
    def script(request: ChatRequest) -> str | None:
        if task_of(request) != "extract-graph":
            return None
        long = [f"entity<|>sun<|>concept<|>The sun is {'very ' * n}bright." for n in range(12)]
        return "\n".join([*long, *2 * ["entity<|>moon<|>concept<|>It is pale."], DONE])

    snapshot = bench.build(["sun moon"], script, description_tokens=20, **LAYER_0_ALONE)
    found = {row["name"]: row["description"] for row in rows(snapshot, "entities")}
    assert found == {"sun": "One description.", "moon": "It is pale."}
    assert len(bench.asked("describe")) == 1
    other = bench.build(["sun moon"], script, description_tokens=400, **LAYER_0_ALONE)
    assert bench.asked("describe") == []
    found = {row["name"]: row["description"] for row in rows(other, "entities")}
    assert all(f"The sun is {'very ' * n}bright." in found["sun"] for n in range(12))


@pytest.mark.parametrize("max_layers", [0, 3])
def test_no_relation_at_all(bench: Bench, max_layers: int) -> None:
    def unrelated(request: ChatRequest) -> str | None:
        return extract(request, related=False) if task_of(request) == "extract-graph" else None

    snapshot = bench.build([LONG], unrelated, max_layers=max_layers)
    kinds = {row["kind"] for row in rows(snapshot, "relations")}
    assert kinds == ({"summary"} if max_layers else set())
    covered = [own for row in rows(snapshot, "communities") if row["level"] == 0 for own in row["entity_ids"]]
    assert sorted(covered) == sorted(row["entity_id"] for row in rows(snapshot, "entities"))
    if not max_layers:
        assert len(rows(snapshot, "communities")) == 48


def test_a_layer_whose_summaries_cover_nobody_is_dropped(bench: Bench) -> None:
    def some_uncovering(request: ChatRequest) -> str | None:
        if task_of(request) != "summarise":
            return None
        return summarise(request, covers="termaa" not in members(request))

    def uncovering(request: ChatRequest) -> str | None:
        return summarise(request, covers=False) if task_of(request) == "summarise" else None

    snapshot = bench.build([LONG], uncovering)
    assert {row["layer"] for row in rows(snapshot, "entities")} == {0}
    assert {row["kind"] for row in rows(snapshot, "relations")} == {"extracted"}
    (layer,) = rows(snapshot, "layers")
    assert re.fullmatch(r"layer 1 was dropped: (\d+) of its \1 summaries cover no member", layer["decision"])
    kept = bench.build([LONG.replace("word", "term")], some_uncovering)  # replies about words are in the ledger
    assert max(row["layer"] for row in rows(kept, "entities")) >= 1


def test_a_dead_report_is_written_by_rules(bench: Bench) -> None:
    def no_reports(request: ChatRequest) -> str | None:
        return "no JSON here" if task_of(request) == "report" else None

    snapshot = bench.build([LONG], no_reports, max_layers=0)
    dead = {row["unit_id"] for row in rows(snapshot, "rejects")}
    large = {row["community_id"] for row in rows(snapshot, "communities") if row["n_entities"] >= 4}
    assert dead == large
    assert dead == {row["community_id"] for row in rows(snapshot, "reports") if row["origin"] == "stand-in"}
    assert not snapshot.manifest.complete


@pytest.mark.parametrize("n_texts", [1, 3])
def test_a_stage_whose_units_are_all_refused_says_why_and_what_to_change(bench: Bench, n_texts: int) -> None:
    said = "Sure, here is what you asked for: " + 400 * "x"
    with pytest.raises(StageFailed) as failure:
        bench.run(["sun", "moon", "sea"][:n_texts], lambda request: said, max_reject_ratio=0.2)
    message = str(failure.value)
    assert f"extract: refused {n_texts} of {n_texts} unit" in message
    assert f"the reason of {n_texts}: the reply holds no record in the requested form" in message
    assert f"begins: '{said[:300]}…'" in message
    assert "llm.endpoints.endpoint.model" in message
    with pytest.raises(StageFailed, match="Nothing was asked now: an earlier run stored them"):
        bench.run(["sun", "moon", "sea"][:n_texts], lambda request: said, max_reject_ratio=0.2)
    assert isinstance(bench.events[-1], StageFailedEvent)  # its record does not say that it still runs


def test_a_last_layer_whose_summaries_are_all_refused_is_written_by_rules(bench: Bench) -> None:
    """Of few clusters: the build goes on, and the letters can be asked again."""
    text = " ".join(LONG.split()[:33])
    whole = bench.build([text])
    top = max(row["layer"] for row in rows(whole, "layers"))
    n_top = sum(row["layer"] == top for row in rows(whole, "entities"))
    assert n_top < MIN_REJECTS
    upper = {row["name"] for row in rows(whole, "entities") if row["layer"] == top - 1}

    def script(request: ChatRequest) -> str | None:
        return "" if task_of(request) == "summarise" and set(members(request)) <= upper else None

    other = Bench(bench.folder / "other")
    snapshot = other.build([text], script, max_reject_ratio=0.2)
    assert {row["origin"] for row in rows(snapshot, "summaries") if row["layer"] == top - 1} == {"stand-in"}
    assert not snapshot.manifest.complete
    assert {row["stage"].split(".")[0] for row in rows(snapshot, "rejects")} == {"summarise"}
    healed = other.build([text], retry=True, max_reject_ratio=0.2)
    assert healed.manifest.snapshot_id == whole.manifest.snapshot_id


def test_no_entity_anywhere_is_a_failure_not_an_empty_index(bench: Bench) -> None:
    with pytest.raises(StageFailed, match="no entity was found"):
        bench.run(["sun", "moon"], lambda request: DONE)


def test_the_papers_stop_rule(bench: Bench) -> None:
    below, last = rows(bench.build([LONG], stop="paper", min_change_rate=100.0), "layers")
    low, high = (min(max(layer["sparsity"], 0.0), 1.0) for layer in (below, last))
    assert last["change_rate"] == pytest.approx(abs(high - low) / max(low, 0.01))
    assert below["decision"] == "go on"
    assert last["decision"] == "cluster sparsity changed by no more than 10000%"


def test_meta_types_that_a_model_proposes_guide_the_summaries(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads the chunks of the lowest ids."""

    def proposing(request: ChatRequest) -> str | None:
        return "- Syllable\n2. word\n* sound.\nword" if task_of(request) == "meta-types" else None

    monkeypatch.setattr(hierarchy, "N_EXCERPTS", 2)
    snapshot = bench.build([LONG, "sun moon", "sea water"], proposing, meta_types="generate", max_layers=1)
    (asked,) = bench.asked("meta-types")
    texts = {row["chunk_id"]: row["text"] for row in rows(snapshot, "chunks")}
    first, second, third = (asked.messages[1].content.find(texts[own]) for own in sorted(texts))
    assert -1 == third < first < second
    assert all("one of these types: syllable, word, sound." in r.messages[0].content for r in bench.asked("summarise"))


def test_meta_types_without_a_list_are_a_dead_letter(bench: Bench) -> None:
    def chatting(request: ChatRequest) -> str | None:
        said = "These documents are about several things that courts do, and about law."
        return said if task_of(request) == "meta-types" else None

    snapshot = bench.build([LONG], chatting, meta_types="generate", max_layers=1)
    assert [row["unit_id"] for row in rows(snapshot, "rejects")] == ["meta types"]
    usual = f"one of these types: {', '.join(hierarchy.META_TYPES)}."
    assert all(usual in request.messages[0].content for request in bench.asked("summarise"))


class TestReading:
    """INPUT of which next to nothing can be read is refused: the index would not be what was asked for."""

    def records(self, bench: Bench, **files: str) -> list[str]:
        folder = bench.folder / "records"
        folder.mkdir()
        for name, text in files.items():
            (folder / name.replace("_", ".")).write_text(text)
        return [str(folder)]

    def test_a_text_field_that_no_record_has(self, bench: Bench) -> None:
        inputs = self.records(bench, a_jsonl='{"id": 1, "body": "sun"}\n{"id": 2, "body": "moon"}\n', b_md="sea water")
        with pytest.raises(InputError, match=r"'nope': a\.jsonl, record 1 has no field 'nope'; there is: id, body"):
            bench.run_on(inputs, reading={"text_field": "nope"})

    def test_nothing_but_dead_letters(self, bench: Bench) -> None:
        inputs = self.records(bench, a_json="{", b_pdf="no PDF")
        with pytest.raises(
            InputError, match=r"2 files, none of which could be read; the first, a\.json: not valid JSON"
        ):
            bench.run_on(inputs)


FILES = sorted((Path(__file__).parents[2] / "hirag_dist" / "samples" / "corpus").glob("newton-*"))[:3]


def built(folder: Path, **keys: Any) -> Snapshot:
    config = Config.model_validate({"execution": {"executor": "inline"}} | keys)
    result = run_build([str(path) for path in FILES], str(folder), config)
    assert result.dead_letters == 0
    return open_snapshot(Store(str(folder)), result.manifest.snapshot_id)


def calls(snapshot: Snapshot) -> Counter[str]:
    found: Counter[str] = Counter()
    for row in snapshot.table("usage").to_pylist():
        found[row["stage"].split()[0]] += row["calls"]
        assert row["rejected"] == 0
    return found


def test_packed_and_unpacked_builds_give_the_same_snapshot(tmp_path: Path) -> None:
    packed = built(tmp_path / "packed")
    alone = built(tmp_path / "alone", pack_tokens=0)
    assert packed.manifest.snapshot_id == alone.manifest.snapshot_id
    n_written = sum(row["origin"] == "model" for row in alone.table("reports").to_pylist())
    assert calls(alone)["reports"] == n_written
    assert calls(packed)["reports"] < 0.7 * n_written
    assert calls(packed)["summarise"] < 0.7 * calls(alone)["summarise"]
