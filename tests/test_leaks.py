"""Hidden documents leave no trace: not in names, texts, scores, counts, paths, weights or reports."""

from __future__ import annotations

import json
import random
from collections.abc import Awaitable, Callable
from dataclasses import asdict, replace
from functools import cache
from itertools import pairwise
from typing import Any

import pytest

from hirag_dist.core.retrieval.context import UNKNOWN_ANSWER
from hirag_dist.errors import NotFound
from hirag_dist.retrieval.engine import QueryEngine
from hirag_dist.retrieval.map_reduce import MAP_REDUCE
from hirag_dist.retrieval.search import MODES
from hirag_dist.storage.layout import LABEL_TABLES
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.types import AccessScope, Answer, DocumentPart, EntityDetails, MapWork, Query, Retrieval, SourceItem
from tests.leaky_builds import (
    HIDDEN,
    NOBODY,
    QUESTIONS,
    Documents,
    Indexes,
    all_text,
    corpus,
    engine_of,
    public,
    topics,
)
from tests.toy_builds import rows


@cache
def hidden_ids(snapshot: Snapshot) -> frozenset[str]:
    """Return the ids of all rows that are hidden without labels."""
    secret = {row["document_id"] for row in rows(snapshot, "documents") if row["labels"]}
    chunks = {row["chunk_id"] for row in rows(snapshot, "chunks") if row["document_id"] in secret}
    gone = {
        row["entity_id"] for row in rows(snapshot, "entities") if not row["layer"] and set(row["chunk_ids"]) <= chunks
    }
    mixed = {row["entity_id"] for row in rows(snapshot, "entity_mentions")}
    reports = {row["community_id"] for row in rows(snapshot, "communities") if set(row["entity_ids"]) & (gone | mixed)}
    relations = {
        row["relation_id"]
        for row in rows(snapshot, "relations")
        if row["kind"] == "extracted" and set(row["chunk_ids"]) <= chunks
    }
    return frozenset(secret | chunks | gone | reports | relations)


HOLDER = frozenset({"secret", "other"})
Ask = Callable[[Query], Awaitable[Any]]


async def check_no_trace(ask: Ask, asked: Query, snapshot: Snapshot) -> Any:
    """Return what somebody without labels finds, which is not changed by what a holder of all of them finds between."""
    found = await ask(replace(asked, reach=NOBODY))
    text = all_text(found)
    assert HIDDEN not in text
    assert not [own for own in hidden_ids(snapshot) if own in text]
    everything = await ask(asked)
    assert HIDDEN in all_text(everything), "else there was nothing to leak"
    assert untimed(await ask(replace(asked, reach=HOLDER))) == untimed(everything)
    assert untimed(await ask(replace(asked, reach=NOBODY))) == untimed(found), "whoever asked in between"
    return found


def untimed(found: Any) -> Any:
    if isinstance(found, Answer):
        return replace(found, retrieval=untimed(found.retrieval))
    return replace(found, timings_ms={})


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("question", [QUESTIONS[0], *QUESTIONS[3:]])
async def test_no_trace_in_any_mode(made: Indexes, mode: str, question: str) -> None:
    engine, asked = made(corpus(1)), Query(question, mode, top_n=40)
    found = await check_no_trace(engine.retrieve, asked, made.snapshot(corpus(1)))
    assert found.context_refs
    assert HIDDEN not in all_text(await engine.answer(replace(asked, reach=NOBODY)))


async def test_no_trace_in_what_comes_in_steps(made: Indexes) -> None:
    engine = made(corpus(1))
    levels = []
    async for level, found in engine.retrieve_stream(Query(QUESTIONS[0], reach=NOBODY)):
        assert HIDDEN not in all_text(found)
        levels.append(level)
    assert levels == ["local", "global", "bridge", "done"]


