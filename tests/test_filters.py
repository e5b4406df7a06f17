"""Questions under filters: against indexes without the other documents, and against labels, which they never widen."""

from __future__ import annotations

import json
import random
from dataclasses import asdict, replace
from typing import Any

import pytest

from hirag_dist.retrieval.engine import QueryEngine
from hirag_dist.retrieval.map_reduce import MAP_REDUCE
from hirag_dist.retrieval.search import MODES
from hirag_dist.types import BY_NAME, AccessScope, Facet, Query, Retrieval, SourceItem
from tests.filtered_builds import METADATA, build_records, records
from tests.leaky_builds import HIDDEN, NOBODY, QUESTIONS, Indexes, all_text, corpus, engine_of
from tests.toy_builds import rows

OPEN = 'kind = "open"'
FILTERS = [OPEN, "number < 9 and not even", 'tags has any ("by3", "by5")', "published > 2024-01-20", "number = 4"]


costly = pytest.mark.integration  # it starts no process, but builds indexes and asks many questions
ALL, LABELLED = records(corpus(1)), records(corpus(1), labelled=True)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Indexes:
    return Indexes(tmp_path_factory, build_records)


def those(numbers: frozenset[int]) -> list[dict[str, Any]]:
    return [row for row in ALL if row["number"] in numbers]


def numbers_of(filter_text: str) -> frozenset[int]:
    """Return the numbers of the documents that meet one of `FILTERS`."""
    meets = {
        OPEN: lambda row: row["kind"] == "open",
        FILTERS[1]: lambda row: row["number"] < 9 and not row["even"],
        FILTERS[2]: lambda row: {"by3", "by5"} & {*row["tags"]},
        FILTERS[3]: lambda row: row["published"] > "2024-01-20",
        FILTERS[4]: lambda row: row["number"] == 4,
    }[filter_text]
    return frozenset(row["number"] for row in ALL if meets(row))


def without_scores(items: tuple[object, ...]) -> list[object]:
    return sorted((replace(item, score=0) for item in items), key=repr)  # type: ignore[type-var]


def without_rows(found: Retrieval) -> list[SourceItem]:
    """Return the sources without their rows in the file, which has others in the other index."""
    return [replace(item, places=()) for item in found.sources]


@costly
@pytest.mark.parametrize("chosen", FILTERS)
async def test_texts_weights_and_sources_are_those_of_an_index_of_the_documents_that_pass(
    made: Indexes, chosen: str
) -> None:
    """Scores of entities that other documents mention as well are excepted: they have one vector."""
    engine, other = made(ALL, max_layers=0), made(those(numbers_of(chosen)), max_layers=0)
    for question in QUESTIONS[:3]:
        asked = Query(question, top_n=1000, filter=chosen)
        await check_same(engine, other, asked)
        asked = replace(asked, mode="naive")
        found, wanted = await engine.retrieve(asked), await other.retrieve(replace(asked, filter=""))
        assert without_rows(found) == without_rows(wanted)
        assert found.context == wanted.context
        assert found.context_refs


async def check_same(engine: QueryEngine, other: QueryEngine, asked: Query) -> None:
    """Check entities and relations under a filter, and labels, against an index of the documents that pass."""
    for mode, part in (("flat", "local"), ("graphrag-local", "triples")):
        found = await engine.retrieve(replace(asked, mode=mode))
        wanted = await other.retrieve(replace(asked, mode=mode, filter="", reach=None))
        assert without_scores(getattr(found, part)) == without_scores(getattr(wanted, part))


@costly
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("question", QUESTIONS[:3])
async def test_documents_that_do_not_pass_leave_no_text_in_any_mode(made: Indexes, mode: str, question: str) -> None:
    engine = made(ALL)
    found = await engine.retrieve(Query(question, mode, top_n=40, filter=OPEN))
    assert HIDDEN not in all_text(found)
    assert found.context_refs
    assert HIDDEN in all_text(await engine.retrieve(Query(question, mode, top_n=40)))
    answer = await engine.answer(Query(question, mode, top_n=40, filter=OPEN))
    assert HIDDEN not in all_text(answer)


