"""Updates of an index from Python, with the built-in model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import hirag_dist as hd
from tests.removal_builds import KEPT, REMOVED

CONFIG: dict[str, Any] = {"execution": {"executor": "inline"}, "clustering": {"target_size": 4}}


def write(folder: Path, texts: dict[str, str]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def index(tmp_path: Path) -> str:
    return hd.build_index(write(tmp_path / "corpus", KEPT), tmp_path / "index", config=CONFIG).index_uri


def test_documents_are_added_and_removed(index: str, tmp_path: Path) -> None:
    added = hd.add_documents(write(tmp_path / "more", REMOVED), index, config=CONFIG)
    assert isinstance(added.update, hd.UpdateSummary)
    assert added.update.documents.added == 1
    assert added.manifest.counts["documents"] == 3
    removed = hd.remove_documents([], index, sources=["patient*"], config=CONFIG)
    assert removed.update.documents.removed == 1
    assert removed.manifest.counts["documents"] == 2
    again = hd.build_index(tmp_path / "corpus", index, config=CONFIG)
    assert again.up_to_date
    rebuilt = hd.build_index(tmp_path / "corpus", index, config=CONFIG, rebuild=True)
    assert rebuilt.update is None


def test_wrong_arguments(index: str, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="no option 'max_dollars'; did you mean max_"):
        hd.add_documents(tmp_path, index, max_dollars=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="list of ids"):
        hd.remove_documents("x", index)
    with pytest.raises(hd.InputError, match="no document of the index is named x"):
        hd.remove_documents(["x"], index, config=CONFIG)
    with pytest.raises(hd.ConfigError, match="cannot be turned into tokens"):
        hd.refresh_index(index, config=CONFIG, max_usd=1)
    with pytest.raises(hd.SnapshotNotFound, match="holds no index; build one with"):
        hd.refresh_index(tmp_path / "none", config=CONFIG)
