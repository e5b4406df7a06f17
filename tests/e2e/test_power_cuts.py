"""A power cut on a real filesystem: the index is readable, and the same command ends in the same snapshot."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.crash_images import why_impossible
from benchmarks.power_cuts import cuts
from tests.built_in_builds import write_corpus


@pytest.mark.parametrize("method", ["copy", "shutdown"])
def test_a_real_filesystem(tmp_path: Path, method: str) -> None:
    if reason := why_impossible(tmp_path):
        pytest.skip(reason)
    corpus = write_corpus(tmp_path / "texts", 6)
    for line in cuts("ext4", method, corpus, 1, [0.0], str(tmp_path)):
        assert line["readable"], line
        assert (line["exit"], line["same_snapshot"], line["paid_twice"]) == (0, True, 0), line
