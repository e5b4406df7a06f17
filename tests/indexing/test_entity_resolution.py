"""Builds with entity resolution: what is merged, what is asked, what it costs, and that it can be taken back."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from hirag_dist.config.model import Config
from hirag_dist.core.prompts.templates import DONE
from hirag_dist.indexing.base import content_config, differences
from hirag_dist.retrieval.view.filtered_index import AccessControlledIndex
from hirag_dist.retrieval.view.index import MappedIndex
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.types import ChatRequest
from tests.indexing.test_updates import LAYER_0, LivingBench, check_base_layer, check_consistent
from tests.labelled_builds import build as labelled_build
from tests.labelled_builds import reply as listed
from tests.toy_builds import LAYER_0_ALONE, Bench, between, rows, task_of

ON = {"enabled": True}
WHO = frozenset({"WHO", "World Health Organization"})
MARLEY = frozenset({"Marley", "Jacob Marley"})
TEXTS = [
    "World Health Organization/organization: An agency.\nGeneva/location: A city.\n"
    "World Health Organization + Geneva: They meet. 3",
    "WHO/organization: The World Health Organization (WHO) gives advice.\nGeneva/location: On a lake.\n"
    "WHO + Geneva: They meet. 3",
    "Henry IV/person: A king.\nFrance/location: A country.\nHenry IV + France: They meet. 3",
    "Henry V/person: Another king.\nHenry IV/person: His father.\nHenry IV + Henry V: They meet. 3",
    "Marley/person: A partner.\nScrooge/person: A miser.\nMarley + Scrooge: They meet. 3",
    "Jacob Marley/person: Dead.\nScrooge/person: A man of business.\nJacob Marley + Scrooge: They meet. 3\n"
    "Jacob Marley + Marley: They meet. 3",
]


def reply(request: ChatRequest) -> str | None:
    return "answer<|>yes<|>one partner" if task_of(request) == "same-entity" else listed(request)


def build(bench: Bench, script: Any = reply, **keys: Any) -> Snapshot:
    return bench.build(TEXTS, script, **LAYER_0_ALONE, **keys)


def names(snapshot: Snapshot) -> set[str]:
    return {row["name"] for row in rows(snapshot, "entities")}


def test_several_names_become_one_entity(bench: Bench) -> None:
    snapshot = build(bench, resolution=ON)
    others = {"Geneva", "Henry IV", "Henry V", "France", "Scrooge"}
    assert others < names(snapshot)
    assert len(names(snapshot)) == len(others) + 2
    aliases = {frozenset((row["name"], row["canonical_name"])): row for row in rows(snapshot, "aliases")}
    who, marley = aliases.pop(WHO), aliases.pop(MARLEY)
    assert not aliases
    assert (who["tier"], marley["tier"]) == ("alias", "llm")
    assert marley["evidence"].endswith("one partner")
    entities = {row["entity_id"]: row for row in rows(snapshot, "entities")}
    merged = entities[who["entity_id"]]
    assert merged["n_mentions"] == 2
    assert "An agency." in merged["description"]
    assert "gives advice." in merged["description"]
    met = {
        frozenset((entities[row["source_id"]]["name"], entities[row["target_id"]]["name"])): row["weight"]
        for row in rows(snapshot, "relations")
    }
    assert met[frozenset({merged["name"], "Geneva"})] == 6.0, "strengths of both names are added up"
    assert all(len(ends) == 2 for ends in met), "no entity is related to itself"
    assert snapshot.entity_vectors.shape[0] == len(entities) == snapshot.graph.n_nodes
    assert snapshot.manifest.complete
    assert len(bench.asked("same-entity")) == 1


def test_an_entity_is_found_by_each_of_its_names(bench: Bench) -> None:
    snapshot = build(bench, resolution=ON)
    entities = {row["entity_id"]: at for at, row in enumerate(rows(snapshot, "entities"))}
    index = MappedIndex.open(snapshot)
    for alias in rows(snapshot, "aliases"):
        for name in (alias["name"], alias["canonical_name"]):
            assert index.named_entities(f"Where does {name} live?") == [entities[alias["entity_id"]]], name
    assert index.named_entities("What became of Jacob Marley?") == index.named_entities("Marley?"), (
        "the longest name counts"
    )
    files = [name for name in snapshot.manifest.files if "alias" in name]
    assert sorted(files) == ["aliases.parquet", "serving-2/alias_keys.npy", "serving-2/alias_rows.npy"]
    plain = build(bench)
    assert not [name for name in plain.manifest.files if "alias" in name]
    assert MappedIndex.open(plain).named_entities("WHO, Marley?") == [
        at for name in ("WHO", "Marley") for at, row in enumerate(rows(plain, "entities")) if row["name"] == name
    ]


def test_a_name_that_a_hidden_text_alone_uses_is_no_name_for_others(bench: Bench) -> None:
    documents = [(text, ["secret"] if "WHO/" in text else []) for text in TEXTS]
    snapshot = labelled_build(bench, documents, reply, resolution=ON, **LAYER_0_ALONE)
    whole = MappedIndex.open(snapshot)
    views = AccessControlledIndex(whole, snapshot)
    (found,) = whole.named_entities("What is the WHO?")
    outsider, insider = views.view_for(frozenset()), views.view_for(frozenset(["secret"]))
    assert outsider.named_entities("What is the WHO?") == []
    assert insider.named_entities("What is the WHO?") == [found]
    assert outsider.named_entities("Who is Jacob Marley? And who Marley?") == whole.named_entities(
        "Jacob Marley, Marley"
    )


def test_off_it_leaves_no_trace_and_on_again_nothing_is_asked_twice(bench: Bench) -> None:
    off = build(bench)
    assert "aliases" not in off.manifest.counts
    assert "aliases" not in off.manifest.content
    assert rows(off, "aliases") == []
    on = build(bench, resolution=ON)
    assert on.manifest.snapshot_id != off.manifest.snapshot_id
    assert {row["stage"]: row["calls"] for row in rows(on, "usage")}["resolve"] == 1
    assert not bench.asked("extract-graph")
    again = build(bench, resolution={"enabled": False})
    assert again.manifest.snapshot_id == off.manifest.snapshot_id
    assert not bench.model or not bench.model.requests
    assert build(bench, resolution=ON).manifest.snapshot_id == on.manifest.snapshot_id
    assert not bench.model.requests


def test_a_refused_question_keeps_the_pair_apart_as_a_dead_letter_that_retry_asks_again(bench: Bench) -> None:
    def mute(request: ChatRequest) -> str | None:
        return "Perhaps." if task_of(request) == "same-entity" else reply(request)

    snapshot = build(bench, mute, resolution=ON)
    assert names(snapshot) >= MARLEY
    (letter,) = rows(snapshot, "rejects")
    assert (letter["stage"], letter["attempts"]) == ("resolve", 2)
    assert "yes" in letter["reason"] or "answer" in letter["reason"]
    healed = build(bench, reply, resolution=ON, retry=True)
    assert not names(healed) >= MARLEY
    assert healed.manifest.complete


LIVING: dict[str, Any] = {"resolution": ON, "claims": True, "max_layers": 0}
MORE = [
    "Anna Marley/person: A singer.\nGeneva/location: A city.\nAnna Marley + Geneva: They meet. 3",
    "The WHO/organization: An agency.\nWomen Helping Others/organization: A charity.\n"
    "The WHO + Women Helping Others: They meet. 3",
    "Mr. Scrooge/person: A miser.\nHenry V/person: A king of a play.\nMr. Scrooge + Henry V: They meet. 3",
]


def claiming(request: ChatRequest) -> str | None:
    """Answer as `reply`, with a claim about the first name of each text; one question is never answered."""
    if task_of(request) == "extract-claims":
        first, *_ = between(request, "entities").splitlines()
        return f"claim<|>{first}<|>{first}<|>rule<|>TRUE<|>NONE<|>NONE<|>It rules.<|>{first}\n{DONE}"
    if task_of(request) == "same-entity" and "Helping" in request.messages[1].content:
        return "Perhaps."
    return reply(request)


def test_layer_0_after_updates_equals_a_fresh_builds(tmp_path: Path) -> None:
    living, rng = LivingBench(tmp_path), random.Random(3)
    texts = {f"{at}.txt": text for at, text in enumerate([*TEXTS, *MORE])}
    now = dict(list(texts.items())[:5])
    living.index(now, script=claiming, **LIVING)
    seen = set()
    for _ in range(2):
        for name in rng.sample(sorted(texts), 3):
            if now.pop(name, None) is None:
                now[name] = texts[name]
        updated = living.index(now, script=claiming, **LIVING)
        check_consistent(updated)
        fresh = living.fresh(now, script=claiming, **LIVING)
        check_base_layer(updated, fresh, (*LAYER_0, "aliases", "claims"))
        letters = [sorted(row["unit_id"] for row in rows(snapshot, "rejects")) for snapshot in (updated, fresh)]
        assert letters[0] == letters[1]
        seen.update(row["name_key"] for row in rows(updated, "aliases"))
    assert living.result.update is not None
    assert len(seen) > 1, "now one name is the entity's, now the other"


def test_decisions_hold_in_updates_and_when_all_is_built_again(tmp_path: Path) -> None:
    living, file = LivingBench(tmp_path), tmp_path / "aliases.csv"
    texts = {f"{at}.txt": text for at, text in enumerate(TEXTS)}
    keys: dict[str, Any] = {"script": reply, "resolution": ON | {"aliases": str(file)}} | LAYER_0_ALONE
    file.write_text("name,other,same\nHenry IV,Scrooge,yes\nWHO,World Health Organization,no\n")
    living.index({name: texts[name] for name in ("0.txt", "4.txt")}, **keys)
    updated = living.index(texts, **keys)
    assert living.result.update is not None
    joined = {frozenset((row["name"], row["canonical_name"])) for row in rows(updated, "aliases")}
    assert joined == {frozenset({"Henry IV", "Scrooge"}), MARLEY}
    assert {(row["tier"], row["score"]) for row in rows(updated, "aliases") if row["tier"] != "llm"} == {("user", 1.0)}
    assert names(updated) >= WHO, "against the rules"
    living.bench.base_id = None
    check_base_layer(updated, living.index(texts, **keys), (*LAYER_0, "aliases"))
    living.bench.base_id = ""
    file.write_text("name,other,same\nHenry IV,Scrooge,yes\nJacob Marley,Marley,no\n")
    without = living.index(texts, **keys)
    assert names(without) >= MARLEY, "against the model"
    assert {"WHO", "Henry IV"} <= {
        name for row in rows(without, "aliases") for name in (row["name"], row["canonical_name"])
    }
    assert not living.bench.asked("extract-graph"), "another decision costs no extraction"


def test_an_index_whose_names_other_rules_joined_is_built_again() -> None:
    now = {"kernels": "cpu", "config": content_config(Config.model_validate({"resolution": ON}))}
    before = now | {"config": now["config"] | {"resolution": now["config"]["resolution"] | {"rules": 3}}}
    assert differences(now, now) == []
    (reason,) = differences(before, now)
    assert reason.startswith("config.resolution.rules: 3")
