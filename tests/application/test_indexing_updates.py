"""Updates after an import and after a rollback, and what reads snapshots with stand-ins."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from hirag_dist.api.build import plan_build
from hirag_dist.application.build import (
    BuildOptions,
    read_import,
    run_add,
    run_build,
    run_import,
    run_refresh,
    run_remove,
)
from hirag_dist.application.index_result import IndexResult
from hirag_dist.composition.build_records import last_build
from hirag_dist.config.model import Config
from hirag_dist.core.retrieval.places import unit_of
from hirag_dist.errors import ConfigError, SnapshotError
from hirag_dist.indexing.changed_documents import DocumentSelection
from hirag_dist.interop.exports import graphrag_tables
from hirag_dist.storage.layout import CURRENT
from hirag_dist.storage.snapshot.reader import current_id, open_snapshot
from hirag_dist.storage.store import Store
from tests.refusing_index import TEXTS, RefusingIndex

KEYS = {"clustering": {"target_size": 3}, "update": {"max_ratio": 0}}


@pytest.fixture
def index(tmp_path: Path) -> Iterator[RefusingIndex]:
    found = RefusingIndex(tmp_path, KEYS)
    yield found
    found.endpoint.close()


@pytest.fixture
def imported(index: RefusingIndex, tmp_path: Path) -> tuple[str, IndexResult]:
    """Return another index, of a graph that was exported."""
    index.begin("engine.txt", "loom.txt")
    folder, uri = tmp_path / "graphrag", str(tmp_path / "imported")
    folder.mkdir()
    snapshot = open_snapshot(index.store)
    tables = {name: snapshot.table(name) for name in snapshot.manifest.counts}
    for name, table in graphrag_tables(tables).items():
        pq.write_table(table, folder / f"{name}.parquet")
    return uri, run_import(read_import(str(folder), index.config), str(folder), uri, index.config)


def test_an_imported_graph_is_no_base(imported: tuple[str, IndexResult], index: RefusingIndex) -> None:
    """Nor does what was imported stay: `index` builds from INPUT alone, and can be updated from then on."""
    uri, before = imported
    assert "update" not in before.manifest.notes
    with pytest.raises(SnapshotError, match=r"cannot be updated: .* imported, and holds no state for updates"):
        run_add(index.files("engine.txt"), uri, index.config)
    with pytest.raises(SnapshotError, match="import` its folder again, or run `hirag-dist index") as raised:
        run_refresh(uri, index.config)
    assert "use the configuration" not in str(raised.value)
    assert current_id(Store(uri)) == before.snapshot_id
    built = run_build(index.files("engine.txt", "loom.txt"), uri, index.config)
    assert "imported" in built.rebuilt_because
    assert built.manifest.counts["documents"] == 2
    added = run_add(index.files("bridge.txt"), uri, index.config)
    assert added.update.base == built.snapshot_id


def test_an_update_after_a_rollback_starts_from_what_is_current(index: RefusingIndex) -> None:
    first = index.begin("engine.txt", "loom.txt")
    second = index.build("engine.txt", "loom.txt", "bridge.txt")
    index.store.write_bytes(CURRENT, first.snapshot_id.encode())
    added = index.add("train.txt")
    assert added.update.base == first.snapshot_id != second.snapshot_id
    assert index.names() == {"engine.txt", "loom.txt", "train.txt"}


def served(index: RefusingIndex) -> set[str]:
    """Return the names of the texts whose beginnings are in the files of the current snapshot that are served."""
    folder = Path(index.store.root) / open_snapshot(index.store).folder
    files = b"".join(path.read_bytes() for path in folder.rglob("*.arrow"))
    return {name for name, text in TEXTS.items() if text[:40].encode() in files}


@pytest.mark.usefixtures("divided")
def test_rows_stay_in_files_of_a_former_snapshot_until_a_document_is_removed(index: RefusingIndex) -> None:
    (engine,) = index.files("engine.txt")
    whole = index.begin("engine.txt", "loom.txt")
    added = index.add("bridge.txt")
    assert (whole.manifest.is_divided, added.manifest.is_divided) == (False, True)
    assert {"entities", "relations", "mentions", "reports"} <= added.manifest.divided_tables
    Path(engine).write_text(TEXTS["engine.txt"].replace(TEXTS["engine.txt"][:40], "A wholly other beginning."))
    changed = run_add([engine], str(index.store.root), index.config)
    chunks = open_snapshot(index.store).serving.texts("chunks.arrow")
    assert changed.manifest.is_divided
    assert not any(TEXTS["engine.txt"][:40] in text for text in chunks.values("text", range(chunks.n_rows)))
    removed = run_remove(DocumentSelection(sources=("*loom.txt",)), str(index.store.root), index.config)
    assert not removed.manifest.is_divided
    assert served(index) == {"bridge.txt"}
    again = index.add("loom.txt")
    assert again.snapshot_id != changed.snapshot_id, "its reports derive from the former text"
    assert served(index) == {"bridge.txt", "loom.txt"}


def test_a_rebuild_is_from_nothing_and_its_retry_too(index: RefusingIndex) -> None:
    index.begin("engine.txt", "loom.txt")
    rebuilt = index.build("engine.txt", "loom.txt", "bridge.txt", rebuild=True)
    again = index.retry()
    assert (rebuilt.update, again.update) == (None, None)
    assert again.snapshot_id == rebuilt.snapshot_id == current_id(index.store)
    record = last_build(index.store)
    assert (record["action"], record["base"], record["given"]["rebuild"]) == ("retry", None, True)


def uris(index: RefusingIndex) -> list[str]:
    rows = open_snapshot(index.store).table("documents", ["uri", "record"]).to_pylist()
    return sorted(unit_of(row["uri"], row["record"]) for row in rows)


def write_records(path: Path, *lines: str) -> None:
    path.write_text("".join(f"{line}\n" for line in lines))


def test_a_file_that_cannot_be_read_keeps_its_last_version_until_it_is_gone(index: RefusingIndex) -> None:
    rows = [json.dumps({"text": TEXTS[name]}) for name in ("loom.txt", "bridge.txt", "train.txt")]
    (engine,) = index.files("engine.txt")
    folder = Path(engine).parent
    write_records(folder / "rows.jsonl", *rows)
    whole = index.build_folder()
    every = ["engine.txt", "rows.jsonl", "rows.jsonl#1", "rows.jsonl#2"]
    assert (uris(index), whole.dead_letters) == (every, 0)

    Path(engine).write_bytes(b"\x00\x01\x02\xff" * 50)  # as a copy begins on some file systems
    write_records(folder / "rows.jsonl", rows[0], rows[1][:20])  # cut off within a record
    half = index.build_folder()
    assert (uris(index), half.dead_letters, half.exit_code) == (every, 2, 3)
    assert index.build_folder().up_to_date

    index.files("engine.txt")
    write_records(folder / "rows.jsonl", "{", rows[2])  # one bad record, and one that is gone
    partly = index.build_folder()
    assert (uris(index), partly.dead_letters) == (["engine.txt", "rows.jsonl", "rows.jsonl#1"], 1)

    (folder / "rows.jsonl").unlink()
    gone = index.build_folder()
    assert (uris(index), gone.dead_letters) == (["engine.txt"], 0)

    (folder / "new.txt").write_bytes(b"\x00\x01\x02\xff" * 50)
    found = index.build_folder()
    assert (uris(index), found.dead_letters) == (["engine.txt"], 1)
    assert found.update.other_changes == ("dead letters",), "the index is a new one without another change"


def test_an_update_that_is_refused_leaves_the_record_of_the_build_before(index: RefusingIndex) -> None:
    index.begin("engine.txt", "loom.txt")
    before = last_build(index.store)
    with pytest.raises(SnapshotError, match="the configuration changed"):
        run_add(index.files("bridge.txt"), index.uri, index.config.model_copy(update={"chunk_tokens": 300}))
    assert last_build(index.store) == before


def test_what_access_rules_refuse_does_not_stay(index: RefusingIndex) -> None:
    (engine,) = index.files("engine.txt")
    folder = Path(engine).parent
    labelled = [json.dumps({"text": TEXTS[name], "labels": ["red"]}) for name in ("loom.txt", "bridge.txt")]
    write_records(folder / "rows.jsonl", *labelled)
    index.build_folder()
    assert uris(index) == ["engine.txt", "rows.jsonl", "rows.jsonl#1"]
    index.config = index.config.model_copy(
        update={"reading": index.config.reading.model_copy(update={"label_field": "labels"})}
    )
    write_records(folder / "rows.jsonl", labelled[0], json.dumps({"text": TEXTS["bridge.txt"]}))
    found = index.build_folder()
    assert (uris(index), found.dead_letters) == (["rows.jsonl"], 2)


@pytest.mark.parametrize("keys", [{}, {"chunk_tokens": 300}])  # another configuration too: it is built from nothing
def test_an_index_with_a_field_of_labels_is_not_updated_without(index: RefusingIndex, keys: dict[str, int]) -> None:
    """Whatever is read; also after an update that read nothing, and until a build from nothing."""
    (engine,) = index.files("engine.txt")
    rows = Path(engine).parent / "rows.jsonl"
    write_records(rows, *(json.dumps({"text": TEXTS[name], "team": "red"}) for name in ("loom.txt", "bridge.txt")))
    uri, plain = str(index.store.root), index.config.model_copy(update=keys)
    reading = plain.reading.model_copy(update={"label_field": "team"})
    run_build([str(rows)], uri, index.config.model_copy(update={"reading": reading}))
    kept = run_remove(DocumentSelection(ids=(document_ids(index)[0],)), uri, index.config)
    for work in (run_build, run_add, plan_input):
        with pytest.raises(ConfigError, match=r"field 'team'.* give --label-field team .*--rebuild"):
            work([engine], uri, plain)
    assert current_id(index.store) == kept.snapshot_id
    run_build([engine], uri, plain, BuildOptions(rebuild=True))
    run_build([engine], uri, plain, BuildOptions(fresh=True))
    assert not run_add([str(rows)], uri, plain).dead_letters


def spoil_hashed_files(root: Path) -> None:
    (file,) = root.glob("snapshots/*/documents.parquet")
    file.write_bytes(b"\0\0" + file.read_bytes()[2:])


def spoil_notes(root: Path) -> None:
    (file,) = root.glob("snapshots/*/manifest.json")
    file.write_text(file.read_text().replace('"label_field"', '"number": "x", "label_field"'))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a pointer to nothing": lambda root: (root / CURRENT).write_text(""),
    "a pointer to another": lambda root: (root / CURRENT).write_text("deadbeef"),
    "no pointer": lambda root: (root / CURRENT).unlink(),
    "a short manifest": lambda root: [os.truncate(file, 300) for file in root.glob("snapshots/*/manifest.json")],
    "a note of another form": spoil_notes,
    "a changed table": spoil_hashed_files,
    "no table": lambda root: [file.unlink() for file in root.glob("snapshots/*/documents.parquet")],
    "no snapshots": lambda root: shutil.rmtree(root / "snapshots"),
    "no records": lambda root: [(root / CURRENT).unlink(), (root / "build.json").unlink()],
    "nothing, and all done again": lambda root: None,
}


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RefusingIndex]:
    """Return an index of labelled records."""
    found = RefusingIndex(tmp_path_factory.mktemp("labelled"), KEYS)
    (engine,) = found.files("engine.txt")
    rows = Path(engine).parent / "rows.jsonl"
    write_records(rows, json.dumps({"text": TEXTS["loom.txt"], "team": "red"}))
    reading = found.config.reading.model_copy(update={"label_field": "team"})
    run_build([str(rows)], str(found.store.root), found.config.model_copy(update={"reading": reading}))
    yield found
    found.endpoint.close()


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_index_remembers_its_field_of_labels(
    labelled: RefusingIndex, tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    root = tmp_path / "index"
    shutil.copytree(labelled.store.root, root)
    damage(root)
    is_whole = damage is DAMAGES["nothing, and all done again"]
    with pytest.raises(ConfigError, match=r"field 'team'.* give --label-field team .*--rebuild"):
        run_build(labelled.files("engine.txt"), str(root), labelled.config, BuildOptions(fresh=is_whole))


@pytest.fixture
def team(index: RefusingIndex) -> Callable[..., Any]:
    """Return a build of files, with `team` as the field of labels or without."""
    reading = index.config.reading.model_copy(update={"label_field": "team"})
    labelled = index.config.model_copy(update={"reading": reading})

    def work(inputs: list[str], *, labels: bool, rebuild: bool = False) -> Any:
        config = labelled if labels else index.config
        return run_build(inputs, str(index.store.root), config, BuildOptions(rebuild=rebuild))

    return work


def refused(work: Callable[[], object]) -> None:
    with pytest.raises(ConfigError, match=r"field 'team'.* give --label-field team"):
        work()


def test_a_field_of_labels_is_remembered_also_from_runs_that_publish_nothing_new(
    index: RefusingIndex, team: Callable[..., Any]
) -> None:
    (loom,) = index.files("loom.txt")
    rows = Path(loom).parent / "rows.jsonl"
    write_records(rows, json.dumps({"text": TEXTS["engine.txt"], "team": ""}))
    first = team([str(rows)], labels=False)
    assert team([str(rows)], labels=True).snapshot_id == first.snapshot_id
    refused(lambda: team([str(rows)], labels=False))
    team([str(rows)], labels=False, rebuild=True)  # forgets it, though the snapshot is the same
    team([str(rows)], labels=False)
    write_records(rows, json.dumps({"text": TEXTS["engine.txt"], "team": ""}), json.dumps({"text": "x y", "team": ""}))
    team([str(rows)], labels=True)
    write_records(rows, json.dumps({"text": TEXTS["engine.txt"], "team": ""}))
    assert team([str(rows)], labels=True).snapshot_id == first.snapshot_id  # the former one is current again
    refused(lambda: team([str(rows)], labels=False))


def test_a_rebuild_forgets_the_field_of_labels_also_where_its_snapshot_is_damaged_later(
    index: RefusingIndex, team: Callable[..., Any]
) -> None:
    (loom,) = index.files("loom.txt")
    rows = Path(loom).parent / "rows.jsonl"
    write_records(rows, json.dumps({"text": TEXTS["engine.txt"], "team": "red"}))
    former = team([str(rows)], labels=True)
    team([str(rows)], labels=False, rebuild=True)
    damaged = team([str(rows)], labels=False).snapshot_id
    (Path(index.uri) / "snapshots" / damaged / "manifest.json").write_text("x")
    team([str(rows)], labels=False)
    (Path(index.uri) / CURRENT).write_text(former.snapshot_id)  # a rollback to labels
    refused(lambda: team([str(rows)], labels=False))


def document_ids(index: RefusingIndex) -> list[str]:
    found: list[str] = open_snapshot(index.store).table("documents", ["document_id"])["document_id"].to_pylist()
    return found


def plan_input(inputs: list[str], uri: str, config: Config) -> None:
    plan_build(inputs, config=config, index=uri)
