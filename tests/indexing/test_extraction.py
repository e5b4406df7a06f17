"""Builds and updates by each method of extraction: what is asked, what is kept, and what stays as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from hirag_dist.core.prompts.templates import DONE
from hirag_dist.core.text.ids import entity_id
from hirag_dist.errors import StageFailed
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.types import ChatRequest
from tests.indexing.stages.test_claims import claim
from tests.indexing.test_updates import CLAIMING, LivingBench, corpus
from tests.toy_builds import LAYER_0_ALONE, Bench, between, extract, rows, task_of

PEOPLE = ("Ada Lovelace", "Alan Turing", "Grace Hopper", "Mary Somerville", "John Herschel", "Emmy Noether")
PLACES = ("London", "Cambridge", "Göttingen", "Princeton")
BY = {method: LAYER_0_ALONE | {"extraction": {"method": method}} for method in ("llm", "nlp")}
CALLS = ("extract-graph", "extract-entities", "extract-relations")
TABLES = ("chunks", "mentions", "relation_mentions", "extraction_costs", "entities", "relations")


def prose(number: int) -> str:
    one, other = PEOPLE[number % 6], PEOPLE[(number * 2 + 1) % 6]
    place = PLACES[number % 4]
    return f"The machine of {one} was built in {place}. It was in {place} that {other} met {one} in 18{number:02}."


def documents(n: int) -> dict[str, str]:
    return {f"{at:02}.txt": prose(at) for at in range(n)}


def asked(living: LivingBench) -> set[str]:
    return {between(request, "text") for request in living.bench.asked("extract-graph")}


def read_by(snapshot: Snapshot) -> dict[str, str]:
    """Return text of a chunk → the stage that extracted it."""
    texts = {row["chunk_id"]: row["text"] for row in snapshot.table("chunks").to_pylist()}
    return {texts[row["chunk_id"]]: row["stage"] for row in snapshot.table("extraction_costs").to_pylist()}


def layer_0(snapshot: Snapshot) -> dict[str, Any]:
    found = {name: snapshot.table(name).to_pylist() for name in TABLES}
    found["entities"] = [row for row in found["entities"] if row["layer"] == 0]
    found["relations"] = [row for row in found["relations"] if row["kind"] == "extracted"]
    return found


def test_nlp_extracts_without_a_call_and_updates_to_what_a_fresh_build_gives(living: LivingBench) -> None:
    first = living.index(documents(6), **BY["nlp"])
    assert not asked(living)
    assert set(read_by(first).values()) == {"extract_nlp"}
    names = {row["entity_id"]: row for row in first.table("entities").to_pylist()}
    ada = names[entity_id(0, "ada lovelace")]
    assert (ada["name"], ada["type"], ada["described"]) == ("Ada Lovelace", "person", True)
    assert "Ada Lovelace" in ada["description"]
    changed = documents(8) | {"01.txt": prose(11)}
    updated = living.index(changed, **BY["nlp"])
    assert living.result.update is not None, "it was updated, not built from nothing"
    assert not asked(living)
    fresh = living.fresh(changed, **BY["nlp"])
    assert layer_0(updated) == layer_0(fresh)


def test_nlp_reads_a_chunk_again_whose_claims_were_refused(living: LivingBench) -> None:
    def no_claims(request: ChatRequest) -> str | None:
        return "I would rather not." if task_of(request) == "extract-claims" else None

    keys: dict[str, Any] = BY["nlp"] | {"claims": True, "script": no_claims}
    living.index(documents(2), **keys)
    updated = living.index(documents(3), **keys)
    assert len(updated.table("rejects")) == 3
    assert set(read_by(updated).values()) == {"extract_nlp"}
    assert not asked(living), "the model is not paid for what nlp extracts"
    assert layer_0(updated) == layer_0(living.fresh(documents(3), **keys))


def test_another_method_extracts_again(living: LivingBench) -> None:
    by_llm = living.index(documents(4), **BY["llm"])
    assert len(asked(living)) == 4
    by_nlp = living.index(documents(4), **BY["nlp"])
    assert "extraction" in living.result.rebuilt_because
    assert by_nlp.manifest.snapshot_id != by_llm.manifest.snapshot_id
    again = living.index(documents(4), **BY["llm"])
    assert again.manifest.snapshot_id == by_llm.manifest.snapshot_id
    assert not asked(living), "stored replies are found again"


def test_a_text_without_names_says_what_else_to_try(living: LivingBench) -> None:
    with pytest.raises(StageFailed, match=r"extraction\.method: nlp"):
        living.index({"a.txt": "1 2 3"}, **BY["nlp"])


def test_two_calls_a_chunk_give_the_graph_of_one(bench: Bench, tmp_path: Path) -> None:
    def script(request: ChatRequest) -> str | None:
        kind = {"extract-entities": "entity", "extract-relations": "relation"}.get(task_of(request))
        return kind and "\n".join(line for line in extract(request).splitlines() if line.startswith((kind, DONE)))

    other = Bench(tmp_path / "other")
    other.folder.mkdir()
    texts = ["sun moon light", "moon sea"]
    joint = bench.build(texts, **LAYER_0_ALONE)
    in_steps = other.build(texts, script, extraction="two_step", **LAYER_0_ALONE)
    assert [len(bench.asked(task)) for task in CALLS] == [2, 0, 0]
    assert [len(other.asked(task)) for task in CALLS] == [0, 2, 2]
    for name in ("entities", "relations"):
        assert rows(in_steps, name) == rows(joint, name)


def test_a_gleaning_round_finds_what_was_missed_and_there_is_none_by_default(bench: Bench) -> None:
    def script(request: ChatRequest) -> str | None:
        word = "moon" if request.round else "sun"
        return f"entity<|>{word}<|>concept<|>A word.\n{DONE}" if task_of(request) == "extract-graph" else None

    for rounds, names in (({}, {"sun"}), ({"gleaning_rounds": 1}, {"sun", "moon"})):
        snapshot = bench.build(["sun moon"], script, **LAYER_0_ALONE, **rounds)
        assert {row["name"] for row in rows(snapshot, "entities")} == names


LONG_WORDS = " ".join(f"{'rather' * 9}{at}" for at in range(9))  # more characters a token than the others


def script(request: ChatRequest) -> str | None:
    """Reply to the tasks that the bench's own model does not know."""
    task = task_of(request)
    if task in ("extract-entities", "extract-relations"):
        kind = "entity" if task == "extract-entities" else "relation"
        return "\n".join(line for line in extract(request).splitlines() if line.startswith((kind, DONE)))
    return claim(request)


