from __future__ import annotations

import bz2
import gzip
import io
import itertools
import lzma
import os
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hirag_dist.readers import Document, ReadOptions, Unreadable, find_inputs, read_source

Read = Callable[..., list[Any]]


def test_front_matter_gives_title_and_labels_and_goes(read: Read) -> None:
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
def test_the_first_heading_is_the_title(read: Read, text: str, title: str) -> None:
    (found,) = read("a.md", text)
    assert (found.title, found.text) == (title, text)


@pytest.mark.parametrize(
    "text",
    [
        "---\nacl: [x\n---\ntext",
        "---\ntitle: a: b\n\nLabels: [x]\n---\ntext",
        "---\ntitle: t\nlabel: x\n\nnever closed",
        "---\n- 'acl' : x\n  - y\nlabels : x\n...\ntext",
    ],
)
def test_damaged_front_matter_that_names_labels_makes_no_public_document(read: Read, text: str) -> None:
    (found,) = read("a.md", text)
    assert isinstance(found, Unreadable)
    assert found.reason == "its front matter names labels and is not valid YAML between two lines of ---"


def test_labels_that_are_none_make_the_file_unreadable(read: Read) -> None:
    (found,) = read("a.md", "---\nacl: {a: b}\n---\ntext")
    assert isinstance(found, Unreadable)
    assert found.reason == "the labels are neither a string nor a list of strings"


def test_places_are_sections_with_anchors(read: Read) -> None:
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


Read = Callable[..., list[Any]]


def arrow(codec: str) -> Callable[[bytes], bytes]:
    def compress(data: bytes) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, codec) as stream:
            stream.write(data)
        return bytes(sink.getvalue().to_pybytes())

    return compress


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": arrow("zstd"),
    ".lz4": arrow("lz4"),
}


def contents() -> dict[str, bytes]:
    table = io.BytesIO()
    pq.write_table(pa.table({"text": ["Alice met Bob."]}), table)
    return {
        ".txt": b"Alice met Bob.",
        ".md": b"Alice met Bob.",
        ".html": b"<p>Alice met Bob.</p>",
        ".json": b'["Alice met Bob."]',
        ".jsonl": b'{"text": "Alice met Bob."}\n',
        ".csv": b"text\nAlice met Bob.\n",
        ".tsv": b"text\nAlice met Bob.\n",
        ".parquet": table.getvalue(),
    }


@pytest.mark.parametrize(
    "extension",
    [
        pytest.param(each, marks=pytest.mark.integration) if each == ".parquet" else each  # starts a process
        for each in contents()
    ],
)
@pytest.mark.parametrize("compression", ["", ".gz", ".zst"])
def test_every_format_in_every_compression(read: Read, extension: str, compression: str) -> None:
    data = contents()[extension]
    (found,) = read(f"d{extension}{compression}", COMPRESS[compression](data) if compression else data)
    assert isinstance(found, Document)
    assert found.text == "Alice met Bob."
    assert found.title in ("d", "Alice met Bob.")


@pytest.mark.parametrize("compression", [".gz", ".bz2", ".zst"])
def test_damaged_compression_keeps_what_came_before(read: Read, compression: str) -> None:
    lines = b"".join(b'{"text": "%s"}\n' % os.urandom(5000).hex().encode() for _ in range(300))
    data = COMPRESS[compression](lines)
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
        (b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "the content is binary, not text"),
        (b"x" * 4001, "the text is longer than 4000 bytes: split it"),
    ],
)
def test_texts_that_cannot_be_read(read: Read, data: bytes, reason: str) -> None:
    (found,) = read("a.txt", data, max_document_bytes=4000)
    assert (found.record, found.reason) == (0, reason)


def test_a_file_that_went_or_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("x")
    (source,) = find_inputs([str(path)])
    path.unlink()
    assert [each.reason for each in read_source(source, ReadOptions()) if isinstance(each, Unreadable)] == [
        "the file is not there any more"
    ]
    path.mkdir()
    (found,) = read_source(source, ReadOptions())
    assert isinstance(found, Unreadable)
    assert str(tmp_path) not in found.reason or "cannot be read" in found.reason


def test_reading_is_lazy_and_bounded(tmp_path: Path) -> None:
    path = tmp_path / "big.jsonl"
    line = '{"text": "' + "Alice met Bob. " * 100 + '"}\n'
    path.write_text(line * 3_000)  # 4.5 MB
    (source,) = find_inputs([str(path)])
    tracemalloc.start()
    count = sum(isinstance(each, Document) for each in read_source(source, ReadOptions()))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 3_000
    assert peak_bytes < 4 << 20
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
