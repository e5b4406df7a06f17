"""Whatever derives from a removed document is found, wherever it is: one leftover in each place."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pymilvus import MilvusClient

import hirag_dist
from hirag_dist.application.build import run_remove
from hirag_dist.application.forget import run_forget
from hirag_dist.application.forget_evidence import RemovedDocuments, find_removed, read_given
from hirag_dist.application.forget_verification import Finding, verify_removed
from hirag_dist.config.model import Config, VectorsConfig
from hirag_dist.core.text.ids import text_key
from hirag_dist.execution.stage_results import DroppedLetter
from hirag_dist.indexing.changed_documents import DocumentSelection
from hirag_dist.llm.reply_store import Ledger
from hirag_dist.llm.reply_store.block_format import Record, pack_value
from hirag_dist.llm.reply_store.segment import write_segment
from hirag_dist.retrieval.vector_index.milvus import open_milvus_lite
from hirag_dist.schemas import SUMMARIES, VECTORS
from hirag_dist.storage.layout import snapshot_path
from hirag_dist.storage.snapshot.cache import _key, user_cache
from hirag_dist.storage.snapshot.reader import current_id
from hirag_dist.storage.store import Store
from tests.removal_builds import KEPT, REMOVED, RemovalBench, removal_bench
from tests.table_rows import filled_table

TEXT = REMOVED["patient.txt"]
SENTENCE = "She was treated in Saint Hedwig Hospital for a fever in the spring."


@dataclass
class Index:
    """An index from which a document was removed and forgotten, and what is known of the document."""

    bench: RemovalBench
    removed: RemovedDocuments
    gone: str
    chunk: str
    vector: bytes

    @property
    def store(self) -> Store:
        return self.bench.store

    @property
    def current_id(self) -> str:
        return str(current_id(self.store))

    @property
    def folder(self) -> Path:
        """Of the current snapshot."""
        return Path(self.store.root) / snapshot_path(self.current_id)

    def findings(self, **options: Any) -> tuple[Finding, ...]:
        return verify_removed(self.store, self.bench.config, self.removed, **options).findings

    def table(self, name: str) -> pa.Table:
        return pq.read_table(self.folder / f"{name}.parquet")

    def put(self, name: str, table: pa.Table) -> None:
        """Replace a table of the current snapshot, as no command would."""
        pq.write_table(table, self.folder / f"{name}.parquet")
        self.accept(f"{name}.parquet")

    def accept(self, file: str) -> None:
        """Make a changed file of the current snapshot one that its manifest lists."""
        path = f"{snapshot_path(self.current_id)}/manifest.json"
        manifest = self.store.read_json(path)
        data = (self.folder / file).read_bytes()
        manifest["files"][file] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        self.store.write_json(path, manifest)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    with removal_bench(tmp_path_factory.mktemp("template")) as bench:
        bench.build(KEPT | REMOVED)
        gone = bench.document_id("patient.txt")
        bench.build(KEPT)
        removed = find_removed(bench.store, [gone])
        (chunk,) = removed.chunks["chunk_id"].to_pylist()
        run_forget(bench.store.uri, bench.config, [gone], now=True)
        yield Index(bench, removed, gone, chunk, min(removed.vectors))


@pytest.fixture
def index(template: Index, tmp_path: Path) -> Index:
    return replace(template, bench=template.bench.copied(tmp_path))


@pytest.fixture(scope="module")
def older_template(template: Index, tmp_path_factory: pytest.TempPathFactory) -> tuple[Index, str]:
    """The index after the document was added and removed once more, and the snapshot that has it."""
    index = replace(template, bench=template.bench.copied(tmp_path_factory.mktemp("older")))
    before = index.bench.build(KEPT | REMOVED).snapshot_id
    index.bench.build(KEPT)
    return index, before


@pytest.fixture
def older(older_template: tuple[Index, str], tmp_path: Path) -> tuple[Index, str]:
    index, before = older_template
    return replace(index, bench=index.bench.copied(tmp_path)), before


def changed(table: pa.Table, column: str, change: Callable[[Any], Any]) -> pa.Table:
    """Return a table with another value in the first row of a column."""
    at = table.schema.get_field_index(column)
    values = table[column].to_pylist()
    values[0] = change(values[0])
    return table.set_column(at, table.schema.field(at), pa.array(values, table.schema.field(at).type))


PLANTED: Mapping[str, tuple[str, str, Callable[[Index], Callable[[Any], Any]]]] = {
    "a path": ("documents", "uri", lambda index: lambda _: "corpus/patient.txt"),
    "a source id": ("documents", "source_ids", lambda index: lambda _: ["patient.txt"]),
    "a text": ("chunks", "text", lambda index: lambda text: f"{text} {SENTENCE}"),
    "a chunk of an entity": ("entities", "chunk_ids", lambda index: lambda ids: [*ids, index.chunk]),
    "a name": ("entities", "name", lambda index: lambda _: "WILHELMINA  Throckmorton"),
    "a name in a report": ("reports", "summary", lambda index: lambda _: "Much is said of Saint Hedwig Hospital."),
    "a member of a community": (
        "communities",
        "entity_ids",
        lambda index: lambda ids: [*ids, max(index.removed.values - {index.gone, index.chunk, "patient.txt"})],
    ),
}


def test_leftovers_in_tables_are_found(index: Index) -> None:
    for name, column, change in PLANTED.values():
        index.put(name, changed(index.table(name), column, change(index)))
    expected = {f"{name}.{column}": 1 for name, column, _ in PLANTED.values()}
    for options in ({}, {"snapshot_only": True}):
        found = index.findings(**options)
        assert {finding.what: finding.count for finding in found} == expected
        assert {finding.place for finding in found} == {f"snapshot {index.current_id} (current)"}
        assert all(finding.examples for finding in found)


def test_a_source_of_a_summary_is_found_and_one_of_a_remaining_text_is_not(index: Index) -> None:
    remaining = text_key(index.table("chunks")["chunk_id"][0].as_py())
    for sources, found in (([remaining], []), ([remaining, text_key(index.chunk)], ["summaries.sources"])):
        index.put("summaries", filled_table(SUMMARIES, [{"cluster_id": "c", "sources": sorted(sources)}]))
        assert [finding.what for finding in index.findings()] == found


def write_arrow(path: Path, **columns: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table(columns)
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)


def test_leftovers_in_other_files_of_a_snapshot_are_found(index: Index) -> None:
    """A dead letter, a vector and a serving file."""
    row = {"stage": "extract", "unit_id": "u", "reason": "r", "attempts": 1, "request": f"<text>{TEXT}</text>"}
    index.put("rejects", pa.Table.from_pylist([row | {"reply": ""}], index.table("rejects").schema))
    folder = index.folder
    vectors = np.load(folder / "vectors/entities.npy")
    vectors[2] = np.frombuffer(index.vector, "<f4")
    np.save(folder / "vectors/entities.npy", vectors)
    write_arrow(folder / "serving-2/reports.arrow", title=["x"], text=[SENTENCE])
    for file in ("vectors/entities.npy", "serving-2/reports.arrow"):
        index.accept(file)
    found = {finding.what: finding.examples for finding in index.findings()}
    assert found.keys() == {"rejects.request", "vectors/entities.npy", "serving-2/reports.arrow.text"}
    assert found["vectors/entities.npy"] == ("row 2",)


def test_an_older_snapshot_is_found(template: Index, older: tuple[Index, str]) -> None:
    index, before = older
    current = index.current_id
    assert current == template.current_id
    places = {found.place for found in index.findings()}
    assert f"snapshot {before}" in places
    assert f"snapshot {current} (current)" not in places
    without = index.findings(without=[before])
    assert f"snapshot {before}" not in {found.place for found in without}
    asked = [found.count for found in without if found.what == "reply to a request"]
    assert asked == [1], "by what was asked, also where the reply says nothing that is distinctive"
    (Path(index.store.root) / snapshot_path(before) / "manifest.json").unlink()
    assert f"unfinished snapshot {before}" in {found.place for found in index.findings()}


def test_stored_replies_are_found_by_what_they_say(index: Index) -> None:
    values: list[dict[str, Any]] = [
        {"text": f'{{"entities": [{{"name": "x", "description": "{SENTENCE}"}}]}}'},
        {"text": "entity<|>Saint Hedwig Hospital<|>organization<|>\n<|COMPLETE|>"},
        {"vector": index.vector, "tokens": 1},
    ]
    records = [Record(bytes([number]) * 20, 1.0, pack_value(value)) for number, value in enumerate(values)]
    write_segment(index.store, f"{1:016x}-00000.seg", records)
    found = sorted((finding.place, finding.what, finding.count) for finding in index.findings())
    assert found == [("reply store", "text of a reply", 2), ("reply store", "vector of a text", 1)]


async def test_a_reply_in_an_open_log_is_found(index: Index) -> None:
    ledger = Ledger(index.store)
    await ledger.put("ab" * 20, {"text": SENTENCE})
    assert [found.place for found in await asyncio.to_thread(index.findings)] == ["reply store"]
    await ledger.close()


def test_leftovers_beside_the_snapshots_are_found(index: Index) -> None:
    """Files of work whole and half written, records of builds, accepted losses and caches."""
    root = Path(index.store.root)
    folder = root / "work" / "extract" / "key"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"id": ["x"], "vector": [index.vector]}, VECTORS), folder / "part.parquet")
    (folder / "part.json").write_text(f'{{"prompt": "{TEXT}"}}\n'.replace(" a ", " \\u0061 "))
    (folder / ".tmp-part.parquet").write_bytes(b"?")
    os.utime(folder / ".tmp-part.parquet", (0, 0))
    record = index.store.read_json("build.json")
    record["given"]["inputs"] = ["/data/corpus/patient.txt"]
    for path in ("build.json", "builds/earlier.json"):
        index.store.write_json(path, record)
    index.store.write_json("drops.json", {"drops": [asdict(DroppedLetter("extract", index.chunk, "me", "now", ""))]})
    write_arrow(root / "cache" / "0123456789abcdef" / "chunks.arrow", text=[SENTENCE])
    found = sorted((finding.place, finding.count) for finding in index.findings())
    places = ("accepted losses", "cache", "records of builds", "records of builds", "temporary files", "work", "work")
    assert found == [(place, 1) for place in places]


def test_a_cache_outside_the_index_is_found(older: tuple[Index, str]) -> None:
    index, before = older
    folder = user_cache() / _key(index.store.uri) / before
    folder.mkdir(parents=True)
    try:
        index.removed = find_removed(index.store, [index.gone])
        assert [finding.place for finding in index.findings()].count("cache") == 1
    finally:
        shutil.rmtree(folder.parent)


def test_a_collection_of_milvus_lite_is_found(older: tuple[Index, str]) -> None:
    index, before = older
    open_milvus_lite(index.bench.snapshot(before), VectorsConfig()).close()
    index.removed = find_removed(index.store, [index.gone])
    assert "Milvus Lite" in {finding.place for finding in index.findings()}
    done = run_forget(index.store.uri, index.bench.config, [index.gone], now=True)
    assert (done.complete, len(done.collections), index.findings()) == (True, 1, ())


def test_a_row_of_a_shared_collection_is_found(older: tuple[Index, str]) -> None:
    index, before = older
    for own in (before, index.current_id):
        open_milvus_lite(index.bench.snapshot(own), VectorsConfig()).close()
    assert run_forget(index.store.uri, index.bench.config, [index.gone], now=True).complete
    assert index.findings() == ()
    client = MilvusClient(str(Path(index.store.root) / "milvus" / "milvus.db"))
    (collection,) = client.list_collections()
    client.load_collection(collection)
    (row,) = client.query(collection, filter="", output_fields=["*"], limit=1)
    (key,) = [field["name"] for field in client.describe_collection(collection)["fields"] if field.get("is_primary")]
    client.insert(collection, [row | {key: 1}])
    client.close()
    (found,) = index.findings()
    assert (found.place, found.what, found.count) == ("Milvus Lite", "rows that no snapshot needs", 1)


def test_by_text_where_no_snapshot_has_the_document(index: Index, tmp_path: Path) -> None:
    (tmp_path / "patient.txt").write_text(TEXT)
    given = read_given(index.bench.config, index.store, [str(tmp_path / "patient.txt")])
    index.removed = find_removed(index.store, [], given)
    assert (index.removed.ids, index.findings()) == ({index.gone}, ())
    index.put("reports", changed(index.table("reports"), "summary", lambda _: SENTENCE))
    (found,) = index.findings()
    assert found.what == "reports.summary"


def findings(bench: RemovalBench, gone: str) -> tuple[Finding, ...]:
    removed = find_removed(bench.store, [gone])
    return verify_removed(bench.store, bench.config, removed, snapshot_only=True).findings


def test_nothing_derives_from_a_document_that_was_edited_and_then_removed(tmp_path: Path) -> None:
    """With layers of summaries and reports: what was written from either version is written again or masked."""
    samples = sorted((Path(hirag_dist.__file__).parent / "samples" / "corpus").iterdir())[:2]
    texts = {path.name: path.read_text()[:most] for path, most in zip(samples, (4_000, 12_000), strict=True)}
    edited = samples[0].name
    settings = {"execution": {"executor": "inline"}, "clustering": {"target_size": 4}, "chunk_tokens": 200}
    bench = RemovalBench(tmp_path, Config.model_validate(settings))
    bench.build(texts)
    texts[edited] = "\n\n".join(part for number, part in enumerate(texts[edited].split("\n\n")) if number % 3)
    bench.build(texts)
    gone = bench.document_id(edited)
    assert findings(bench, gone)
    result = run_remove(DocumentSelection((gone,)), bench.store.uri, bench.config)
    assert result.update is not None
    assert result.manifest.counts["summaries"] > 5
    assert len(find_removed(bench.store, [gone]).ids) == 2
    assert findings(bench, gone) == ()