@costly
@pytest.mark.parametrize("mode", ["hirag", "local", "nobridge", "flat"])
async def test_entities_of_documents_that_do_not_pass_are_not_named(made: Indexes, mode: str) -> None:
    asked = Query(f"{HIDDEN}aa and wordaa, {HIDDEN}ab", mode, top_n=8)
    everything = await made(ALL).retrieve(asked)
    assert [item.name for item in everything.local if item.matched == BY_NAME] == [f"{HIDDEN}aa", "wordaa"]
    found = await made(ALL).retrieve(replace(asked, filter=OPEN))
    assert [item.name for item in found.local if item.matched == BY_NAME] == ["wordaa"]
    assert found.local[0].name == "wordaa"
    assert not any(HIDDEN in item.name for item in found.local)


@costly
@pytest.mark.parametrize("mode", MAP_REDUCE)
async def test_documents_that_do_not_pass_leave_no_text_in_answers_from_all_of_the_corpus(
    made: Indexes, mode: str
) -> None:
    answer = await made(ALL).answer(Query("wordaa", mode, community_level="all", filter=OPEN))
    assert HIDDEN not in all_text(answer)


def ids(found: Retrieval) -> set[str]:
    return {item.entity_id for item in found.local} | {item.chunk_id for item in found.sources}


@pytest.mark.parametrize("mode", ["hirag", "naive", "graphrag-local"])
async def test_a_filter_never_widens_what_a_caller_may_see(made: Indexes, mode: str) -> None:
    engine = made(LABELLED)
    hidden = await engine.retrieve(Query("wordaa", mode, reach=NOBODY, filter=f"not ({OPEN})"))
    assert (hidden.local, hidden.sources, hidden.context_refs) == ((), (), {})
    for chosen in FILTERS:
        asked = Query("wordaa", mode, top_n=1000, filter=chosen)
        both = await engine.retrieve(replace(asked, reach=NOBODY))
        assert HIDDEN not in all_text(both)
        by_label = await engine.retrieve(replace(asked, reach=NOBODY, filter=""))
        by_filter = await engine.retrieve(asked)
        assert {item.entity_id for item in both.local} <= ids(by_label) & ids(by_filter)
        wanted = numbers_of(chosen) & numbers_of(OPEN)
        assert {item.metadata["number"] for item in both.sources} <= wanted
        again = await engine.retrieve(replace(asked, labels=("secret",), reach=NOBODY))
        assert not again.context_refs


@costly
async def test_labels_and_a_filter_are_an_index_of_the_documents_that_pass_both(made: Indexes) -> None:
    engine, chosen = made(LABELLED, max_layers=0), FILTERS[2]
    other = made(those(numbers_of(chosen) & numbers_of(OPEN)), max_layers=0)
    await check_same(engine, other, Query("wordaa wordbb", top_n=1000, filter=chosen, reach=NOBODY))


async def test_counts_and_facets_are_those_of_the_documents_that_the_caller_may_see(made: Indexes) -> None:
    engine, other = made(LABELLED), made(those(numbers_of(OPEN)))
    everything, seen, wanted = engine.describe(None), engine.describe(NOBODY), other.describe(None)
    assert seen.facets == wanted.facets
    assert seen.as_of_field == "published"
    assert Facet("kind", "string", documents=20, distinct=1, values=(("open", 20),)) in seen.facets
    assert Facet("number", "number", documents=30, min=0, max=29) in everything.facets
    filtered = engine.describe(None, OPEN)
    assert filtered.facets == wanted.facets
    assert filtered.counts["documents"] == seen.counts["documents"] == 20
    assert engine.describe(None, "number > 99").counts["documents"] == 0
    assert [facet.documents for facet in engine.describe(NOBODY, "number > 99").facets] == [0] * 5
    assert engine.describe(NOBODY, "", "2024-01-02").counts["documents"] == len(numbers_of(OPEN) & {0, 1})


