"""A power cut on a real filesystem: the index is readable, and the same command ends in the same snapshot."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.crash_images import why_impossible
from benchmarks.power_cuts import cuts
from tests.built_in_builds import write_corpus


def test_a_cut_in_the_middle_of_an_update(tmp_path: Path) -> None:
    if reason := why_impossible(tmp_path):
        pytest.skip(reason)
    (line,) = cuts("ext4", "shutdown", write_corpus(tmp_path / "texts", 6), 1, [], str(tmp_path))
    assert line["readable"], line
    assert (line["exit"], line["same_snapshot"]) == (0, True), line