KEYS = [LAYER_0_ALONE | CLAIMING | {"gleaning_rounds": 1}, LAYER_0_ALONE | {"extraction": "two_step"}]


def used_by_extraction(snapshot: Snapshot) -> int:
    """Return the tokens of the stages that extract."""
    usage = snapshot.table("usage")
    usage = usage.filter(pc.is_in(usage["stage"], value_set=pa.array(["extract", "claims"])))
    return int(pc.sum(pc.add(usage["input_tokens"], usage["output_tokens"])).as_py() or 0)


@pytest.mark.parametrize("keys", KEYS)
def test_a_removal_counts_what_the_extraction_of_its_documents_has_cost(
    living: LivingBench, keys: dict[str, Any]
) -> None:
    texts = corpus(3) | {"long.txt": LONG_WORDS}
    first = living.index(texts, script=script, **keys)
    costs = first.table("extraction_costs")
    assert set(costs["chunk_id"].to_pylist()) == set(first.table("chunks")["chunk_id"].to_pylist())
    assert pc.sum(costs["tokens"]).as_py() == used_by_extraction(first) > 0
    own = used_by_extraction(living.fresh({"long.txt": LONG_WORDS}, script=script, **keys))
    after = living.remove(sources=("long.txt",), script=script, **keys)
    update = living.result.update
    assert update.extraction_tokens == own
    assert update.budget_tokens == 3 * own
    assert pc.sum(after.table("extraction_costs")["tokens"]).as_py() == used_by_extraction(first) - own


def test_the_costs_are_no_part_of_the_id(living: LivingBench) -> None:
    counted = living.index(corpus(3), **LAYER_0_ALONE)
    bench = LivingBench(living.folder / "other")
    bench.bench.counts_tokens = False
    bench.bench.base_id = None
    other = bench.index(corpus(3), **LAYER_0_ALONE)
    assert other.manifest.snapshot_id == counted.manifest.snapshot_id
    assert other.table("extraction_costs") != counted.table("extraction_costs")
