"""After a power cut the index is readable, the same command ends in the same snapshot, and exit 0 means on the disk."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from hirag_dist.execution.stage_results import DONE
from hirag_dist.storage.checked_json import read_checked
from hirag_dist.storage.snapshot.fallback import open_current
from hirag_dist.storage.store import Store
from tests.built_in_builds import build, write_corpus
from tests.crash_model import CrashModel, State, write_state


class Watched:
    """An update of an index, and the states that a power cut could leave: around `current`, and now and then."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.index = folder / "index"
        self.before = build(write_corpus(folder / "corpus", 2), self.index).snapshot_id
        self.corpus = write_corpus(folder / "corpus", 4)
        self.events: list[str] = []
        self.states: list[State] = []
        model = CrashModel(self.index, patch, self._note)
        self.after = build(self.corpus, self.index).snapshot_id
        self.final = model.strict()
        self.states += [self.final, model.named()]
        model.close()

    def _note(self, model: CrashModel, event: str) -> None:
        self.events.append(event)
        if "/current" in event or len(self.events) % 9 == 0:
            self.states += [model.strict(), model.named()]


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    with pytest.MonkeyPatch.context() as patch:
        return Watched(tmp_path_factory.mktemp("watched"), patch)


def test_current_is_on_the_disk_after_all_that_it_refers_to(watched: Watched) -> None:
    assert watched.before != watched.after
    found = []
    for state in watched.states:
        found.append(state["current"].decode().strip())
        folder = f"snapshots/{found[-1]}"
        manifest = json.loads(state[f"{folder}/manifest.json"])
        for name, entry in manifest["files"].items():
            assert hashlib.sha256(state[f"{folder}/{name}"]).hexdigest() == entry["sha256"], name
    assert set(found) == {watched.before, watched.after}
    assert found == sorted(found, key=[watched.before, watched.after].index), "it never goes back"


def test_a_marker_is_on_the_disk_after_its_outputs(watched: Watched, tmp_path: Path) -> None:
    n_markers = 0
    for at, state in enumerate([*watched.states[::4], watched.final]):
        folder = tmp_path / str(at)
        write_state({path: data for path, data in state.items() if path.endswith(DONE)}, folder)
        for path in state:
            if path.endswith(DONE) and state[path]:
                done = read_checked(Store(str(folder)), path)
                n_markers += 1
                for task in done["tasks"]:
                    for name, (_, _, sha256, size) in task["outputs"].items():
                        part = state[f"{path.removesuffix(DONE)}{name}/part-{task['number']:06d}.parquet"]
                        assert (len(part), hashlib.sha256(part).hexdigest()) == (size, sha256)
    assert n_markers


def test_what_ended_without_an_error_is_on_the_disk(watched: Watched) -> None:
    assert watched.final["current"].decode().strip() == watched.after
    assert json.loads(watched.final["build.json"])["state"] == "done"
    assert json.loads(watched.final["snapshot_history.json"])["made_current"] == watched.after
    live = set((watched.index / "work").rglob(DONE))
    assert live
    for path in live:
        assert watched.final[str(path.relative_to(watched.index))] == path.read_bytes()


def test_only_what_has_to_be_durable_is_synced(watched: Watched) -> None:
    synced = [event.removeprefix("sync ") for event in watched.events if event.startswith("sync ")]
    assert not [path for path in synced if "/tasks/" in path or "/cache/" in path or path.endswith("run.lock")]
    for folder in ("snapshots", "work"):
        files = [path for path in synced if f"/{folder}/" in path and Path(path).suffix in (".parquet", ".npy")]
        assert files
        assert len(files) == len(set(files)), "each file once"


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_the_same_command_after_a_cut(watched: Watched, tmp_path: Path, share: float) -> None:
    of_kind = watched.states[1::2]
    write_state(of_kind[round(share * (len(of_kind) - 1))], tmp_path)
    opened = open_current(Store(str(tmp_path)))
    assert opened.manifest.snapshot_id in (watched.before, watched.after)
    assert not opened.fallback
    result = build(watched.corpus, tmp_path)
    assert result.snapshot_id == watched.after
    assert open_current(Store(str(tmp_path))).manifest.snapshot_id == watched.after
