"""The file of hits: read, and refused where it is damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from hirag_dist.errors import ConfigError
from hirag_dist.storage.report_hits import read_hits


def test_hits_add_up(tmp_path: Path) -> None:
    path = tmp_path / "hits.jsonl"
    path.write_text(
        '{"community_id": "a", "hits": 1}\n{"community_id": "b", "hits": 2}\n{"community_id": "a", "hits": 4}\n'
    )
    assert read_hits(path) == {"a": 5, "b": 2}


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
