"""Late reports in the store: one file each, claimed by one writer, damaged ones left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hirag_dist.errors import StoreError
from hirag_dist.storage.snapshot.late_reports import LateReport, LateReportFiles
from hirag_dist.storage.store import Store
from tests.storage.s3_server import s3_server


def late(own: str) -> LateReport:
    row: dict[str, Any] = {
        "community_id": own,
        "level": 1,
        "title": "Words",
        "summary": "A row of words.",
        "rating": 4.0,
        "rating_explanation": "",
        "findings": [{"summary": "They are.", "explanation": "", "entity_ids": ["e"], "relation_ids": []}],
        "origin": "model",
        "n_dropped_references": 0,
    }
    return LateReport(row, [{"role": "report", "model": "m", "endpoint": "x", "calls": 1}], 1.5)


@pytest.fixture
def files(tmp_path: Path) -> LateReportFiles:
    return LateReportFiles(Store(str(tmp_path)), "snap")


def test_reports_are_read_as_they_were_written(files: LateReportFiles, tmp_path: Path) -> None:
    assert files.ids() == set()
    files.write(late("b"))
    files.write(late("a"))
    (tmp_path / "reports/snap/c.json").write_text("{")
    (tmp_path / "reports/snap/d.json").write_text((tmp_path / "reports/snap/a.json").read_text())
    assert files.ids() == {"a", "b", "c", "d"}
    assert files.read("a") == late("a")
    assert files.read("c") is None
    assert files.read("d") is None  # the report of another community
    assert files.read("none") is None
    assert [each.community_id for each in files.all()] == ["a", "b"]


def test_an_id_is_no_path(files: LateReportFiles) -> None:
    with pytest.raises(StoreError, match="no id"):
        files.read("../../current")


def test_one_writer_at_a_time_holds_the_claim(files: LateReportFiles, tmp_path: Path) -> None:
    other = LateReportFiles(Store(str(tmp_path)), "snap")
    with files.claimed("a") as mine, other.claimed("a") as theirs, other.claimed("b") as another:
        assert (mine, theirs, another) == (True, False, True)
    with other.claimed("a") as theirs:
        assert theirs
    assert files.ids() == set()


@pytest.mark.integration
def test_on_s3_a_claim_excludes_others_until_it_ends() -> None:
    with s3_server() as (_, uri):
        files, other = (LateReportFiles(Store(uri), "snap") for _ in range(2))
        with files.claimed("a") as mine, other.claimed("a") as theirs:
            assert (mine, theirs) == (True, False)
        for until, is_over in ((9e9, False), (1.0, True)):  # of a process that was killed
            Store(uri).write_bytes("reports/snap/a.claim", f'{{"until": {until}}}'.encode())
            with other.claimed("a") as theirs:
                assert theirs == is_over
        files.write(late("a"))
        assert other.read("a") == late("a")
        assert other.ids() == {"a"}
