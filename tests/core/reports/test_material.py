"""Report material fits its prompt, sub-reports stand in, references are checked."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from hirag_dist.core.prompts.reply_parsing import COVERED, ReportFinding, ReportRecord
from hirag_dist.core.reports.material import (
    ChildReport,
    ClaimLine,
    ReportDraft,
    ReportMember,
    ReportRelation,
    members_report,
    report_row,
    report_text,
)
from hirag_dist.core.text.tokens import counter


def count(text: str) -> int:
    return len(text.split())


def members(n: int) -> list[ReportMember]:
    return [ReportMember(f"e{i:02d}", f"Name{i}", "concept", "ten words " * 5, degree=100 - i) for i in range(n)]


def links(n: int) -> list[ReportRelation]:
    return [
        ReportRelation(f"r{i:02d}", f"e{i:02d}", f"e{i + 1:02d}", "A", "B", "some words here", 10.0 - i)
        for i in range(n)
    ]


def test_the_least_prominent_are_left_out_first() -> None:
    material = ReportDraft(members(30), links(20), 150, count).material([])
    assert not material.complete
    shown = [material.refs[line.split(".")[0]] for line in material.entities]
    assert shown == [f"e{i:02d}" for i in range(len(shown))]
    assert sum(count(line) for line in material.entities + material.relations) <= 150


def test_the_report_of_the_largest_part_stands_in_for_its_members() -> None:
    small = ChildReport("small", "Small", "summary of small", 5, frozenset(f"e{i:02d}" for i in range(5)))
    large = ChildReport("large", "Large", "summary of large", 25, frozenset(f"e{i:02d}" for i in range(5, 30)))
    material = ReportDraft(members(30), links(29), 250, count).material([small, large])
    assert material.refs["C1"] == "large"
    assert material.complete
    shown = {material.refs[line.split(".")[0]] for line in material.entities}
    assert shown == {f"e{i:02d}" for i in range(5)}


def test_a_relation_names_its_ends_by_reference_and_repeats_nothing_that_they_say() -> None:
    people = [
        ReportMember("a", "Anna", "person", "Anna keeps the lamp of Cape Stone. She is old.", 3),
        ReportMember("b", "Cape Stone", "place", "A cape.", 2),
        ReportMember("c", "Keepers", "group", "Those who keep.", 1),
    ]
    told = [
        ReportRelation("r1", "a", "b", "Anna", "Cape Stone", "Anna keeps the lamp of Cape Stone.", 5.0),
        ReportRelation("r2", "b", "c", "Cape Stone", "Keepers", "The cape has keepers.", 4.0),
        ReportRelation("r3", "a", "c", "Anna", "Keepers", COVERED, 3.0),
    ]
    assert ReportDraft(people, told, 1000, count).material([]).relations == (
        "R1. E1-E2",
        "R2. E2-E3: The cape has keepers.",
        "R3. E1-E3",
    )
    child = ChildReport("x", "Anna", "words " * 20, 1, frozenset({"a"}))
    people[0] = replace(people[0], description="Anna keeps the lamp of Cape Stone. " + "She is old. " * 30)
    assert ReportDraft(people, told, 120, count).material([child]).relations == (
        "R1. Anna — E1: Anna keeps the lamp of Cape Stone.",
        "R2. E1-E2: The cape has keepers.",
        "R3. Anna — E2",
    )


def test_a_report_without_a_rating_is_rated_by_its_records() -> None:
    record = ReportRecord("T", "S", None, "", ())
    row = report_row("c", 1, record, {"E1": "e", "E2": "f", "R1": "r", "C1": "child"})
    assert (row["rating"], row["rating_explanation"]) == (3.5, "2 entities, 1 relations, 1 sub-communities.")
    larger = report_row("c", 1, record, {f"E{at}": "e" for at in range(1, 30)})
    assert 10 >= larger["rating"] > row["rating"]


def test_references_that_name_nothing_are_dropped_and_counted() -> None:
    record = ReportRecord("T", "S", 5.0, "", (ReportFinding("f", "g", ("E1", "R1", "C1", "E9")),))
    row = report_row("c", 1, record, {"E1": "e", "R1": "r", "C1": "child"})
    assert row["n_dropped_references"] == 1
    assert row["findings"][0]["entity_ids"] == ["e"]
    assert row["findings"][0]["relation_ids"] == ["r"]


def test_a_small_community_reports_its_members() -> None:
    row = members_report("c", 0, members(2))
    assert row["origin"] == "members"
    assert row["title"] == "Name0, Name1"
    assert "Name1: ten words" in report_text(row)


@settings(derandomize=True, deadline=None, max_examples=30)
@given(
    n_members=st.integers(0, 20),
    n_links=st.integers(0, 20),
    parts=st.lists(st.tuples(st.sets(st.integers(0, 19)), st.integers(1, 60)), max_size=8),
    budget=st.integers(1, 400),
)
def test_material_never_passes_the_budget_and_says_whether_it_is_whole(
    n_members: int, n_links: int, parts: list[tuple[set[int], int]], budget: int
) -> None:
    tokens = counter("o200k_base")
    children = [
        ChildReport(f"c{at}", "Title", "w " * length, len(rows), frozenset(f"e{i:02d}" for i in rows))
        for at, (rows, length) in enumerate(parts)
    ]
    material = ReportDraft(members(n_members), links(n_links), budget, tokens).material(children)
    lines = [*material.entities, *material.relations, *material.reports]
    assert tokens("\n".join(lines)) <= budget
    assert [line.split(".")[0] for line in lines] == list(material.refs)
    shown = set(material.refs.values())
    covered = shown.union(*(child.entity_ids for child in children if child.community_id in shown))
    assert material.complete == ({member.entity_id for member in members(n_members)} <= covered)


def claims(*entities: int) -> list[ClaimLine]:
    return [ClaimLine(f"k{at}", f"e{entity:02d}", f"claim {at} here") for at, entity in enumerate(entities)]


def test_claims_take_the_room_that_is_left_the_most_prominent_members_first() -> None:
    said = claims(1, 0, 2)
    whole = ReportDraft(members(3), links(1), 1000, count, claims=said).material([])
    first = [member.entity_id for member in sorted(members(3), key=lambda one: (-one.degree, one.entity_id))]
    by_member = {line.entity_id: line.text for line in said}
    assert [line.split(". ", 1)[1] for line in whole.claims] == [by_member[own] for own in first]
    assert {whole.refs[f"K{at}"] for at in (1, 2, 3)} == {"k0", "k1", "k2"}
    bare = ReportDraft(members(3), links(1), 1000, count).material([])
    cost = sum(count(line) + 5 for line in bare.entities) + count("some words here") + 12
    tight = ReportDraft(members(3), links(1), cost + 12, count, claims=said).material([])
    assert (tight.entities, tight.relations) == (bare.entities, bare.relations), "members and relations come first"
    assert len(tight.claims) == 1
