"""Results of updates, which take most from their base, against the same computed for all."""

from __future__ import annotations

import asyncio
import random
import zlib
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from hirag_dist.core.entities.summaries import merge_summary_links, merge_summary_mentions, names_of, relate_equal_names
from hirag_dist.core.graph.csr import build_graph, rows_of
from hirag_dist.core.key_sets import chunk_text_sets
from hirag_dist.core.prompts.templates import DONE
from hirag_dist.core.reports.selection import report_outlines
from hirag_dist.execution.stage import Services
from hirag_dist.indexing import communities as communities_module
from hirag_dist.indexing.communities import DESCRIPTION_CHARS, GraphTables, report_material, stacked_sets
from hirag_dist.indexing.stages.memberships import NAMED_LINKS, described, grouped
from hirag_dist.indexing.stages.summarise import LinkMembers
from hirag_dist.indexing.summary_entities import SUMMARY_CHARS, sources_above
from hirag_dist.indexing.written import as_summaries, changed_share, member_inputs, written_inputs
from hirag_dist.schemas import CLUSTERS, ENTITIES, RELATIONS, SUMMARIES
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.types import ChatRequest
from tests.indexing.test_updates import TOPICS, LivingBench, check_consistent, corpus, text
from tests.toy_builds import members, task_of

NO_SERVICES = cast(Services, None)


def untidy(request: ChatRequest) -> str | None:
    """Summarise with names that several clusters share, members left out, and some replies that are refused."""
    content = request.messages[1].content
    if task_of(request) != "summarise" or "<members>" not in content:
        return None
    names, code = members(request), zlib.crc32(content.encode())
    if code % 11 == 0:
        return "no idea"
    titles = [names[0] if code % 3 == 0 else f"group {names[0][:3]}{code % 5}", f"those like {names[-1]}"]
    titles = titles[: 1 + code % 2]
    lines = [f"entity<|>{title}<|>concept<|>What {', '.join(names)} share." for title in titles]
    for at in range(1, len(names) + 1):
        if (code >> at) % 4:
            title = titles[(code >> at) % len(titles)]
            lines.append(f"relation<|>{at}<|>{title}<|>It is one.<|>{1 + (code >> at) % 9}")
    return "\n".join([*lines, DONE])


def changed(now: dict[str, str], step: int, rng: random.Random) -> None:
    """Add, remove or edit some of the texts."""
    action = rng.choice(["add", "remove", "edit", "all"])
    if action in ("add", "all"):
        now[f"new{step}.txt"] = text(rng.choice(TOPICS), 100 + step, 20)
    if action in ("remove", "all"):
        for chosen in rng.sample(sorted(now), 3):
            del now[chosen]
    if action in ("edit", "all"):
        chosen = rng.choice(sorted(now))
        now[chosen] = f"{now[chosen]} {text(rng.choice(TOPICS), 200 + step, 3)} group sun1"


@pytest.fixture(scope="module")
def updated(tmp_path_factory: pytest.TempPathFactory) -> list[Snapshot]:
    """Return the snapshots after an update that writes all and one that leaves debt."""
    living = LivingBench(tmp_path_factory.mktemp("living"))
    rng, now = random.Random(0), corpus(16)
    living.index(now, script=untidy)
    found = []
    for step, update in enumerate([{"max_ratio": 1000, "staleness": 0}, {"max_ratio": 1}]):
        changed(now, step, rng)
        found.append(living.index(now, script=untidy, update=update))
    assert found[-1].manifest.notes["update"]["number"] == 2
    assert living.result.update.debt_tokens
    return found


def layer_of(snapshot: Snapshot, name: str, number: int, schema: pa.Schema) -> pa.Table:
    table = snapshot.table(name).cast(schema)
    return table.filter(pc.equal(table["layer"], number)).combine_chunks()


def relations_of(snapshot: Snapshot, kind: str) -> pa.Table:
    table = snapshot.table("relations").cast(RELATIONS)
    return table.filter(pc.equal(table["kind"], kind)).combine_chunks()


def members_of(snapshot: Snapshot, number: int) -> pa.Table:
    links = layer_of(snapshot, "clusters", number, CLUSTERS).select(NAMED_LINKS.names)
    return grouped(described(links, layer_of(snapshot, "entities", number, ENTITIES), DESCRIPTION_CHARS), number)[1]


