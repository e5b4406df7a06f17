"""Sentences about the update that made a snapshot."""

from __future__ import annotations

from hirag_dist.cli._update_state import debt_line, update_line


def test_the_documents_of_an_update() -> None:
    assert update_line(0, {}) == "The index was built from nothing; no update was made since."
    assert update_line(1, {"added": 1, "changed": 2, "removed": 0}).endswith(": 1 document added, 2 changed.")
    assert update_line(4, {"added": 0, "removed": 1200}).endswith(": 1,200 documents removed.")
    assert update_line(4, {"added": 0}).endswith(": no document changed.")


def test_the_debt_of_both_kinds() -> None:
    one = {"debt": {"summaries": {"units": 1, "tokens": 500}, "reports": {"units": 0, "tokens": 0}}}
    assert debt_line(one) == "Debt: 1 summary is due, about 500 tokens; `hirag-dist refresh` pays it."
    both = {"debt": {"summaries": {"units": 1, "tokens": 500}, "reports": {"units": 3, "tokens": 700}}}
    assert debt_line(both) == "Debt: 1 summary and 3 reports are due, about 1.2k tokens; `hirag-dist refresh` pays it."
    assert debt_line({"number": 1}) == "Debt: none."
