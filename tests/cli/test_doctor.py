"""Checks of the installation that need no command."""

from __future__ import annotations

from pathlib import Path

import pytest

from hirag_dist.cli.doctor import examine
from hirag_dist.config.model import Config, ExecutionConfig


def test_two_distributions_with_the_same_files_are_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def faults() -> list[str]:
        findings = examine(Config(execution=ExecutionConfig(executor="inline")), None)
        return [one.seen for one in findings if (one.subject, one.state) == ("hirag-dist-client", "fault")]

    assert faults() == []
    folder = tmp_path / "hirag_dist_client-9.8.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.4\nName: hirag-dist-client\nVersion: 9.8\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert faults() == ["9.8 is installed too, and has files of this distribution"]
