"""The table of files that a build reads, and INPUT arguments in records of builds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hirag_dist.config.model import Config
from hirag_dist.indexing.estimate import read_planned
from hirag_dist.indexing.inputs import portable_uri, source_table
from hirag_dist.readers import find_inputs, office_files


def test_files_are_named_below_their_input_and_refused_ones_are_rows(tmp_path: Path) -> None:
    (tmp_path / "docs/sub").mkdir(parents=True)
    (tmp_path / "docs/sub/a.txt").write_text("Alice met Bob.")
    (tmp_path / "docs/ring").symlink_to("ring")
    (tmp_path / "docs/out.txt").symlink_to("/etc/hostname")
    Path(os.fsdecode(bytes(tmp_path) + b"/docs/\xff.txt")).write_text("x")
    rows = {row["shown"]: row for row in source_table([str(tmp_path / "docs")]).to_pylist()}
    assert [name for name, row in rows.items() if not row["refusal"]] == ["sub/a.txt"]
    assert sorted(rows) == [r"\xff.txt", "out.txt", "ring", "sub/a.txt"]
    assert int(rows["sub/a.txt"]["modified"]) == (tmp_path / "docs/sub/a.txt").stat().st_mtime_ns
    planned = read_planned([str(tmp_path / "docs")], Config())
    assert [document.place for document in planned.documents.values()] == ["sub/a.txt#0"]
    assert len(planned.unreadable) == 3


def test_an_argument_that_is_not_utf8_is_recorded_as_a_uri(tmp_path: Path) -> None:
    folder = os.fsdecode(bytes(tmp_path) + b"/\xff")
    os.mkdir(folder)
    Path(folder, "a.txt").write_text("x")
    recorded = portable_uri(folder)
    recorded.encode()
    assert find_inputs([recorded]) == find_inputs([folder])
    assert portable_uri(str(tmp_path)) == str(tmp_path)


def test_files_that_need_a_package_are_refused_and_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The refusal is part of the table, so that the files are read once the package is there."""
    for name in ("a.docx", "b.docx", "c.txt"):
        (tmp_path / name).write_bytes(b"x")
    installed = source_table([str(tmp_path)])
    assert installed["refusal"].to_pylist() == ["", "", ""]
    monkeypatch.setitem(office_files.PACKAGES, "docx", ("no_such_module", "python-docx"))
    missing = source_table([str(tmp_path)])
    assert [bool(reason) for reason in missing["refusal"].to_pylist()] == [True, True, False]
    assert "a.docx and 1 more cannot be read without the extra `documents`" in caplog.text
