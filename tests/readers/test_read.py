"""Pages, front matter, metadata of every format, and compressed files."""

from __future__ import annotations

import bz2
import gzip
import itertools
import json
import lzma
import os
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hirag_dist.core.metadata.fields import FieldSource
from hirag_dist.readers import Document, ReadOptions, Unreadable, find_inputs, read_source
from hirag_dist.types import MetadataField
from tests.readers.test_pdf import make_pdf

starts_a_process = pytest.mark.integration  # the one that reads Parquet or PDFs


def test_front_matter_gives_title_and_labels_and_goes(read: Any) -> None:
    (found,) = read(
        "a.md", "---\r\ntitle: Stave One\r\nlabels: [staff, hr]\r\n---\r\n\r\n# Ghost\n\n*Marley* was dead.\n"
    )
    assert (found.title, found.labels, found.text) == ("Stave One", ("staff", "hr"), "# Ghost\n\n*Marley* was dead.\n")


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("intro\n\n# First #\n\n# Second\n", "First"),
        ("```sh\n# no heading\n```\n# Real\n", "Real"),
        ("## second level only\n", "a"),
        ("#hashtag\n", "a"),
    ],
)
def test_the_first_heading_is_the_title(read: Any, text: str, title: str) -> None:
    (found,) = read("a.md", text)
    assert (found.title, found.text) == (title, text)


@pytest.mark.parametrize(
    "text",
    [
        "---\nacl: [x\n---\ntext",
        "---\ntitle: a: b\n\nLabels: [x]\n---\ntext",
        "---\ntitle: t\nlabel: x\n\nnever closed",
        "---\ntitle: t\n\nlabels: x\n\nnever closed",
        "\n--- # of access\n# who\nlabels: x\n\n# Never closed\n\ntext",
        "---\n{title: t, labels: [x}\n---\ntext",
        "---\n# flow\n{title: t,\n'ACL' : [x}\n---\ntext",
        "---\n{labels: [x}\n---\ntext",
        "---\n- labels: x\n---\ntext",
        "---\n? labels\n: x\ny: [\n---\ntext",
        "---\n- 'acl' : x\n  - y\nlabels : x\n...\ntext",
    ],
)
def test_damaged_front_matter_that_names_labels_makes_no_public_document(read: Any, text: str) -> None:
    (found,) = read("a.md", text)
    assert isinstance(found, Unreadable)
    assert found.reason == "its front matter names labels and is not valid YAML between two lines of ---"


@pytest.mark.parametrize("opening", ["\n \n---\n", "--- # of access\n"])
def test_front_matter_may_begin_below_empty_lines_and_with_a_comment(read: Any, opening: str) -> None:
    (found,) = read("a.md", f"{opening}labels: secret\n---\ntext")
    assert (found.labels, found.text) == (("secret",), "text")


@pytest.mark.parametrize(
    "text",
    [
        "---\n\nIt has these labels: a, b, labels: c - label: d.\n",
        "---\n\nlabels\n: a word of a list\n",
        "---\n\n# Title\n\nlabels: below a heading\n",
        "---\n\nOne: two, labels: three: four.\n\n---\n\nlabels: below\n",
    ],
)
def test_a_text_that_begins_with_a_rule_may_speak_of_labels(read: Any, text: str) -> None:
    (found,) = read("a.md", text)
    assert (found.labels, found.text) == ((), text)


def test_places_are_sections_with_anchors(read: Any) -> None:
    text = (
        "---\ntitle: T\n---\nIntro.\n\n# The `Guide` to [Widgets](x.html)!\r\n\nOne.\n```\n# no heading\n```\n"
        "## Set-up\n\nTwo.\n\n### Set-up ###\nThree.\n"
    )
    (found,) = read("a.md", text)
    assert [(place.section, place.anchor) for place in found.places] == [
        ("The Guide to Widgets!", "the-guide-to-widgets"),
        ("Set-up", "set-up"),
        ("Set-up", "set-up-1"),
    ]
    assert [found.text[place.start : place.end].split()[-1] for place in found.places] == ["```", "Two.", "Three."]
    assert found.text.endswith(found.text[found.places[-1].start : found.places[-1].end])


def arrow(codec: str) -> Callable[[bytes], bytes]:
    def compress(data: bytes) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, codec) as stream:
            stream.write(data)
        return bytes(sink.getvalue().to_pybytes())

    return compress


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": lambda data: bz2.compress(data, 1),  # blocks of 100 kB
    ".xz": lzma.compress,
    ".zst": arrow("zstd"),
    ".lz4": arrow("lz4"),
}