async def check_same(engine: QueryEngine, other: QueryEngine, mode: str, **less: Any) -> None:
    """Check that without labels an index shows what an index without the hidden documents shows, less some fields."""
    for question in QUESTIONS:
        found = await engine.retrieve(Query(question, mode, top_n=30, reach=NOBODY))
        wanted = await other.retrieve(Query(question, mode, top_n=30))
        assert wanted.context_refs, "else there was nothing to compare"
        if mode == "graphrag-local":
            assert wanted.triples
        same(replace(found, **less), replace(wanted, **less))


@pytest.mark.parametrize("mode", ["local", "flat", "naive", "graphrag-local"])
async def test_without_communities_a_reply_is_that_of_an_index_without_the_hidden_documents(
    made: Indexes, mode: str
) -> None:
    """Communities are excluded: they are those of the whole graph, so reports and the context with them differ."""
    engine, other = made(corpus(1), max_layers=0), made(public(corpus(1)), max_layers=0)
    none = {"communities": (), "context": "", "context_tokens": 0, "context_refs": {}}
    await check_same(engine, other, mode, **(none if mode == "graphrag-local" else {}))


@pytest.mark.parametrize("mode", MODES)
async def test_hidden_documents_of_other_things_change_nothing_at_all(made: Indexes, mode: str) -> None:
    await check_same(made(topics(1), max_layers=0), made(public(topics(1)), max_layers=0), mode)


def same(found: Retrieval, wanted: Retrieval) -> None:
    """Equal but for times, the snapshot's id, and the last bits of sums."""
    assert found.context == wanted.context
    assert found.context_tokens == wanted.context_tokens
    assert found.context_refs == wanted.context_refs
    assert not any(place.kind == "record" for source in found.sources for place in source.places)
    wanted = replace(wanted, sources=without_record_numbers(wanted.sources))
    for part in ("local", "communities", "key_entities", "paths", "triples", "sources"):
        for one, other in zip(getattr(found, part), getattr(wanted, part), strict=True):
            item, expected = asdict(one), asdict(other)
            assert item.pop("score", None) == pytest.approx(expected.pop("score", None), abs=1e-5)
            assert item == expected


def without_record_numbers(sources: tuple[SourceItem, ...]) -> tuple[SourceItem, ...]:
    """Leave out what a caller with labels does not get: the number of a record counts the hidden ones before it."""
    return tuple(
        replace(source, places=tuple(place for place in source.places if place.kind != "record")) for source in sources
    )


async def test_a_wish_for_labels_is_an_index_of_the_documents_that_carry_them(made: Indexes) -> None:
    documents = corpus(1)
    engine = made(documents, max_layers=0)
    other = made([document for document in documents if document[1]], max_layers=0)
    for question in QUESTIONS:
        found = await engine.retrieve(Query(question, "flat", labels=("secret",)))
        same(found, await other.retrieve(Query(question, "flat")))
        nothing = await engine.retrieve(Query(question, labels=("secret",), reach=NOBODY))
        assert not nothing.context_refs
        nothing = await other.retrieve(Query(question, labels=("secret", "other")))
        assert not nothing.context_refs


@pytest.mark.parametrize("mode", MODES)
async def test_a_wish_where_there_are_no_labels_finds_nothing(made: Indexes, mode: str) -> None:
    engine = made(public(corpus(1)), max_layers=0)
    found = await engine.retrieve(Query("wordaa", mode, labels=("secret",)))
    assert (found.local, found.sources, found.context_refs) == ((), (), {})
    everything = await engine.retrieve(Query("wordaa", mode, reach=NOBODY))
    assert everything.context_refs, "a document without labels is in reach of everybody"


