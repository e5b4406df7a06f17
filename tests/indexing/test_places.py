"""Positions in originals, from files to results, through updates."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from hirag_dist import schemas
from hirag_dist.indexing.changed_documents import DocumentSelection
from hirag_dist.indexing.documents import added_places
from hirag_dist.indexing.stages.read import READ_PLACES
from hirag_dist.retrieval.view.index import MappedIndex
from hirag_dist.storage.snapshot.reader import Snapshot, open_snapshot
from tests.table_rows import filled_table
from tests.toy_builds import LAYER_0_ALONE, Bench


def documents(*rows: tuple[str, str]) -> pa.Table:
    return filled_table(schemas.DOCUMENTS, ({"document_id": own, "uri": uri} for own, uri in rows))


def places(*rows: tuple[str, str]) -> pa.Table:
    found = ({"document_id": own, "section": section, "kind": "section", "end": 1} for own, section in rows)
    return filled_table(schemas.PLACES, found)


def test_a_document_that_is_read_again_has_its_new_places() -> None:
    before, new = documents(("d1", "a.md"), ("d2", "b.md")), documents(("d1", "a.md"), ("d3", "c.md"))
    found = added_places(before, places(("d1", "old"), ("d2", "B")), new, places(("d1", "new"), ("d3", "C")))
    assert found.schema == READ_PLACES
    rows = sorted((row["uri"], row["section"]) for row in found.to_pylist())
    assert rows == [("a.md", "new"), ("b.md", "B"), ("c.md", "C")]


MARKDOWN = "# Words\n\nalpha beta gamma\n\n## Others\n\ndelta epsilon zeta\n"
HTML = "<h1 id='top'>Greek</h1><p>eta theta iota kappa</p>"


def sections(snapshot: Snapshot) -> dict[str, list[str]]:
    """Sections of the chunks of each file, as an answer shows them."""
    index = MappedIndex.open(snapshot)
    found = index.sources([(row, 0.0) for row in range(len(index.chunk_documents))])
    return {item.uri: [place.display for place in item.places] for item in found}


def test_updates_keep_places(tmp_path: Path) -> None:
    bench = Bench(tmp_path, base_id="")
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "a.md").write_text(MARKDOWN)
    (folder / "c.txt").write_text("lambda mu nu xi")
    bench.run_on([str(folder)], **LAYER_0_ALONE)
    assert sections(open_snapshot(bench.store))["a.md"] == ["Words", "Others"]
    (tmp_path / "b.html").write_text(HTML)
    bench.run_work(lambda build: build.add([str(tmp_path / "b.html")]), **LAYER_0_ALONE)
    expected = {"a.md": ["Words", "Others"], "b.html": ["Greek"], "c.txt": []}
    assert sections(open_snapshot(bench.store)) == expected
    index = MappedIndex.open(open_snapshot(bench.store))
    for source in index.sources([(row, 0.0) for row in range(len(index.chunk_documents))]):
        (quoted,) = index.quoted(source, source.end - 4, source.end)
        assert (quoted.start, quoted.end) == (source.end - 4, source.end)
        assert quoted.display == (expected[source.uri] or [""])[-1]
    unchanged = bench.run_work(lambda build: build.add([str(tmp_path / "b.html")]), **LAYER_0_ALONE)
    assert unchanged.up_to_date
    bench.run_work(lambda build: build.remove(DocumentSelection(sources=("a.md",))), **LAYER_0_ALONE)
    snapshot = open_snapshot(bench.store)
    assert sections(snapshot) == {"b.html": ["Greek"], "c.txt": []}
    assert snapshot.table("places")["section"].to_pylist() == ["Greek"]
