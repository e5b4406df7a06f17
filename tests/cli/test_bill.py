"""`status --cost`: a table, JSON and CSV of the same shares."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from hirag_dist.cli._command_line import run
from tests.built_in_builds import build, write_corpus


@pytest.mark.integration
def test_the_shares_are_the_same_in_every_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build(write_corpus(tmp_path / "corpus", 3), tmp_path / "index")
    capsys.readouterr()
    given = ["status", "--cost", "--index", str(tmp_path / "index")]
    assert run([*given, "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert run([*given, "--by", "source"]) == 0
    shown = capsys.readouterr().out
    assert "total" in shown
    assert run([*given, "--csv", "--json"]) == 2
    capsys.readouterr()
    assert len(rows) == 3
    assert sum(int(row["tokens"]) for row in rows) > 0