async def test_bridges_are_of_what_the_documents_in_reach_say(made: Indexes) -> None:
    engine, snapshot = made(corpus(1)), made.snapshot(corpus(1))
    said: dict[frozenset[str], list[tuple[str, str, float]]] = {}  # in (chunk) order, strongest first
    chunks = {row["chunk_id"]: row for row in rows(snapshot, "chunks")}
    labels = {row["document_id"]: row["labels"] for row in rows(snapshot, "documents")}
    for own in sorted(chunks):
        if labels[chunks[own]["document_id"]]:
            continue
        words = chunks[own]["text"].split()
        for a, b in pairwise(words):
            strength = 1.0 + len(set(a + b)) % 5
            said.setdefault(frozenset((a, b)), []).append((own, f"{a} stands before {b}, says {words[0]}.", strength))
    n_mixed = n_paths = 0
    stated = {row["relation_id"] for row in rows(snapshot, "statements")}
    for question in QUESTIONS:
        found = await engine.retrieve(Query(question, "bridge", top_n=40, reach=NOBODY))
        for triple in found.triples:
            if triple.kind != "extracted":
                continue
            told = said[frozenset((triple.source_name, triple.target_name))]
            assert triple.weight == sum(strength for *_, strength in told)
            assert triple.description == " ".join(dict.fromkeys(text for _, text, _ in told))
            n_mixed += triple.relation_id in stated
        for path in found.paths:
            for a, b in pairwise(path.entity_names):
                if not any("those like" in name for name in (a, b)):
                    assert frozenset((a, b)) in said
                    n_paths += 1
    assert n_mixed
    assert n_paths


async def test_a_report_is_there_for_those_who_may_see_all_that_it_was_written_from(made: Indexes) -> None:
    documents = with_public_topics()
    engine = made(documents)
    snapshot = made.snapshot(documents)
    hidden = hidden_ids(snapshot)
    asked = [*QUESTIONS, "termaa", "termbb", "termcc"]
    seen = [await engine.retrieve(Query(question, "global", top_c=100, reach=NOBODY)) for question in asked]
    every = [await engine.retrieve(Query(question, "global", top_c=100)) for question in asked]
    found, there = ({item.community_id for each in all_ for item in each.communities} for all_ in (seen, every))
    assert found
    assert found < there
    assert not found & hidden
    assert there & hidden


def with_public_topics() -> Documents:
    """So that there are communities of which everything may be seen."""
    return [*corpus(1), *((text.replace("word", "term"), labels) for text, labels in topics(1) if not labels)]


@pytest.mark.parametrize(
    ("mode", "level"), [("text-map-reduce", None), *(("graphrag-global", at) for at in ("0", "1", "leaf", "all"))]
)
@pytest.mark.parametrize("question", [QUESTIONS[3], "termaa"])
async def test_no_trace_in_answers_from_all_of_the_corpus(
    made: Indexes, mode: str, level: str | None, question: str
) -> None:
    documents = with_public_topics()
    engine, asked = made(documents), Query(question, mode, community_level=level)
    material = await engine.material(replace(asked, context_tokens=500, reach=NOBODY))
    assert len(material.parts) > 1
    assert not [part for part in material.parts if HIDDEN in part.context]
    answer = await check_no_trace(engine.answer, asked, made.snapshot(documents))
    assert answer.citations


async def test_the_corpus_is_read_as_if_the_hidden_documents_were_not_there(made: Indexes) -> None:
    """Order, numbers and parts, none of which is to tell that something was left out."""
    engine, other = made(corpus(1), max_layers=0), made(public(corpus(1)), max_layers=0)
    found = await engine.answer(Query("wordaa", "text-map-reduce", context_tokens=200, reach=NOBODY))
    wanted = await other.answer(Query("wordaa", "text-map-reduce", context_tokens=200))
    assert found.text == wanted.text
    assert found.retrieval.map_work == wanted.retrieval.map_work
    same(found.retrieval, wanted.retrieval)


@pytest.mark.parametrize("mode", MAP_REDUCE)
async def test_nothing_in_reach_is_nothing_read(made: Indexes, mode: str) -> None:
    engine = made([(text, ["secret"]) for text, _ in corpus(1)[:3]], max_layers=0)
    answer = await engine.answer(Query("wordaa", mode, reach=NOBODY))
    assert (answer.text, answer.citations) == (UNKNOWN_ANSWER, ())
    assert answer.retrieval.map_work == MapWork(0, 0, 0)


