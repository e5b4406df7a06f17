"""An engine that knows a lighthouse: entities, paths, communities and a document to look up."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hirag_dist.errors import NotFound
from hirag_dist.types import (
    CommunityDetails,
    CommunityItem,
    DocumentPart,
    EntityDetails,
    EntityItem,
    PathDetails,
    PathItem,
    Place,
    SourceItem,
    TripleItem,
)
from tests.service.fakes import FakeEngine

PASSAGE = "A storm rose on Monday. The keeper lit the lamp. Nobody slept that night."
TEXT = f"The log of Saint 🐚 Agnes.\n\n{PASSAGE}\n\nThe end."
START, END = TEXT.index(PASSAGE), TEXT.index(PASSAGE) + len(PASSAGE)
LOG = "https://example.org/log.pdf"

ENTITIES = {
    name: EntityItem(name, *rest)
    for name, *rest in (
        ("e1", "Lighthouse", "location", "Stands on the rock.", 0),
        ("e2", "Keeper", "person", "Lit the lamp.", 0),
        ("e3", "Lamp", "object", "Burns <b>oil</b>.", 0),
        ("e4", "Storm", "event", "Rose on Monday.", 0),
        ("e5", "Ship", "object", "Passed the rock.", 0),
        ("s1", "The light and its people", "concept", "Lighthouse, keeper and lamp.", 1),
        *((f"n{i}", f"Wreck {i}", "object", f"Sank in {1800 + i}.", 0) for i in range(12)),
    )
}
MEMBERS = {"s1": ("e1", "e2", "e3")}
LINES = [("e1", "e2", 9.0), ("e1", "e3", 7.0), ("e2", "e3", 5.0), ("e3", "e4", 3.0), ("e4", "e5", 2.0)]
TRIPLES = [
    TripleItem(f"{a}-{b}", a, b, ENTITIES[a].name, ENTITIES[b].name, "extracted", f"{a} and {b}", weight, 0)
    for a, b, weight in (*LINES, *(("e5", f"n{i}", 1.0) for i in range(12)))
]
REPORT = "# Report\n\n- **Light**: kept by <i>one</i> person.\n- [a link](javascript:alert(1))"
COAST = CommunityItem("c0", 0, "The coast", REPORT, 7.5, 0, 0)
ROCK = CommunityItem("c1", 1, "The rock", REPORT, 7.5, 0, 0)
SOURCE = SourceItem(
    "k1", "d1", "Log", LOG, START, END, PASSAGE, 0, places=(Place(START, END, "page", "p. 7", link=f"{LOG}#page=7"),)
)


def entity_of(key: str) -> EntityItem:
    for name, entity in ENTITIES.items():
        if key in (name, entity.name):
            return entity
    raise NotFound(f"no entity {key!r}")


class ToyGraph(FakeEngine):
    """Only e1 and e5 are connected, by way of the lamp and the storm."""

    async def _look_up(self, name: str, *keys: str, **options: Any) -> Any:
        await super()._look_up(name, *keys, **options)
        return getattr(self, f"_{name}")(*keys, options)

    def _get_entity(self, key: str, most: dict[str, int]) -> EntityDetails:
        entity = entity_of(key)
        own = entity.entity_id
        near = [triple for triple in TRIPLES if own in (triple.source_id, triple.target_id)]
        shown = tuple(near[: most["max_relations"]])
        members = tuple(ENTITIES[name] for name in MEMBERS.get(own, ()))
        return EntityDetails(
            entity,
            shown,
            tuple(ENTITIES[each.target_id if each.source_id == own else each.source_id] for each in shown),
            tuple(ENTITIES[name] for name, below in MEMBERS.items() if own in below),
            members,
            (ROCK, COAST),
            (SOURCE,),
            len(near),
            1,
            len(members),
        )

    def _find_path(self, source: str, target: str, _: Any) -> PathDetails:
        first, last = entity_of(source).entity_id, entity_of(target).entity_id
        ids = ("e1", "e3", "e4", "e5") if (first, last) == ("e1", "e5") else ()
        entities = tuple(ENTITIES[name] for name in ids)
        lines = tuple(next(each for each in TRIPLES if each.relation_id == f"{a}-{b}") for a, b in pairwise(ids))
        return PathDetails(PathItem(first, last, ids, tuple(each.name for each in entities)), entities, lines)

    def _get_community(self, key: str, _: Any) -> CommunityDetails:
        members = tuple(ENTITIES[name] for name in MEMBERS["s1"])
        return (
            CommunityDetails(ROCK, members, COAST, (), 3)
            if key == "c1"
            else CommunityDetails(COAST, members, None, (ROCK,), 3)
        )

    def _get_document(self, _: str, most: dict[str, int]) -> DocumentPart:
        start = most["start"]
        return DocumentPart("d1", "Log", LOG, TEXT[start : start + most["max_chars"]], start, len(TEXT))
