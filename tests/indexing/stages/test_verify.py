"""Method verify in whole builds: what is asked, what is kept, and what becomes of refused replies."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from hirag_dist.core.prompts.templates import DONE
from hirag_dist.types import ChatRequest
from tests.indexing.test_extraction import LAYER_0, LivingBench, documents, layer_0, prose, read_by
from tests.toy_builds import task_of

KEYS: dict[str, Any] = LAYER_0 | {"extraction": {"method": "verify"}}
SEVERAL: dict[str, Any] = KEYS | {"pack_units": 4}
_UNIT = re.compile(r"<unit-(\d+)>\n(.*?)\n</unit-\1>", re.DOTALL)


def units(request: ChatRequest) -> dict[int, dict[int, str]]:
    """Return unit → number → candidate; one unit 0 for a request about one chunk."""
    body = request.messages[1].content
    parts = {int(number): part for number, part in _UNIT.findall(body)} or {0: body}
    listed = {
        number: re.search(r"<candidates>\n(.*?)\n</candidates>", part, re.DOTALL) for number, part in parts.items()
    }
    return {
        number: {int(at): name for at, name in re.findall(r"^(\d+)\. (.+)$", found[1], re.MULTILINE)}
        for number, found in listed.items()
        if found
    }


def keeps_people(request: ChatRequest) -> str | None:
    """Keep names of two words, call each a scholar, and strike no pair."""
    if not task_of(request).startswith("verify-graph"):
        return None
    lines = []
    for unit, names in units(request).items():
        lines += [f"unit|{unit}"] if unit else []
        lines += [f"{at}|scholar|{name} met others." for at, name in names.items() if " " in name]
    return "\n".join([*lines, DONE])


@pytest.fixture
def living(tmp_path: Path) -> LivingBench:
    return LivingBench(tmp_path)


def asked(living: LivingBench) -> list[ChatRequest]:
    assert living.bench.model
    return [request for request in living.bench.model.requests if task_of(request).startswith("verify-graph")]


def test_the_model_keeps_types_and_describes(living: LivingBench) -> None:
    snapshot = living.index(documents(6), script=keeps_people, **KEYS)
    assert len(asked(living)) == 6
    assert not living.bench.asked("extract-graph")
    found = {row["name"]: row for row in layer_0(snapshot)["entities"]}
    assert found
    assert all(" " in name for name in found)
    assert found["Ada Lovelace"]["type"] == "scholar"
    assert found["Ada Lovelace"]["description"] == "Ada Lovelace met others."
    ids = {row["entity_id"] for row in found.values()}
    relations = layer_0(snapshot)["relations"]
    assert relations
    assert all(row["source_id"] in ids and row["target_id"] in ids and row["description"] for row in relations)
    costs = snapshot.table("extraction_costs").to_pylist()
    assert {row["stage"] for row in costs} == {"verify"}
    assert all(row["tokens"] > 0 for row in costs)


def test_the_model_sees_the_sentences_about_the_candidates(living: LivingBench, tmp_path: Path) -> None:
    text = f"Nothing of note was said that day. {prose(1)}\n\nIt rained. It rained again."
    living.index({"a.txt": text}, script=keeps_people, **KEYS)
    (request,) = asked(living)
    assert "Nothing of note" not in request.messages[1].content
    assert "rained" not in request.messages[1].content
    assert all(name in request.messages[1].content for name in units(request)[0].values())
    whole = LivingBench(tmp_path / "whole")
    extraction = {"method": "verify", "verify": {"text": "whole"}}
    whole.index({"a.txt": text}, script=keeps_people, **(KEYS | {"extraction": extraction}))
    (request,) = asked(whole)
    assert text in request.messages[1].content


def test_chunks_share_calls_with_the_same_result(living: LivingBench, tmp_path: Path) -> None:
    alone = living.index(documents(6), script=keeps_people, **KEYS)
    together = LivingBench(tmp_path / "together")
    shared = together.index(documents(6), script=keeps_people, **SEVERAL)
    assert len(asked(together)) == 2
    assert [len(units(request)) for request in asked(together)] == [4, 2]
    assert layer_0(shared) == layer_0(alone)


def test_an_update_asks_about_new_chunks_alone(living: LivingBench) -> None:
    living.index(documents(5), script=keeps_people, **KEYS)
    changed = documents(6) | {"00.txt": prose(9)}
    updated = living.index(changed, script=keeps_people, **KEYS)
    assert living.result.update is not None
    assert len(asked(living)) == 2
    fresh = living.fresh(changed, script=keeps_people, **KEYS)
    assert layer_0(updated) == layer_0(fresh)


def test_a_refused_chunk_is_a_dead_letter_and_is_asked_again(living: LivingBench) -> None:
    def refuses(request: ChatRequest) -> str | None:
        bad = task_of(request).startswith("verify-graph") and "1803" in request.messages[1].content
        return "No lists today." if bad else keeps_people(request)

    living.bench.base_id = None  # as `hirag-dist retry` builds
    snapshot = living.index(documents(5), script=refuses, **KEYS)
    (letter,) = snapshot.table("rejects").to_pylist()
    texts = {row["chunk_id"]: row["text"] for row in snapshot.table("chunks").to_pylist()}
    assert (letter["stage"], texts[letter["unit_id"]]) == ("verify", prose(3))
    assert "keeps no candidate" in letter["reason"]
    again = living.index(documents(5), script=keeps_people, retry=True, **KEYS)
    assert len(asked(living)) == 1
    assert not again.table("rejects").num_rows
    assert set(read_by(again).values()) == {"verify"}


def test_one_bad_unit_of_a_pack_is_asked_again_alone(living: LivingBench) -> None:
    def forgets(request: ChatRequest) -> str | None:
        said = keeps_people(request)
        if said is None or "unit|2" not in said:
            return said
        return re.sub(r"unit\|2\n.*?(?=unit\|3)", "", said, flags=re.DOTALL)

    snapshot = living.index(documents(4), script=forgets, **SEVERAL)
    assert [len(units(request)) for request in asked(living)] == [4, 1]
    assert not snapshot.table("rejects").num_rows