async def test_what_is_seen_in_part_is_told_by_the_documents_in_reach(made: Indexes) -> None:
    """Against indexes of these documents alone; documents carry up to two of three labels."""
    choose = random.Random(1)
    words = [f"word{first}{second}" for first in "abc" for second in "abcdefgh"]
    documents = [
        (" ".join(choose.sample(words, 6)), sorted(choose.sample(["x", "y", "z"], choose.randrange(3))))
        for _ in range(18)
    ]
    engine = made(documents, max_layers=0)
    for reach in (NOBODY, frozenset("xz")):
        other = made([document for document in documents if reach.issuperset(document[1])], max_layers=0)
        asked = Query("wordaa wordbc", "flat", top_n=100, reach=reach)
        found, wanted = await engine.retrieve(asked), await other.retrieve(replace(asked, reach=None))
        assert {replace(item, score=None) for item in found.local} == {
            replace(item, score=None) for item in wanted.local
        }
        if not reach:
            same(found, wanted)


async def test_what_cannot_be_told_apart_is_seen_whole_or_not_at_all(made: Indexes) -> None:
    """An index that an older version published, or another tool extracted, has no mentions."""
    snapshot = made.snapshot(corpus(1))
    files: dict[str, Any] = {
        name: entry
        for name, entry in snapshot.manifest.files.items()
        if not name.startswith("serving") and name.removesuffix(".parquet") not in LABEL_TABLES
    }
    engine = engine_of(Snapshot(snapshot.store, snapshot.manifest.model_copy(update={"files": files})))
    mixed = {row["entity_id"] for row in rows(snapshot, "entity_mentions")}
    for question in QUESTIONS:
        found = await engine.retrieve(Query(question, top_n=40, reach=NOBODY))
        assert HIDDEN not in all_text(found)
        assert found.local
        assert not mixed & {item.entity_id for item in found.local}
        assert all(item.layer == 0 for item in found.local), "nobody knows what a summary was made from"
        holder = await engine.retrieve(Query(question, "local", top_n=100, reach=frozenset({"secret"})))
        assert holder.local
        assert all(item.layer == 0 for item in holder.local), "nor does who holds every label"
    everything = await engine.retrieve(Query(QUESTIONS[-1], "local", top_n=100))
    assert any(item.layer for item in everything.local)


async def test_holding_any_label_is_enough_where_the_rule_says_so(made: Indexes) -> None:
    documents = [(text, [*labels, "staff"] if labels else []) for text, labels in corpus(1)[:6]]
    strict, loose = (made(documents, access_rule=rule, max_layers=0) for rule in ("all", "any"))
    asked = Query(documents[0][0].split()[0], "flat", reach=frozenset({"staff"}))
    assert HIDDEN not in all_text(await strict.retrieve(asked))
    assert untimed(await loose.retrieve(asked)) == untimed(await loose.retrieve(replace(asked, reach=None)))
    assert HIDDEN not in all_text(await loose.retrieve(replace(asked, reach=NOBODY)))


async def test_what_an_index_is_said_to_hold(made: Indexes) -> None:
    documents = corpus(1)
    engine, other = made(documents, max_layers=0), made(public(documents), max_layers=0)
    whole, seen, wanted = engine.describe(None), engine.describe(NOBODY), other.describe(None)
    assert replace(whole, main_entities=(), example_titles=()) == engine.info
    assert (seen.main_entities, seen.example_titles) == (wanted.main_entities, wanted.example_titles)
    assert (len(seen.main_entities), len(seen.example_titles)) == (6, 12)
    for table in ("documents", "chunks", "entities", "relations"):
        assert seen.counts[table] == wanted.counts[table] < whole.counts[table]
    assert set(seen.counts) == {"documents", "chunks", "entities", "relations", "communities", "reports"}
    assert seen.layers == ({"layer": 0, "n_entities": wanted.counts["entities"]},)
    assert sum(seen.communities_by_level.values()) == seen.counts["communities"] < whole.counts["communities"]
    assert HIDDEN not in json.dumps(asdict(seen))
    assert engine.describe(frozenset({"secret"})) == whole
    hidden = made([(text, ["secret"]) for text, _ in documents[:3]], max_layers=0)
    nothing = hidden.describe(NOBODY)
    assert set(nothing.counts.values()) == {0}
    assert (nothing.layers, nothing.communities_by_level) == ((), {})
    assert not (await hidden.retrieve(Query("wordaa", reach=NOBODY))).context_refs


