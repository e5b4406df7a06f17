"""Builds and updates by each method of extraction, and claims: what is asked, what is kept, what stays as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from hirag_dist.core.prompts.templates import DONE
from hirag_dist.core.text.ids import entity_id
from hirag_dist.errors import StageFailed
from hirag_dist.storage.layout import CLAIMS
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.types import ChatRequest
from tests.indexing.test_updates import CLAIMING, PAID, LivingBench, check_base_layer, corpus
from tests.toy_builds import LAYER_0_ALONE, Bench, between, claim, extract, rows, task_of

PEOPLE = ("Ada Lovelace", "Alan Turing", "Grace Hopper", "Mary Somerville", "John Herschel", "Emmy Noether")
PLACES = ("London", "Cambridge", "Göttingen", "Princeton")
BY = {method: LAYER_0_ALONE | {"extraction": {"method": method}} for method in ("llm", "nlp")}
CLAIMS_ALONE = LAYER_0_ALONE | CLAIMING
CALLS = ("extract-graph", "extract-entities", "extract-relations")


def prose(number: int) -> str:
    one, other = PEOPLE[number % 6], PEOPLE[(number * 2 + 1) % 6]
    place = PLACES[number % 4]
    return f"The machine of {one} was built in {place}. It was in {place} that {other} met {one} in 18{number:02}."


def documents(n: int) -> dict[str, str]:
    return {f"{at:02}.txt": prose(at) for at in range(n)}


def asked(living: LivingBench) -> int:
    return len(living.bench.asked("extract-graph"))


def read_by(snapshot: Snapshot) -> set[str]:
    """Return the stages that extracted chunks."""
    return set(snapshot.table("extraction_costs")["stage"].to_pylist())


def test_nlp_extracts_without_a_call_and_updates_to_what_a_fresh_build_gives(living: LivingBench) -> None:
    first = living.index(documents(6), **BY["nlp"])
    assert not asked(living)
    assert read_by(first) == {"extract_nlp"}
    names = {row["entity_id"]: row for row in first.table("entities").to_pylist()}
    ada = names[entity_id(0, "ada lovelace")]
    assert (ada["name"], ada["type"], ada["described"]) == ("Ada Lovelace", "person", True)
    assert "Ada Lovelace" in ada["description"]
    changed = documents(8) | {"01.txt": prose(11)}
    updated = living.index(changed, **BY["nlp"])
    assert living.result.update is not None, "it was updated, not built from nothing"
    assert not asked(living)
    check_base_layer(updated, living.fresh(changed, **BY["nlp"]))


def test_nlp_reads_a_chunk_again_whose_claims_were_refused(living: LivingBench) -> None:
    def no_claims(request: ChatRequest) -> str | None:
        return "I would rather not." if task_of(request) == "extract-claims" else None

    keys: dict[str, Any] = BY["nlp"] | CLAIMING | {"script": no_claims}
    living.index(documents(2), **keys)
    updated = living.index(documents(3), **keys)
    assert len(updated.table("rejects")) == 3
    assert read_by(updated) == {"extract_nlp"}
    assert not asked(living), "the model is not paid for what nlp extracts"
    check_base_layer(updated, living.fresh(documents(3), **keys))


def test_another_method_extracts_again(living: LivingBench) -> None:
    by_llm = living.index(documents(4), **BY["llm"])
    assert asked(living) == 4
    by_nlp = living.index(documents(4), **BY["nlp"])
    assert "extraction" in living.result.rebuilt_because
    assert by_nlp.manifest.snapshot_id != by_llm.manifest.snapshot_id
    again = living.index(documents(4), **BY["llm"])
    assert again.manifest.snapshot_id == by_llm.manifest.snapshot_id
    assert not asked(living), "stored replies are found again"


def test_a_text_without_names_says_what_else_to_try(living: LivingBench) -> None:
    with pytest.raises(StageFailed, match=r"extraction\.method: nlp"):
        living.index({"a.txt": "1 2 3"}, **BY["nlp"])


def script(request: ChatRequest) -> str | None:
    """Reply to the tasks that the bench's own model does not know."""
    kind = {"extract-entities": "entity", "extract-relations": "relation"}.get(task_of(request))
    if kind is None:
        return claim(request)
    return "\n".join(line for line in extract(request).splitlines() if line.startswith((kind, DONE)))


def test_two_calls_a_chunk_give_the_graph_of_one(bench: Bench, tmp_path: Path) -> None:
    other = Bench(tmp_path / "other")
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
KEYS = [CLAIMS_ALONE | {"gleaning_rounds": 1}, LAYER_0_ALONE | {"extraction": "two_step"}]


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


WORDS = ["alpha beta gamma", "beta delta epsilon"]


def texts_of(snapshot: Snapshot) -> dict[str, str]:
    return {row["chunk_id"]: row["text"] for row in rows(snapshot, "chunks")}


def test_claims_are_about_the_entities_of_their_chunk(bench: Bench) -> None:
    snapshot = bench.build(WORDS, claim, llm=PAID, **CLAIMS_ALONE)
    found = {(texts_of(snapshot)[row["chunk_id"]], row["subject"]): row for row in rows(snapshot, CLAIMS)}
    assert len(found) == 4
    first = {"subject_id": entity_id(0, "alpha"), "object_id": entity_id(0, "beta"), "type": "order", "status": "true"}
    assert found[WORDS[0], "alpha"].items() >= (first | {"start_date": "", "source_text": "alpha beta"}).items()
    nobody = [(found[text, "Nobody"]["subject_id"], found[text, "Nobody"]["object_id"]) for text in WORDS]
    assert nobody == [(None, entity_id(0, "alpha")), (None, None)], "alpha is not in the second chunk"
    shown = {between(request, "entities") for request in bench.asked("extract-claims")}
    assert shown == {"alpha\nbeta\ngamma", "beta\ndelta\nepsilon"}


def test_by_default_none_are_asked_for_and_the_snapshot_is_as_before(bench: Bench) -> None:
    snapshot = bench.build(WORDS, claim, **LAYER_0_ALONE)
    assert bench.asked("extract-claims") == []
    assert CLAIMS not in snapshot.manifest.counts
    assert "claims" not in snapshot.manifest.build["config"]


def test_a_refused_reply_is_a_dead_letter_that_is_asked_again(bench: Bench) -> None:
    def refuse(request: ChatRequest) -> str | None:
        broken = task_of(request) == "extract-claims" and "delta" in request.messages[1].content
        return "I would rather not." if broken else claim(request)

    snapshot = bench.build(WORDS, refuse, llm=PAID, **CLAIMS_ALONE)
    (letter,) = rows(snapshot, "rejects")
    assert (letter["stage"], texts_of(snapshot)[letter["unit_id"]]) == ("claims", WORDS[1])
    assert len(rows(snapshot, CLAIMS)) == 2
    after = bench.build(WORDS, claim, llm=PAID, **CLAIMS_ALONE, retry=True)
    assert after.manifest.complete
    assert len(rows(after, CLAIMS)) == 4
    assert [between(request, "text") for request in bench.asked("extract-claims")] == [WORDS[1]]
