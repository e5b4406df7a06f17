"""Content is synced before its name, names before what refers to them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hirag_dist.storage.file_locks import make_folder
from hirag_dist.storage.store import Store


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    fsync, replace, mkdir = os.fsync, os.replace, os.mkdir

    def shown(path: str | Path) -> str:
        name = os.path.relpath(path, tmp_path)
        return os.path.join(os.path.dirname(name), "temporary") if ".tmp-" in name else name

    def note_sync(descriptor: int) -> None:
        found.append(f"sync {shown(os.readlink(f'/proc/self/fd/{descriptor}'))}")
        fsync(descriptor)

    def note_replace(source: Path, target: Path) -> None:
        found.append(f"rename {shown(target)}")
        replace(source, target)

    def note_mkdir(path: Path, *arguments: int) -> None:
        found.append(f"create {shown(path)}")
        mkdir(path, *arguments)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "replace", note_replace)
    monkeypatch.setattr(os, "mkdir", note_mkdir)
    return found


def test_a_durable_write(tmp_path: Path, events: list[str]) -> None:
    store = Store(str(tmp_path / "index"))
    store.write_bytes("a/b", b"x")
    created = ["create index", "sync .", "create index/a", "sync index"]
    assert events == [*created, "sync index/a/temporary", "rename index/a/b", "sync index/a"]
    events.clear()
    store.replace("a/b", b"y", store.read_version("a/b")[1], durable=True)  # type: ignore[index]
    store.write_json("a/b", {})
    with store.create("a/b") as file:
        file.write(b"z")
    assert events == ["sync index/a/temporary", "rename index/a/b", "sync index/a"] * 3


def test_files_that_are_synced_together(tmp_path: Path, events: list[str]) -> None:
    store = Store(str(tmp_path))
    store.write_bytes("w/s/a", b"x", durable=False)
    store.write_bytes("w/s/t/b", b"x", durable=False)
    store.copy("w/s/a", "w/c", durable=False)
    assert not [event for event in events if event.startswith("sync")]
    events.clear()
    store.sync(["w/s/a", "w/s/t/b", "w/c", "w/s/a", "gone"])
    files, folders = events[:3], events[3:]
    assert sorted(files) == ["sync w/c", "sync w/s/a", "sync w/s/t/b"]
    assert sorted(folders) == ["sync .", "sync w", "sync w/s", "sync w/s/t"]


def test_a_folder_that_exists_is_not_synced(tmp_path: Path, events: list[str]) -> None:
    make_folder(tmp_path)
    assert events == []
    make_folder(tmp_path / "a" / "b")
    assert events == ["create a", "sync .", "create a/b", "sync a"]
