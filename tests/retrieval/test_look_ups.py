"""Look-ups in labelled indexes against slow versions that read the tables and leave hidden rows out."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection
from functools import cache, cached_property
from typing import Any

import pytest

from hirag_dist.core.text.normalize import name_key
from hirag_dist.errors import InvalidQuery, NotFound
from hirag_dist.retrieval.engine import QueryEngine
from hirag_dist.storage.layout import CONTENT_TABLES
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.types import AccessScope
from tests.leaky_builds import HIDDEN, NOBODY, Indexes, corpus
from tests.toy_builds import rows

SCOPES = (AccessScope(), AccessScope(reach=NOBODY), AccessScope(labels=("secret",)))
ALL = 1000


class Oracle:
    """Rows that a scope shows, from the tables of a snapshot."""

    def __init__(self, snapshot: Snapshot, scope: AccessScope) -> None:
        self.scope = scope
        self.tables = {name: rows(snapshot, name) for name in (*CONTENT_TABLES, "summary_sources")}
        self.entities = {row["entity_id"]: row for row in self.tables["entities"]}
        self.documents = {row["document_id"]: row for row in self.tables["documents"] if self._within(row, scope)}
        self.chunks = [row for row in self.tables["chunks"] if row["document_id"] in self.documents]
        self.chunk_ids = [row["chunk_id"] for row in self.chunks]
        self.everything = len(self.documents) == len(self.tables["documents"])
        self._strengths: dict[str, list[tuple[str, float]]] = defaultdict(list)
        for row in rows(snapshot, "statements"):
            self._strengths[row["relation_id"]].append((row["chunk_id"], row["strength"]))
        self.behind = cache(self._behind)

    def _within(self, row: dict[str, Any], scope: AccessScope) -> bool:
        labels = set(row["labels"])
        return set(scope.labels) <= labels and (scope.reach is None or labels <= scope.reach)

    def _behind(self, own: str) -> frozenset[str]:
        """Return the chunks that an entity comes from."""
        row = self.entities[own]
        if not row["layer"]:
            return frozenset(row["chunk_ids"])
        clusters = {one["cluster_id"] for one in self.tables["summary_sources"] if one["entity_id"] == own}
        members = [one["entity_id"] for one in self.tables["clusters"] if one["cluster_id"] in clusters]
        return frozenset(chunk for member in members for chunk in self.behind(member))

    @cached_property
    def seen(self) -> set[str]:
        """Entities that are visible, fully or in part."""
        shown = set(self.chunk_ids)
        return {
            own
            for own, row in self.entities.items()
            if self.everything or (self.behind(own) <= shown if row["layer"] else self.behind(own) & shown)
        }

    @cached_property
    def relations(self) -> list[dict[str, Any]]:
        shown = set(self.chunk_ids)
        return [
            row
            for row in self.tables["relations"]
            if {row["source_id"], row["target_id"]} <= self.seen
            and (row["kind"] != "extracted" or self.everything or set(row["chunk_ids"]) & shown)
        ]

    def weight(self, relation: dict[str, Any]) -> float:
        statements = self._strengths.get(relation["relation_id"])
        if statements is None or self.everything:
            return float(relation["weight"])
        return sum(strength for chunk, strength in statements if chunk in self.chunk_ids)

    @cached_property
    def communities(self) -> dict[str, dict[str, Any]]:
        shown, found = set(self.chunk_ids), {}
        for row in self.tables["communities"]:
            members = set(row["entity_ids"])
            behind = {chunk for member in members for chunk in self.behind(member)}
            for relation in self.tables["relations"]:
                if relation["kind"] == "extracted" and {relation["source_id"], relation["target_id"]} <= members:
                    behind |= set(relation["chunk_ids"])
            if self.everything or behind <= shown:
                found[row["community_id"]] = row
        return found

    def of(self, own: str) -> list[dict[str, Any]]:
        """Return the relations of an entity, the heaviest first."""
        found = [row for row in self.relations if own in (row["source_id"], row["target_id"])]
        return sorted(found, key=lambda row: (-self.weight(row), row["relation_id"]))

    def above(self, own: str) -> list[str]:
        found: list[str] = []
        level = {own}
        while level:
            level = {r["target_id"] for r in self.relations if r["kind"] == "summary" and r["source_id"] in level}
            found += sorted(level, key=list(self.entities).index)
        return found

    def below(self, own: str) -> set[str]:
        return {r["source_id"] for r in self.relations if r["kind"] == "summary" and r["target_id"] == own}

    def mentions(self, own: str) -> int:
        return len(set(self.entities[own]["chunk_ids"]) & set(self.chunk_ids))

    def most_mentioned(self, members: Collection[str]) -> list[str]:
        place = list(self.entities).index
        return sorted(set(members) & self.seen, key=lambda own: (-self.mentions(own), place(own)))

    def sources(self, own: str) -> list[str]:
        level = {own}
        for _ in range(self.entities[own]["layer"]):
            level = {member for one in level for member in self.below(one)}
        wanted = {chunk for one in level for chunk in self.entities[one]["chunk_ids"]}
        return [chunk for chunk in self.chunk_ids if chunk in wanted]

    def hops(self, source: str) -> dict[str, int]:
        found, queue = {source: 0}, deque([source])
        joined = defaultdict(set)
        for row in self.relations:
            joined[row["source_id"]].add(row["target_id"])
            joined[row["target_id"]].add(row["source_id"])
        while queue:
            own = queue.popleft()
            for other in joined[own] - found.keys():
                found[other] = found[own] + 1
                queue.append(other)
        return found


@pytest.fixture(scope="module")
def engine(made: Indexes) -> QueryEngine:
    return made(corpus(1))


@pytest.fixture(scope="module", params=SCOPES, ids=["everything", "public", "secret"])
def known(request: pytest.FixtureRequest, made: Indexes) -> Oracle:
    return Oracle(made.snapshot(corpus(1)), request.param)


def ids(items: Collection[Any], name: str = "entity_id") -> list[str]:
    return [getattr(item, name) for item in items]


async def test_entities(engine: QueryEngine, known: Oracle) -> None:
    layers = set()
    with pytest.raises(NotFound) as absent:
        await engine.get_entity("f" * 24, scope=known.scope)
    for own, row in list(known.entities.items())[::2]:
        if own not in known.seen:
            with pytest.raises(NotFound) as hidden:
                await engine.get_entity(own, scope=known.scope)
            assert str(hidden.value).replace(own, "f" * 24) == str(absent.value)
            continue
        found = await engine.get_entity(own, max_relations=ALL, max_sources=ALL, scope=known.scope)
        assert (found.entity.entity_id, found.entity.layer, found.entity.score) == (own, row["layer"], None)
        wanted = known.of(own)
        assert ids(found.relations, "relation_id") == [one["relation_id"] for one in wanted]
        assert ids(found.relations, "weight") == pytest.approx([known.weight(one) for one in wanted])
        others = [one["target_id"] if one["source_id"] == own else one["source_id"] for one in wanted]
        assert ids(found.neighbours) == list(dict.fromkeys(others))
        assert ids(found.ancestors) == known.above(own)
        assert ids(found.members) == known.most_mentioned(known.below(own))
        held = {key for key, one in known.communities.items() if own in one["entity_ids"]}
        assert set(ids(found.communities, "community_id")) == held
        levels = ids(found.communities, "level")
        assert levels == sorted(levels, reverse=True)
        assert ids(found.sources, "chunk_id") == known.sources(own)
        counts = (found.relation_count, found.source_count, found.member_count)
        assert counts == (len(found.relations), len(found.sources), len(found.members))
        few = await engine.get_entity(own, max_relations=1, max_sources=1, scope=known.scope)
        assert (few.relation_count, few.source_count) == counts[:2]
        assert (few.relations, few.sources) == (found.relations[:1], found.sources[:1])
        layers.add(row["layer"])
    assert layers >= ({0, 1} if known.everything else {0})


async def test_every_community(engine: QueryEngine, known: Oracle) -> None:
    for row in known.tables["communities"]:
        own = row["community_id"]
        if own not in known.communities:
            with pytest.raises(NotFound, match="may see has the id"):
                await engine.get_community(own, scope=known.scope)
            continue
        found = await engine.get_community(own, max_members=ALL, scope=known.scope)
        assert (found.community.community_id, found.community.level) == (own, row["level"])
        assert ids(found.members) == known.most_mentioned(row["entity_ids"])
        assert found.member_count == row["n_entities"]
        parent = row["parent_id"] if row["parent_id"] in known.communities else None
        assert (found.parent and found.parent.community_id) == parent
        children = {key for key, one in known.communities.items() if one["parent_id"] == own}
        assert set(ids(found.children, "community_id")) == children
        assert not any(item.report for item in (*found.children, *filter(None, [found.parent])))
        one = await engine.get_community(own, max_members=1, scope=known.scope)
        assert (one.members, one.member_count) == (found.members[:1], found.member_count)


async def test_every_document(engine: QueryEngine, known: Oracle) -> None:
    for row in known.tables["documents"]:
        own = row["document_id"]
        chunks = [one["chunk_id"] for one in known.tables["chunks"] if one["document_id"] == own]
        for name in (own, chunks[0]):
            if own not in known.documents:
                with pytest.raises(NotFound, match="may see has the id"):
                    await engine.get_document(name, scope=known.scope)
                continue
            found = await engine.get_document(name, scope=known.scope)
            assert (found.document_id, found.title, found.uri) == (own, row["title"], row["uri"])
            assert (found.text, found.start, found.total_chars) == (row["text"], 0, row["n_chars"])
            assert ids(found.chunks, "chunk_id") == chunks
            assert not any(chunk.text for chunk in found.chunks)
            part = await engine.get_document(name, start=3, max_chars=5, scope=known.scope)
            assert (part.text, part.start, part.total_chars) == (row["text"][3:8], 3, row["n_chars"])


async def test_paths_are_the_shortest_of_the_visible_graph(engine: QueryEngine, known: Oracle) -> None:
    seen = [own for own in known.entities if own in known.seen]
    lengths = set()
    for source in seen[::9]:
        hops = known.hops(source)
        for target in seen[::5]:
            found = await engine.find_path(source, target, scope=known.scope)
            assert (found.path.source_id, found.path.target_id) == (source, target)
            assert found.path.connected == (target in hops)
            if not found.path.connected:
                assert (found.entities, found.triples) == ((), ())
                continue
            assert len(found.path.entity_ids) == hops[target] + 1
            assert tuple(ids(found.entities)) == found.path.entity_ids
            assert tuple(ids(found.entities, "name")) == found.path.entity_names
            visible = {row["relation_id"]: row for row in known.relations}
            for at, triple in enumerate(found.triples):
                assert {triple.source_id, triple.target_id} == set(found.path.entity_ids[at : at + 2])
                assert triple.weight == pytest.approx(known.weight(visible[triple.relation_id]))
            lengths.add(len(found.triples))
    assert {0, 1, 2} <= lengths
    with pytest.raises(NotFound, match="target: none"):
        await engine.find_path(seen[0], "nothing", scope=known.scope)


async def test_names(engine: QueryEngine, known: Oracle) -> None:
    by_name: dict[str, str] = {}
    for own, row in known.entities.items():  # by layer
        if own in known.seen:
            by_name.setdefault(name_key(row["name"]), own)
    for own, row in list(known.entities.items())[::2]:
        name = f" “{row['name'].upper()}”"
        if name_key(name) in by_name:
            assert (await engine.get_entity(name, scope=known.scope)).entity.entity_id == by_name[name_key(name)]
        elif own not in known.seen:
            with pytest.raises(NotFound):
                await engine.get_entity(name, scope=known.scope)


async def test_closest_names(engine: QueryEngine) -> None:
    public, everything = AccessScope(reach=NOBODY), AccessScope()
    with pytest.raises(NotFound, match="the closest names: 'wordaa'"):
        await engine.get_entity("wordaaa", scope=public)
    with pytest.raises(NotFound, match="the closest names: 'wordba', 'wordab'"):
        await engine.get_entity("the wordba and wordab", scope=public)
    wanted = f"{HIDDEN}aaz"
    with pytest.raises(NotFound, match=f"the closest names: '{HIDDEN}aa'"):
        await engine.get_entity(wanted, scope=everything)
    with pytest.raises(NotFound, match="a search for it shows names and ids") as error:
        await engine.get_entity(wanted, scope=public)
    assert str(error.value).replace(wanted, "") == str(error.value).replace(f"'{wanted}'", "''")
    assert HIDDEN not in str(error.value).replace(wanted, "")


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("get_entity", {"max_relations": 0}, "max_relations must be between 1 and 1000, got 0"),
        ("get_entity", {"max_sources": 1001}, "max_sources must be between 1 and 1000"),
        ("get_community", {"max_members": -1}, "max_members must be between 1 and 1000"),
        ("get_document", {"start": -1}, "start must be at least 0, got -1"),
        ("get_document", {"max_chars": 10**7}, "max_chars must be between 1 and 1000000"),
    ],
)
async def test_bounds(engine: QueryEngine, name: str, arguments: dict[str, int], message: str) -> None:
    with pytest.raises(InvalidQuery, match=message):
        await getattr(engine, name)("x", **arguments)


async def test_a_caller_who_sees_no_document_finds_nothing(engine: QueryEngine) -> None:
    scope = AccessScope(labels=("no document has it",))
    for found, said in (
        (engine.get_entity("wordaa", scope=scope), "entity: none"),
        (engine.find_path("wordaa", "wordab", scope=scope), "source: none"),
        (engine.get_community("c", scope=scope), "community_id: none"),
        (engine.get_document("d", scope=scope), "document_id: none"),
    ):
        with pytest.raises(NotFound, match=said):
            await found


async def test_a_deadline_that_has_passed(engine: QueryEngine) -> None:
    for found in (engine.find_path("wordaa", "wordab", deadline_s=0.0), engine.get_entity("wordaa", deadline_s=0.0)):
        with pytest.raises(TimeoutError, match="the deadline passed"):
            await found
