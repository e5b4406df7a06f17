"""Report material fits its prompt, sub-reports stand in, references are checked."""

from hirag_dist.core.replies import Finding, ReportRecord
from hirag_dist.core.reports import ChildReport, Link, Member, members_report, report_material, report_row, report_text


def count(text: str) -> int:
    return len(text.split())


def members(n: int) -> list[Member]:
    return [Member(f"e{i:02d}", f"Name{i}", "concept", "ten words " * 5, degree=100 - i) for i in range(n)]


def links(n: int) -> list[Link]:
    return [Link(f"r{i:02d}", f"e{i:02d}", f"e{i + 1:02d}", "A", "B", "some words here", 10.0 - i) for i in range(n)]


def test_everything_goes_in_where_it_fits() -> None:
    material = report_material(members(4), links(3), [], 1000, count)
    assert material.complete
    assert [line.split(".")[0] for line in material.entities] == ["E1", "E2", "E3", "E4"]
    assert material.refs == {f"E{i + 1}": f"e{i:02d}" for i in range(4)} | {f"R{i + 1}": f"r{i:02d}" for i in range(3)}


def test_the_least_prominent_are_left_out_first() -> None:
    material = report_material(members(30), links(20), [], 150, count)
    assert not material.complete
    shown = [material.refs[line.split(".")[0]] for line in material.entities]
    assert shown == [f"e{i:02d}" for i in range(len(shown))]
    assert sum(count(line) for line in material.entities + material.relations) <= 150


def test_the_report_of_the_largest_part_stands_in_for_its_members() -> None:
    small = ChildReport("small", "Small", "summary of small", frozenset(f"e{i:02d}" for i in range(5)))
    large = ChildReport("large", "Large", "summary of large", frozenset(f"e{i:02d}" for i in range(5, 30)))
    material = report_material(members(30), links(29), [small, large], 250, count)
    assert material.refs["C1"] == "large"
    assert material.complete
    shown = {material.refs[line.split(".")[0]] for line in material.entities}
    assert shown == {f"e{i:02d}" for i in range(5)}


def test_references_that_name_nothing_are_dropped_and_counted() -> None:
    record = ReportRecord("T", "S", 5.0, "", (Finding("f", "g", ("E1", "R1", "C1", "E9")),))
    row = report_row("c", 1, record, {"E1": "e", "R1": "r", "C1": "child"})
    assert row["n_dropped_references"] == 1
    assert row["findings"][0]["entity_ids"] == ["e"]
    assert row["findings"][0]["relation_ids"] == ["r"]


def test_a_small_community_reports_its_members() -> None:
    row = members_report("c", 0, members(2))
    assert row["origin"] == "members"
    assert row["title"] == "Name0, Name1"
    assert "Name1: ten words" in report_text(row)