async def test_a_date_leaves_out_later_documents(made: Indexes) -> None:
    engine = made(LABELLED)
    found = await engine.retrieve(Query("wordaa", "naive", top_n=100, as_of="2024-01-05"))
    assert {item.metadata["number"] for item in found.sources} <= {0, 1, 2, 3, 4}
    assert {item.metadata["published"] for item in found.sources} <= {f"2024-01-0{day}" for day in range(1, 6)}
    both = await engine.retrieve(Query("wordaa", "naive", as_of="2024-01-05", filter="even"))
    assert {item.metadata["number"] for item in both.sources} <= {0, 2, 4}
    assert not (await engine.retrieve(Query("wordaa", as_of="2023"))).context_refs


async def test_states_of_all_rows_are_those_of_a_slow_count(made: Indexes) -> None:
    """Entities by their mentions, summaries by everything below the clusters that the model was shown."""
    snapshot = made.snapshot(LABELLED)
    engine = engine_of(snapshot)
    documents = [row["document_id"] for row in rows(snapshot, "documents")]
    number_of = {
        row["document_id"]: json.loads(row["metadata"])["number"] for row in rows(snapshot, "document_metadata")
    }
    chunks = {row["chunk_id"]: number_of[row["document_id"]] for row in rows(snapshot, "chunks")}
    members: dict[str, set[str]] = {}
    for row in rows(snapshot, "clusters"):
        members.setdefault(row["cluster_id"], set()).add(row["entity_id"])
    below: dict[str, set[str]] = {}
    for row in rows(snapshot, "summary_sources"):
        below.setdefault(row["entity_id"], set()).update(members[row["cluster_id"]])
    sources: dict[str, set[int]] = {}
    entities = rows(snapshot, "entities")
    for row in entities:  # by layer
        own = {chunks[chunk] for chunk in row["chunk_ids"]}
        sources[row["entity_id"]] = own.union(*(sources[one] for one in below.get(row["entity_id"], ())))
    assert len(documents) == 30
    choose = random.Random(3)
    for _ in range(6):
        wanted = set(choose.sample(range(30), choose.choice([3, 15, 27])))
        text = f"number in ({', '.join(map(str, wanted))})"
        view = await engine._resources.view_of(Query("q", filter=text))
        states = view.access.entity_states.tolist()
        for row, state in zip(entities, states, strict=True):
            own = sources[row["entity_id"]]
            assert bool(state) == (own <= wanted if row["layer"] else bool(own & wanted))
        reported = view.fully_visible().tolist()
        for row, is_reported in zip(rows(snapshot, "communities"), reported, strict=True):
            behind = set().union(*(sources[one] for one in row["entity_ids"]))
            assert is_reported == (behind <= wanted)
        for row, state in zip(rows(snapshot, "relations"), view.access.relation_states.tolist(), strict=True):
            own = {chunks[chunk] for chunk in row["chunk_ids"]}
            expected = 2 if row["kind"] != "extracted" or own <= wanted else 1 if own & wanted else 0
            assert state == expected


async def test_look_ups_take_filters(made: Indexes) -> None:
    engine = made(LABELLED)
    found = await engine.retrieve(Query("wordaa", "flat", top_n=1, filter=OPEN))
    scope = AccessScope(filter=OPEN)
    details = await engine.get_entity(found.local[0].entity_id, scope=scope)
    assert HIDDEN not in str(asdict(details))
    assert {source.metadata["kind"] for source in details.sources} == {"open"}
    document = await engine.get_document(details.sources[0].document_id)
    assert document.metadata["kind"] == "open"


async def test_views_are_shared_by_equal_filters(made: Indexes) -> None:
    engine = made(LABELLED)
    one, same, other = [
        await engine._resources.view_of(Query("q", filter=text)) for text in ("number<9", "number  <  9.0", "number<8")
    ]
    assert one is same
    assert one is not other
    everything = await engine._resources.view_of(Query("q", filter="number >= 0"))
    assert everything is engine._resources.index
    assert METADATA["fields"].keys() == {facet.name for facet in engine.info.facets}