def parquet(columns: dict[str, Any]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue().to_pybytes()


def contents() -> dict[str, bytes]:
    return {
        ".txt": b"Alice met Bob.",
        ".md": b"Alice met Bob.",
        ".html": b"<p>Alice met Bob.</p>",
        ".json": b'["Alice met Bob."]',
        ".jsonl": b'{"text": "Alice met Bob."}\n',
        ".csv": b"text\nAlice met Bob.\n",
        ".tsv": b"text\nAlice met Bob.\n",
        ".parquet": parquet({"text": ["Alice met Bob."]}),
    }


@pytest.mark.parametrize(
    "extension",
    [pytest.param(each, marks=starts_a_process) if each == ".parquet" else each for each in contents()],
)
@pytest.mark.parametrize("compression", ["", ".gz"])
def test_every_format_plain_and_compressed(read: Any, extension: str, compression: str) -> None:
    data = contents()[extension]
    (found,) = read(f"d{extension}{compression}", COMPRESS[compression](data) if compression else data)
    assert isinstance(found, Document)
    assert found.text == "Alice met Bob."
    assert found.title in ("d", "Alice met Bob.")


@pytest.mark.parametrize("compression", COMPRESS)
def test_every_compression_and_what_came_before_its_damage(
    read: Any, monkeypatch: pytest.MonkeyPatch, compression: str
) -> None:
    monkeypatch.setattr("hirag_dist.readers.encoding._BATCH_SIZE", 1 << 16)
    texts = [os.urandom(5000).hex() for _ in range(60)]
    data = COMPRESS[compression]("".join(f'{{"text": "{text}"}}\n' for text in texts).encode())
    assert [each.text for each in read(f"d.jsonl{compression}", data)] == texts
    found = read(f"d.jsonl{compression}", data[: int(len(data) * 0.9)])
    assert isinstance(found[0], Document)
    assert isinstance(found[-1], Unreadable)
    assert [each.record for each in found] == list(range(len(found)))
    (junk,) = read(f"d.txt{compression}", b"this is no compressed data at all")
    assert isinstance(junk, Unreadable)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "the text is empty"),
        (b" \t\r\n \n\x0c\n", "the text is empty"),
        (bytes(3000), "the content is binary, not text"),
    ],
)
def test_texts_that_cannot_be_read(read: Any, data: bytes, reason: str) -> None:
    (found,) = read("a.txt", data)
    assert (found.record, found.reason) == (0, reason)


def test_reading_is_lazy_and_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hirag_dist.readers.encoding._BATCH_SIZE", 1 << 16)
    path = tmp_path / "big.jsonl"
    line = '{"text": "' + "Alice met Bob. " * 100 + '"}\n'
    path.write_text(line * 1_000)  # 1.5 MB
    (source,) = find_inputs([str(path)])
    tracemalloc.start()
    count = sum(isinstance(each, Document) for each in read_source(source, ReadOptions()))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 1_000
    assert peak_bytes < 1 << 20
    first = read_source(source, ReadOptions())
    assert len(list(itertools.islice(first, 2))) == 2
    first.close()  # type: ignore[attr-defined]


def test_whatever_a_reader_raises_is_a_dead_letter(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("Alice met Bob.")
    (source,) = find_inputs([str(path)])
    (found,) = read_source(replace(source, format="no such reader"), ReadOptions())
    assert isinstance(found, Unreadable)
    assert found.reason == "the file cannot be read: KeyError: 'no such reader'"
    path.unlink()
    path.mkdir()
    (found,) = read_source(source, ReadOptions())
    assert isinstance(found, Unreadable)
    assert "cannot be read" in found.reason


OPTIONS = ReadOptions(
    metadata=(
        FieldSource(
            MetadataField("published", "date"), ("published", "meta.date", "article:published_time", "CreationDate")
        ),
        FieldSource(MetadataField("tags", "string", list=True), ("tags", "keywords"), separator=","),
        FieldSource(MetadataField("folder", "string"), (), path="^([^/]+)/"),
    )
)


def found(folder: Path, name: str, data: str | bytes) -> list[Document]:
    path = folder / "in" / "wiki" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    documents = [each for source in find_inputs([str(folder / "in")]) for each in read_source(source, OPTIONS)]
    assert all(isinstance(each, Document) for each in documents)
    return [each for each in documents if isinstance(each, Document)]


WANTED = {"published": "2024-01-31", "tags": ["tax", "law"], "folder": "wiki"}
PAGE = """<html><head><meta property="article:published_time" content="2024-01-31T00:00:00Z">
<meta name="Keywords" content="tax, law"></head><body><p>words</p></body></html>"""
COLUMNS = {
    "text": ["words"],
    "meta": [{"date": date(2024, 1, 31), "other": 1}],
    "tags": [["tax", "law"]],
    "unused": [1],
}
PROPERTIES = "Report) /Keywords (tax, law) /CreationDate (D:20240131000000Z"


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.jsonl", json.dumps({"text": "words", "meta": {"Date": "2024-01-31"}, "tags": ["tax", "law"]})),
        ("a.json", json.dumps([{"text": "words", "published": "2024-01-31", "tags": "tax,law"}])),
        ("a.csv", 'text,published,tags\nwords,2024-01-31,"[""tax"", ""law""]"\n'),
        ("a.md", "---\npublished: 2024-01-31\ntags: [tax, law]\n---\nwords\n"),
        ("a.html", PAGE),
        ("a.html", PAGE.replace("meta name", "META itemprop")),
        pytest.param("a.parquet", parquet(COLUMNS), marks=starts_a_process),
        pytest.param("a.pdf", make_pdf([["words"]], title=PROPERTIES), marks=starts_a_process),
    ],
)
def test_fields_come_from_what_each_format_has(tmp_path: Path, name: str, data: str | bytes) -> None:
    (document,) = found(tmp_path, name, data)
    assert (document.metadata, document.faults) == (WANTED, ())


def test_a_text_has_its_path(tmp_path: Path) -> None:
    (document,) = found(tmp_path, "a.txt", "words")
    assert document.metadata == {"folder": "wiki"}


def test_a_wrong_value_costs_the_field_and_not_the_document(tmp_path: Path) -> None:
    (document,) = found(tmp_path, "a.jsonl", json.dumps({"text": "words", "published": "next\nweek", "tags": ["tax"]}))
    assert document.metadata == {"tags": ["tax"], "folder": "wiki"}
    (fault,) = document.faults
    assert fault.startswith("metadata field published: 'next\\nweek' is no date")
