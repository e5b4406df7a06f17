"""The build on toy texts, with a model that is a function: every word is an entity, neighbours are related."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from hirag_dist.backends.cpu import CpuKernels
from hirag_dist.backends.hashing import HashingEmbedder
from hirag_dist.backends.scripted import ScriptedModel
from hirag_dist.config import Config
from hirag_dist.core.limits import Allowance
from hirag_dist.core.prompts import DONE, Prompts
from hirag_dist.core.tokens import counter, encoding
from hirag_dist.errors import InputError, StageFailed
from hirag_dist.execution.inline import InlineExecutor
from hirag_dist.execution.run import Run
from hirag_dist.index.reader import Snapshot, open_snapshot
from hirag_dist.index.store import Store
from hirag_dist.pipeline import Build, BuildResult
from hirag_dist.pool.budget import LocalBudget
from hirag_dist.pool.chat import Patience, Pool, PricedModel
from hirag_dist.pool.ledger import Ledger
from hirag_dist.stages.base import Services
from hirag_dist.types import ChatReply, ChatRequest
from hirag_dist.wiring import CHAT_ROLES, Resolved

Script = Callable[[ChatRequest], str | None]
LONG = " ".join(f"word{letter}{other}" for letter in "abcdef" for other in "abcdefgh")  # 48 entities


def task_of(request: ChatRequest) -> str:
    return request.messages[0].content.splitlines()[0].removeprefix("Task: ")


def between(request: ChatRequest, tag: str) -> str:
    found = re.search(rf"<{tag}>\n(.*?)\n</{tag}>", request.messages[1].content, re.DOTALL)
    assert found
    return found.group(1)


def extract(request: ChatRequest, related: bool = True) -> str:
    words = between(request, "text").split()
    lines = [f"entity<|>{word}<|>concept<|>{word} is a word." for word in words]
    if related:
        pairs = pairwise(words)
        lines += [f"relation<|>{a}<|>{b}<|>{a} stands before {b}.<|>3" for a, b in pairs if a != b]
    return "\n".join([*lines, DONE])


def members(request: ChatRequest) -> list[str]:
    return [line.split(". ", 1)[1].split(" (")[0] for line in between(request, "members").splitlines()]


def summarise(request: ChatRequest, covers: bool = True) -> str:
    names = members(request)
    title = f"those like {names[0]}"
    lines = [f"entity<|>{title}<|>concept<|>What {', '.join(names)} share."]
    if covers:
        lines += [f"relation<|>{at}<|>{title}<|>It is one of them.<|>5" for at in range(1, len(names) + 1)]
    return "\n".join([*lines, DONE])


def obey(request: ChatRequest) -> str:
    task = task_of(request)
    if task == "extract-graph":
        return extract(request)
    if task == "summarise":
        return summarise(request)
    if task == "describe":
        return "One description."
    assert task == "report"
    finding = {"summary": "They are words.", "explanation": "All of them.", "references": ["E1", "R99"]}
    return json.dumps({"title": "Words", "summary": "A row of words.", "rating": 4, "findings": [finding]})


@dataclass
class Bench:
    """Builds in a folder of its own."""

    folder: Path
    model: ScriptedModel | None = None

    def build(self, texts: list[str], script: Script = lambda request: None, **keys: Any) -> Snapshot:
        """Build an index of texts; where the script says nothing, the model obeys."""
        self.result = self.run(texts, script, **keys)
        return open_snapshot(Store(str(self.folder / "index")), self.result.manifest.snapshot_id, full_check=True)

    def run(self, texts: list[str], script: Script, **keys: Any) -> BuildResult:
        (self.folder / "corpus").mkdir(exist_ok=True)
        for at, text in enumerate(texts):
            (self.folder / "corpus" / f"{at}.txt").write_text(text)
        config = Config.model_validate(
            {
                "chunking": "none",
                "clustering": {"target_size": 4, "max_size": 8},
                "pack_units": 1,
                "max_reject_ratio": 1,
            }
            | keys
        )

        def reply(request: ChatRequest) -> ChatReply | str:
            said = script(request)
            return obey(request) if said is None else said

        self.model = model = ScriptedModel(reply)
        store = Store(str(self.folder / "index"))
        embedder = HashingEmbedder(32, 0)
        count = counter(config.tokenizer)

        def services() -> Services:
            roles = {role: [(PricedModel("endpoint", model), 1.0)] for role in CHAT_ROLES}
            budget = LocalBudget({"endpoint": Allowance(None, None, 8)})
            pool = Pool(roles, Ledger(store), budget, Patience(2, 0.0), count)
            return Services(pool, embedder, CpuKernels(), encoding(config.tokenizer), count)

        async def close(services: Services) -> None:
            await model.close()

        resolved = Resolved(
            structured=dict.fromkeys(CHAT_ROLES, False),
            models={role: (model.name,) for role in CHAT_ROLES},
            embedder=embedder.name,
            dim=embedder.dim,
            kernels="cpu",
        )
        executor = InlineExecutor(services, close)
        try:
            run = Run(store, executor, (), config.max_reject_ratio)
            return Build(config, Prompts(), resolved, run).index([str(self.folder / "corpus")])
        finally:
            executor.close()

    def asked(self, task: str) -> list[ChatRequest]:
        assert self.model
        return [request for request in self.model.requests if task_of(request) == task]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def rows(snapshot: Snapshot, name: str) -> list[dict[str, Any]]:
    return list(snapshot.table(name).to_pylist())


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


def test_the_same_texts_twice_are_one_document(bench: Bench) -> None:
    snapshot = bench.build(["sun moon stars", "sun moon stars", "sea"])
    assert sorted(row["uri"] for row in rows(snapshot, "documents")) == ["0.txt", "2.txt"]
    assert len(bench.asked("extract-graph")) == 2


def test_no_layers_where_none_are_wanted(bench: Bench) -> None:
    snapshot = bench.build([LONG], max_layers=0)
    assert [(row["layer"], row["decision"]) for row in rows(snapshot, "layers")] == [(0, "max_layers 0 reached")]
    assert {row["layer"] for row in rows(snapshot, "entities")} == {0}
    assert rows(snapshot, "clusters") == []
    assert not bench.asked("summarise")


def test_one_entity(bench: Bench) -> None:
    snapshot = bench.build(["alone"])
    assert [row["name"] for row in rows(snapshot, "entities")] == ["alone"]
    assert rows(snapshot, "relations") == []
    assert rows(snapshot, "layers")[0]["decision"] == "nothing left to group"
    assert [row["n_entities"] for row in rows(snapshot, "communities")] == [1]
    assert [row["origin"] for row in rows(snapshot, "reports")] == ["members"]
    assert snapshot.graph.n_nodes == 1


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
        return summarise(request, covers=members(request)[0] > "worda")

    def uncovering(request: ChatRequest) -> str | None:
        return summarise(request, covers=False) if task_of(request) == "summarise" else None

    snapshot = bench.build([LONG], uncovering)
    assert {row["layer"] for row in rows(snapshot, "entities")} == {0}
    assert {row["kind"] for row in rows(snapshot, "relations")} == {"extracted"}
    (layer,) = rows(snapshot, "layers")
    assert re.fullmatch(r"layer 1 was dropped: (\d+) of its \1 summaries cover no member", layer["decision"])
    kept = bench.build([LONG + " more"], some_uncovering)
    assert max(row["layer"] for row in rows(kept, "entities")) >= 1


def test_a_dead_summary_leaves_its_members_unattached_and_counted(bench: Bench) -> None:
    refused: set[str] = set()

    def one_refused(request: ChatRequest) -> str | None:
        if task_of(request) != "summarise" or "wordaa" not in members(request):
            return None
        refused.update(members(request))
        return "I'm sorry, but I cannot help with that."

    snapshot = bench.build([LONG], one_refused, max_layers=1)
    names = {row["entity_id"]: row["name"] for row in rows(snapshot, "entities")}
    attached = {names[row["source_id"]] for row in rows(snapshot, "relations") if row["kind"] == "summary"}
    everyone = {name for name in names.values() if name.startswith("word")}
    assert "wordaa" not in attached
    assert everyone - attached <= refused
    assert rows(snapshot, "layers")[0]["n_unattached"] == len(everyone - attached)
    dead = rows(snapshot, "rejects")
    assert {(row["stage"], row["attempts"]) for row in dead} == {("summarise", 2)}
    assert {row["unit_id"] for row in dead} <= {row["cluster_id"] for row in rows(snapshot, "clusters")}
    assert not snapshot.manifest.complete
    assert bench.result.rejects == len(dead)


def test_a_dead_report_is_absent(bench: Bench) -> None:
    def no_reports(request: ChatRequest) -> str | None:
        return "no JSON here" if task_of(request) == "report" else None

    snapshot = bench.build([LONG], no_reports, max_layers=0)
    dead = {row["unit_id"] for row in rows(snapshot, "rejects")}
    large = {row["community_id"] for row in rows(snapshot, "communities") if row["n_entities"] >= 4}
    assert dead == large
    assert not dead & {row["community_id"] for row in rows(snapshot, "reports")}
    assert not snapshot.manifest.complete


def test_a_dead_chunk_is_counted_and_the_rest_is_there(bench: Bench) -> None:
    def without_moon(request: ChatRequest) -> str | None:
        return "" if task_of(request) == "extract-graph" and "moon" in between(request, "text") else None

    snapshot = bench.build(["sun light", "moon light", "sea water"], without_moon, max_layers=0)
    assert {row["name"] for row in rows(snapshot, "entities")} == {"sun", "light", "sea", "water"}
    (dead,) = rows(snapshot, "rejects")
    chunk = next(row for row in rows(snapshot, "chunks") if row["text"] == "moon light")
    assert (dead["stage"], dead["unit_id"], dead["reason"]) == ("extract", chunk["chunk_id"], "the reply is empty")
    assert "moon light" in dead["request"]
    assert not snapshot.manifest.complete


def test_too_many_dead_letters_fail_with_the_first_reason(bench: Bench) -> None:
    with pytest.raises(StageFailed, match=r"extract: 3 of 3 units were refused.*0\.5.*the reply is empty"):
        bench.run(["sun", "moon", "sea"], lambda request: "", max_reject_ratio=0.5)


def test_no_entity_anywhere_is_a_failure_not_an_empty_index(bench: Bench) -> None:
    with pytest.raises(StageFailed, match="no entity was found"):
        bench.run(["sun", "moon"], lambda request: DONE)


def test_no_text_is_an_input_error(bench: Bench) -> None:
    with pytest.raises(InputError, match="no text"):
        bench.run(["  \n "], lambda request: None)


def test_a_malformed_reply_is_asked_for_again_with_the_reason(bench: Bench) -> None:
    def careless_once(request: ChatRequest) -> str | None:
        return "Here you go!" if task_of(request) == "extract-graph" and len(request.messages) == 2 else None

    snapshot = bench.build(["sun moon"], careless_once)
    first, second = bench.asked("extract-graph")
    assert "no record in the requested form" in second.messages[-1].content
    assert second.messages[:2] == first.messages
    assert snapshot.manifest.complete
    assert sum(row["rejected"] for row in rows(snapshot, "usage")) == 1


def test_the_papers_stop_rule(bench: Bench) -> None:
    snapshot = bench.build([LONG], stop="paper", min_change_rate=0.05)
    layers = rows(snapshot, "layers")
    sparsities = [layer["sparsity"] for layer in layers if layer["sparsity"] is not None]
    for before, layer in zip(sparsities, layers[1:], strict=False):
        if layer["sparsity"] is not None:
            low, high = (min(max(value, 0.0), 1.0) for value in (before, layer["sparsity"]))
            assert layer["change_rate"] == pytest.approx(abs(high - low) / max(low, 0.01))
            assert (layer["change_rate"] > 0.05) == (layer["decision"] == "go on")
    assert layers[-1]["decision"] != "go on"
    wide = bench.build([LONG], stop="paper", min_change_rate=100.0)
    decisions = [layer["decision"] for layer in rows(wide, "layers")]
    assert decisions == ["go on", "cluster sparsity changed by no more than 10000%"]


def test_summaries_with_the_name_of_a_member_are_joined_to_it(bench: Bench) -> None:
    def namesake(request: ChatRequest) -> str | None:
        if task_of(request) != "summarise":
            return None
        return summarise(request).replace(f"those like {members(request)[0]}", members(request)[0])

    snapshot = bench.build([LONG], namesake, max_layers=1)
    same = [row for row in rows(snapshot, "relations") if row["kind"] == "same_name"]
    layers = {row["entity_id"]: (row["layer"], row["name"]) for row in rows(snapshot, "entities")}
    assert same
    for row in same:
        ends = sorted((layers[row["source_id"]], layers[row["target_id"]]))
        assert [end[0] for end in ends] == [0, 1]
        assert ends[0][1] == ends[1][1]
        assert row["weight"] == 1.0


def test_findings_keep_only_references_that_exist(bench: Bench) -> None:
    snapshot = bench.build([LONG], max_layers=0)
    written = [row for row in rows(snapshot, "reports") if row["origin"] == "model"]
    assert written
    ids = {row["entity_id"] for row in rows(snapshot, "entities")}
    for report in written:
        assert report["n_dropped_references"] == 1  # R99
        assert set(report["findings"][0]["entity_ids"]) <= ids
        assert report["findings"][0]["relation_ids"] == []
