"""Whatever is damaged and can be made again is made again by the plain command, and what is published is whole."""

from __future__ import annotations

import json
import random
import shutil
from itertools import cycle
from pathlib import Path

import pytest

from hirag_dist.application.build import run_add
from hirag_dist.errors import SnapshotCorrupt, SnapshotError
from hirag_dist.execution.stage_results import DONE
from hirag_dist.storage.snapshot.fallback import open_current
from hirag_dist.storage.snapshot.reader import open_snapshot
from hirag_dist.storage.store import Store
from tests.built_in_builds import CONFIG, build, write_corpus

DAMAGES = ("emptied", "halved", "one bit")


def damage(file: Path, how: str) -> None:
    data = bytearray(file.read_bytes())
    if how == "one bit":
        data[len(data) // 2] ^= 4
    file.unlink()  # other snapshots may share the file
    file.write_bytes({"emptied": b"", "halved": bytes(data[: len(data) // 2])}.get(how, data))


class Index:
    """An index, made once and copied for each test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.corpus = folder / "corpus"
        self.index = folder / "index"

    @property
    def store(self) -> Store:
        return Store(str(self.index))

    @property
    def current(self) -> str:
        return (self.index / "current").read_text().strip()


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Index:
    index = Index(tmp_path_factory.mktemp("fresh"))
    build(write_corpus(index.corpus, 2), index.index)
    return index


@pytest.fixture(scope="module")
def made(fresh: Index, tmp_path_factory: pytest.TempPathFactory) -> Index:
    index = copied(fresh, tmp_path_factory.mktemp("made"))
    build(write_corpus(index.corpus, 4), index.index)
    return index


def copied(index: Index, folder: Path) -> Index:
    shutil.copytree(index.folder, folder / "copy")
    return Index(folder / "copy")


def test_markers_and_outputs_of_stages(fresh: Index, tmp_path: Path) -> None:
    index, expected = copied(fresh, tmp_path), fresh.current
    work = index.index / "work"
    damaged = random.Random(1).sample(sorted(work.glob("*/*/*/*.parquet")), 12)
    for file, how in zip(damaged, cycle(DAMAGES), strict=False):
        damage(file, how)
    for file, how in zip(sorted(work.glob(f"*/*/{DONE}"))[::3], cycle(DAMAGES), strict=False):
        damage(file, how)
        damage(next((file.parent / "tasks").iterdir()), how)
    shutil.rmtree(index.index / "snapshots")  # the next build makes its stages from what is in work/
    (index.index / "current").unlink()
    result = build(index.corpus, index.index)
    assert result.snapshot_id == expected
    open_snapshot(index.store, full_check=True)
    repaired = {str(index.index / path) for path in result.repaired}
    assert repaired
    assert repaired <= set(map(str, damaged))
    assert result.to_dict()["repaired"] == list(result.repaired)


def test_a_file_of_the_only_snapshot(fresh: Index, tmp_path: Path) -> None:
    index, expected = copied(fresh, tmp_path), fresh.current
    folder = index.index / "snapshots" / expected
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for at, file in enumerate(files):
        if at % 18 == 0 or file.name == "manifest.json":
            damage(file, DAMAGES[at % 3])
            with pytest.raises(SnapshotCorrupt):
                open_current(index.store)
            result = build(index.corpus, index.index)
            assert result.snapshot_id == index.current == expected, file
            open_snapshot(index.store, full_check=True)
    shutil.rmtree(index.index / "work")
    damage(files[-1], "halved")
    assert build(index.corpus, index.index).snapshot_id == expected, "without work/ too"


def test_a_damaged_current_snapshot_is_not_read_and_made_again(made: Index, tmp_path: Path) -> None:
    index, expected = copied(made, tmp_path), made.current
    damage(index.index / "snapshots" / expected / "manifest.json", "emptied")
    opened = open_current(index.store)
    assert opened.manifest.snapshot_id != expected
    assert expected in opened.fallback
    assert opened.info().fallback == opened.fallback
    with pytest.raises(SnapshotError, match="lacks what was changed since"):
        run_add([str(index.corpus / "0.txt")], str(index.index), CONFIG)
    assert index.current == expected, "nothing was written"
    result = build(index.corpus, index.index)
    assert result.snapshot_id == expected, "the update from the snapshot before gives the same one"
    assert (result.update is not None, result.to_dict()["fallback"]) == (True, opened.fallback)
    assert open_current(index.store).fallback == ""
    assert json.loads((index.index / "build.json").read_bytes())["state"] == "done"


@pytest.mark.parametrize("content", [b"", b"0123456789abcdef\n"])
def test_a_damaged_pointer(made: Index, tmp_path: Path, content: bytes) -> None:
    index, expected = copied(made, tmp_path), made.current
    (index.index / "current").write_bytes(content)
    opened = open_current(index.store)
    assert opened.manifest.snapshot_id == expected
    assert opened.fallback
    result = build(index.corpus, index.index)
    assert (result.snapshot_id, index.current, result.changed) == (expected, expected, True)
    assert (result.update, result.up_to_date, bool(result.fallback)) == (None, True, True)
