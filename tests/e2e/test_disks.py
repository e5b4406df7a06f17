"""A full or read-only disk ends a build with one line; afterwards the same command ends in the same snapshot."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.crash_images import MountImpossible, why_impossible
from benchmarks.power_cuts import cuts
from hirag_dist.application.build import run_build
from hirag_dist.errors import StoreError
from hirag_dist.execution.events import StageFinished
from hirag_dist.storage.snapshot.fallback import open_current
from hirag_dist.storage.snapshot.reader import open_snapshot
from hirag_dist.storage.store import Store
from tests.built_in_builds import CONFIG, build, write_corpus

STEP = 128 << 10  # bytes


class Disk:
    """A filesystem in memory, of a size that can be changed."""

    def __init__(self, at: Path) -> None:
        self.at = at
        at.mkdir()
        self._mount("size=64m", "-t", "tmpfs", "tmpfs")

    def resize(self, n_bytes: int) -> None:
        self._mount(f"remount,size={n_bytes}")

    def read_only(self, wanted: bool) -> None:
        """Remount; a heartbeat of the lock may have a file open for a moment."""
        while True:
            try:
                return self._mount("remount,ro" if wanted else "remount,rw")
            except MountImpossible as error:
                if "busy" not in str(error):
                    raise

    def close(self) -> None:
        subprocess.run(["umount", "-l", str(self.at)], check=True)

    def _mount(self, options: str, *arguments: str) -> None:
        command = ["mount", "-o", options, *arguments, str(self.at)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            raise MountImpossible(result.stderr)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    if reason := why_impossible(tmp_path):
        pytest.skip(reason)
    made = Disk(tmp_path / "disk")
    yield made
    made.close()


class Update:
    """An index on a disk, the update of it, and what that gives where nothing happens."""

    def __init__(self, disk: Disk, folder: Path) -> None:
        self.index = disk.at / "index"
        other = folder / "other"
        self.before = build(write_corpus(folder / "corpus", 3), other).snapshot_id
        subprocess.run(["cp", "-r", str(other), str(self.index)], check=True)
        self.corpus = write_corpus(folder / "corpus", 6)
        self.after = build(self.corpus, other).snapshot_id
        self.n_bytes = used(other)

    def check_current(self) -> None:
        opened = open_current(Store(str(self.index)))
        assert opened.manifest.snapshot_id in (self.before, self.after)
        assert not opened.fallback


def used(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def test_a_full_disk_in_every_phase(disk: Disk, tmp_path: Path) -> None:
    """The disk grows by a little until the update fits."""
    update = Update(disk, tmp_path)
    size, errors = used(disk.at), list[str]()
    while True:
        disk.resize(size := size + STEP)
        try:
            result = build(update.corpus, update.index)
            break
        except StoreError as error:
            errors.append(str(error))
            update.check_current()
    assert all("the disk is full" in error for error in errors)
    places = {error.partition(f"{update.index}/")[2].partition("/")[0] for error in errors}
    assert {"work", "snapshots"} <= places, places
    assert result.snapshot_id == update.after
    open_snapshot(Store(str(update.index)), full_check=True)


def test_a_disk_that_becomes_read_only(disk: Disk, tmp_path: Path) -> None:
    update = Update(disk, tmp_path)
    finished = []

    def listen(event: object) -> None:
        if isinstance(event, StageFinished):
            finished.append(event.label)
            if len(finished) == 5:
                disk.read_only(True)

    with pytest.raises(StoreError, match="the filesystem is read-only"):
        run_build([str(update.corpus)], str(update.index), CONFIG, listeners=[listen])
    update.check_current()
    disk.read_only(False)
    (update.index / "run.lock").unlink()  # it stays behind, and is that of a dead process where the command has ended
    assert build(update.corpus, update.index).snapshot_id == update.after


def test_a_cut_in_the_middle_of_an_update(tmp_path: Path) -> None:
    if reason := why_impossible(tmp_path):
        pytest.skip(reason)
    (line,) = cuts("ext4", "shutdown", write_corpus(tmp_path / "texts", 6), 1, [], str(tmp_path))
    assert line["readable"], line
    assert (line["exit"], line["same_snapshot"]) == (0, True), line
