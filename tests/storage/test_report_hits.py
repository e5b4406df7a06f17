"""The file of hits: added to, bounded, and refused where it is damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from hirag_dist.errors import ConfigError
from hirag_dist.storage import report_hits
from hirag_dist.storage.report_hits import add_hits, read_hits


def test_hits_add_up_and_the_fewest_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_hits, "MAX_COMMUNITIES", 2)
    path = tmp_path / "hits.jsonl"
    add_hits(path, {"a": 1, "b": 2})
    add_hits(path, {"a": 4, "c": 1})
    assert read_hits(path) == {"a": 5, "b": 2}
    assert not list(tmp_path.glob("*.new"))


@pytest.mark.parametrize(
    "line", ["{}", "no JSON", '{"community_id": "a", "hits": -1}', '{"community_id": 1, "hits": 1}']
)
def test_a_damaged_file_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "hits.jsonl"
    path.write_text(f'{{"community_id": "a", "hits": 1}}\n{line}\n')
    with pytest.raises(ConfigError, match="line 2"):
        read_hits(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_hits(tmp_path / "none.jsonl")