async def look_ups(engine: QueryEngine, names: list[str], scope: AccessScope) -> dict[str, Any]:
    """Everything that look-ups show of some entities, and of all that these lead to."""
    found: dict[str, Any] = {}
    for name in names:
        try:
            found[name] = await engine.get_entity(name, max_relations=1000, max_sources=1000, scope=scope)
        except NotFound as error:
            found[name] = str(error).replace(name, "")
            continue
        communities = {f"community {item.community_id}": item.community_id for item in found[name].communities}
        for key in communities.keys() - found.keys():
            found[key] = await engine.get_community(communities[key], max_members=1000, scope=scope)
        documents = {f"document {source.document_id}": source.chunk_id for source in found[name].sources}
        for key in documents.keys() - found.keys():
            found[key] = await engine.get_document(documents[key], scope=scope)
        found[f"path from {name}"] = await engine.find_path(name, "wordaa", scope=scope)
    return found


def entity_names(snapshot: Snapshot) -> list[str]:
    return [row["name"] for row in rows(snapshot, "entities")]


async def test_no_trace_in_look_ups(made: Indexes) -> None:
    engine, snapshot = made(corpus(1)), made.snapshot(corpus(1))
    scope = AccessScope(reach=NOBODY)
    names = entity_names(snapshot)[::3]
    found = {name: str(value) for name, value in (await look_ups(engine, names, scope)).items()}
    text = "".join(value for name, value in found.items() if HIDDEN not in name)
    refused = {value for name, value in found.items() if HIDDEN in name}
    assert HIDDEN not in text.casefold()
    assert not [own for own in hidden_ids(snapshot) if own in text]
    assert refused, "else there was nothing to leak"
    assert not [value for value in refused if HIDDEN in value]
    partial = {row["entity_id"] for row in rows(snapshot, "entity_mentions")}
    for call in (engine.get_entity, engine.get_community, engine.get_document):
        with pytest.raises(NotFound) as absent:
            await call("0" * 24, scope=scope)
        for own in sorted(hidden_ids(snapshot) - (partial if call == engine.get_entity else set()))[::4]:
            with pytest.raises(NotFound) as hidden:
                await call(own, scope=scope)
            assert str(hidden.value).replace(own, "0" * 24) == str(absent.value)
    everything = await look_ups(engine, names, AccessScope())
    assert HIDDEN in str(everything.values())
    holder = await look_ups(engine, names, AccessScope(reach=HOLDER))
    assert holder == everything


async def test_look_ups_are_those_of_an_index_without_the_hidden_documents(made: Indexes) -> None:
    """Communities are excluded: they are those of the whole graph."""
    documents = corpus(1)
    engine, other = made(documents, max_layers=0), made(public(documents), max_layers=0)
    names = entity_names(made.snapshot(documents, max_layers=0))
    found = await look_ups(engine, names, AccessScope(reach=NOBODY))
    wanted = await look_ups(other, names, AccessScope())
    assert len([one for one in wanted.values() if isinstance(one, EntityDetails)]) > 20
    for name, one in wanted.items():
        if isinstance(one, EntityDetails):
            assert replace(found[name], communities=()) == replace(
                one, communities=(), sources=without_record_numbers(one.sources)
            )
        elif isinstance(one, DocumentPart):
            assert found[name] == replace(one, chunks=without_record_numbers(one.chunks))
        elif not name.startswith("community"):
            assert found[name] == one, name