def n_clustered(snapshot: Snapshot) -> int:
    return sum(row["n_summaries"] > 0 for row in snapshot.table("layers").to_pylist())


def test_summary_entities_and_relations_are_those_of_all_clusters(updated: list[Snapshot]) -> None:
    for snapshot in updated:
        check_consistent(snapshot)
        layers = snapshot.table("layers").to_pylist()
        relations = []
        for number in range(n_clustered(snapshot)):
            state, own = layer_of(snapshot, "summaries", number, SUMMARIES), members_of(snapshot, number)
            replies = as_summaries(state, own, layer_of(snapshot, "entities", number, ENTITIES)["entity_id"])
            found = asyncio.run(LinkMembers().run({"members": own, "summaries": replies}, NO_SERVICES))
            above, _ = merge_summary_mentions(found["mentions"], number + 1, SUMMARY_CHARS)
            assert above.equals(layer_of(snapshot, "entities", number + 1, ENTITIES))
            links, n_unattached = merge_summary_links(found["links"], number + 1)
            relations.append(links)
            assert layers[number]["n_unattached"] == n_unattached
            assert layers[number]["n_attached"] == found["stats"]["n_attached"][0].as_py()
        merged = pa.concat_tables(relations).sort_by("relation_id").combine_chunks()
        assert merged.equals(relations_of(snapshot, "summary"))


def test_equal_names_are_those_of_all_layers(updated: list[Snapshot]) -> None:
    assert any(relations_of(snapshot, "same_name").num_rows for snapshot in updated)
    for snapshot in updated:
        related = relate_equal_names(names_of(snapshot.table("entities"))).combine_chunks()
        assert related.equals(relations_of(snapshot, "same_name"))


def test_shares_of_summaries_are_those_of_all_members(updated: list[Snapshot]) -> None:
    for snapshot in updated:
        for number in range(n_clustered(snapshot)):
            state, own = layer_of(snapshot, "summaries", number, SUMMARIES), members_of(snapshot, number)
            ids = layer_of(snapshot, "entities", number, ENTITIES)["entity_id"]
            at = rows_of(state["cluster_id"], own["cluster_id"])
            share = changed_share(written_inputs(state["inputs"], ids), member_inputs(own, ids).take(at))
            share[pc.equal(state["origin"], "stand-in").to_numpy()] = 1.0
            np.testing.assert_array_equal(state["stale_share"].to_numpy(), share)


def test_shares_of_reports_are_those_of_all_material(updated: list[Snapshot], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(communities_module, "_BLOCK_ROWS", 7)
    for snapshot in updated:
        entities, relations = snapshot.table("entities").cast(ENTITIES), snapshot.table("relations").cast(RELATIONS)
        communities, state = snapshot.table("communities"), snapshot.table("report_inputs")
        graph = build_graph(entities["entity_id"], relations)
        np.testing.assert_array_equal(graph.indices, snapshot.graph.indices)
        np.testing.assert_array_equal(graph.relation_rows, snapshot.graph.relation_rows)
        outlines = report_outlines(communities, entities["entity_id"], relations, np.diff(graph.indptr), 8000 // 6, 256)
        sources = [chunk_text_sets(layer_of(snapshot, "entities", 0, ENTITIES)["chunk_ids"])]
        for number in range(n_clustered(snapshot)):
            above = layer_of(snapshot, "entities", number + 1, ENTITIES)
            sources.append(sources_above(layer_of(snapshot, "summaries", number, SUMMARIES), above, number + 1))
        whole = GraphTables(entities.combine_chunks(), relations.combine_chunks(), snapshot.table("claims"))
        material = report_material(whole, stacked_sets(sources), communities, outlines)
        at = rows_of(state["community_id"], material.rows["community_id"])
        written = written_inputs(state["inputs"], pa.chunked_array([material.ids]))
        share = changed_share(written, material.inputs.take(at))
        reports = snapshot.table("reports")
        origins = reports["origin"].take(pa.array(rows_of(state["community_id"], reports["community_id"])))
        share[pc.equal(origins, "stand-in").to_numpy()] = 1.0
        np.testing.assert_array_equal(state["stale_share"].to_numpy(), share)
