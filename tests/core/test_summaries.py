"""Summaries of clusters become a layer: equal names are one, members left out are attached and counted."""

from hirag_dist.core.ids import entity_id
from hirag_dist.core.replies import Cover, EntityRecord, Summary
from hirag_dist.core.summaries import SummarisedCluster, next_layer


def cluster(own: str, names: list[str], covers: list[tuple[int, int, float]], members: int = 3) -> SummarisedCluster:
    entities = tuple(EntityRecord(name, "concept", f"About {name.lower()}.") for name in names)
    return SummarisedCluster(
        own,
        tuple(f"{own}{at}" for at in range(members)),
        tuple(f"member {at} of light" if at == 2 else f"member {at}" for at in range(members)),
        Summary(entities, tuple(Cover(member, entity, "covers", strength) for member, entity, strength in covers)),
    )


FIRST = cluster("a", ["Light", "Sound"], [(0, 0, 5.0), (1, 1, 3.0)])
SECOND = cluster("b", ["LIGHT"], [(0, 0, 2.0), (1, 0, 2.0), (2, 0, 2.0)])


def edges(layer: object) -> set[tuple[str, str, float]]:
    return {(r["source_id"], r["target_id"], r["weight"]) for r in layer.relations.to_pylist()}  # type: ignore[attr-defined]


def test_equal_names_of_two_clusters_are_one_entity() -> None:
    layer = next_layer([FIRST, SECOND], 1, 500)
    names = {row["name"]: row for row in layer.entities.to_pylist()}
    assert set(names) == {"Light", "Sound"}
    assert names["Light"]["entity_id"] == entity_id(1, "light")
    assert names["Light"]["n_mentions"] == 2


def test_a_member_left_out_is_attached_to_the_closest_summary() -> None:
    layer = next_layer([FIRST], 1, 500)
    assert layer.n_attached == 1
    assert ("a2", entity_id(1, "light"), 1.0) in edges(layer)


def test_every_covered_member_gets_its_relation() -> None:
    layer = next_layer([SECOND], 1, 500)
    assert edges(layer) == {(f"b{at}", entity_id(1, "light"), 2.0) for at in range(3)}
    assert {row["layer"] for row in layer.relations.to_pylist()} == {0}


def test_summaries_that_cover_nobody_are_counted() -> None:
    idle = cluster("c", ["Idle", "Busy"], [(0, 1, 1.0), (1, 1, 1.0), (2, 1, 1.0)])
    assert next_layer([idle], 1, 500).n_uncovering == 1


def test_the_order_of_clusters_does_not_matter() -> None:
    one, other = next_layer([FIRST, SECOND], 2, 500), next_layer([SECOND, FIRST], 2, 500)
    assert one.entities.equals(other.entities)
    assert one.relations.equals(other.relations)
