"""Limits of what one file may hold: what passes one is a dead letter that names the key, and costs nothing else."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hirag_dist.readers import Document
from tests.readers.test_pdf import make_pdf, starts_a_process

Read = Callable[..., list[Any]]


def outcome(found: list[Any]) -> list[str]:
    """Return texts, and reasons of what was not read."""
    return [each.text if isinstance(each, Document) else each.reason for each in found]


def table(columns: dict[str, Any], **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink, **options)
    return bytes(sink.getvalue().to_pybytes())


@pytest.mark.integration  # of 64 MiB and more
def test_decompression_that_makes_too_much_of_a_file(read: Read) -> None:
    (found,) = read("a.txt.gz", gzip.compress(b" x" * (33 << 20), 9))
    assert found.reason.endswith("unpack it")
    assert outcome(read("b.txt.gz", gzip.compress(b"x " * 100_000, 9), max_expansion=1)) == ["x " * 100_000]  # small
    lines = b'{"text": "Alice"}\n' + b" " * 100 + b"\n"
    found = outcome(read("c.jsonl.gz", gzip.compress(lines + (b" " * 1023 + b"\n") * (70 << 10), 1), max_expansion=1))
    assert found[0] == "Alice"  # what comes before the limit is kept
    assert found[1].endswith("unpack it")


@pytest.mark.integration  # it starts the process that reads Parquet
def test_one_text_in_many_rows(read: Read) -> None:
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 100, pa.int32()), pa.array(["x" * (1 << 20)]))
    found = outcome(read("a.parquet", table({"text": text}, compression="zstd")))
    assert found[-1].startswith("the content is more than 250 times as large as the stored file")
    assert len(found) == 65


def test_large_texts_and_files(read: Read) -> None:
    long = "the text is longer than 10 bytes: split it"
    assert outcome(read("a.txt", "x" * 11, max_document_bytes=10)) == [long]
    assert outcome(read("a.txt", "é" * 6, max_document_bytes=10)) == [long]
    assert outcome(read("a.txt", "é" * 5, max_document_bytes=10)) == ["é" * 5]
    large = "the content is larger than 10 bytes: split the file, or raise reading.max_file_bytes"
    assert outcome(read("a.html", "x" * 11, max_file_bytes=10)) == [large]


def test_more_records_than_a_file_may_hold(read: Read) -> None:
    more = "the file holds more than 2 records, and the rest is not read: split it"
    lines = "".join(f'{{"text": "{name}"}}\n' for name in "abcd")
    assert outcome(read("a.jsonl", lines, max_records=2)) == ["a", "b", more]
    assert outcome(read("a.jsonl", lines, max_records=4)) == list("abcd")


@starts_a_process
def test_texts_and_records_of_parquet(read: Read) -> None:
    rows = table({"text": ["Alice", "x" * 11, "Bob"]})
    found = outcome(read("a.parquet", rows, max_document_bytes=10))
    assert found == ["Alice", "the text is longer than 10 bytes: split it", "Bob"]
    more = "the file holds more than 2 records, and the rest is not read: split it"
    assert outcome(read("a.parquet", table({"text": list("abcd")}), max_records=2)) == ["a", "b", more]
    assert outcome(read("a.parquet", table({"text": list("ab")}), max_records=2)) == ["a", "b"]


@pytest.mark.integration  # of 80 MiB and a second
def test_memory_and_time_of_parquet(read: Read) -> None:
    bomb = table({"text": ["x" * (80 << 20)]}, compression="zstd", use_dictionary=False)
    (reason,) = outcome(read("a.parquet", bomb, memory_bytes=64 << 20))
    assert reason.endswith("bytes of memory: split it, or raise reading.memory_bytes")
    nothing = pa.array([None] * 10_000_000, pa.list_(pa.string()))
    lists = pa.ListArray.from_arrays(pa.array([0, 10_000_000], pa.int32()), nothing)
    (reason,) = outcome(read("b.parquet", table({"text": ["Alice"], "labels": lists}), memory_bytes=64 << 20))
    assert reason.endswith("or raise reading.memory_bytes")
    many = table({"text": ["x"] * 2_000_000})
    assert outcome(read("c.parquet", many, cpu_s=1, max_records=10**7))[-1].endswith("to read: split it")
    unused = table({"text": ["Alice"], "image": ["x" * (80 << 20)]}, compression="zstd", use_dictionary=False)
    assert outcome(read("d.parquet", unused, memory_bytes=64 << 20)) == ["Alice"]  # only what is read counts


def test_values_of_json(read: Read) -> None:
    many = '[{"text": "Alice"}' + ",{}" * 1000 + "]"
    assert outcome(read("a.json", many, max_file_bytes=4000)) == [
        "not valid JSON: it holds too many values, about 1001: split it, or raise the limits of `reading`"
    ]
    lines = '{"text": "Alice", "list": [' + "1," * 1000 + '1]}\n{"text": "Bob"}\n'
    reason, text = outcome(read("a.jsonl", lines, max_document_bytes=4000))
    assert "too many values" in reason
    assert text == "Bob"


def test_elements_and_attributes_of_html(read: Read) -> None:
    reason = "the page has too many elements: split it, or raise reading.max_file_bytes"
    assert outcome(read("a.html", "<p>a" * 2000, max_file_bytes=8000)) == [reason]
    assert outcome(read("a.html", f"<p {'a=b ' * 2000}>a", max_file_bytes=9000)) == [reason]
    many = "".join(f"a{number} " for number in range(20_000))
    assert outcome(read("a.html", f"<p {many}>a")) == ["an element of the page has more than 10000 attributes"]
    assert outcome(read("a.html", f"<p data-x='{many}'>a")) == ["a"]
    assert outcome(read("a.html", "<p>a" * 100, max_file_bytes=8000))[0].startswith("a\n\na")


def test_rows_and_columns_of_csv(read: Read) -> None:
    (reason,) = outcome(read("a.csv", "text" + ",a" * 10_000 + "\nx\n"))
    assert reason == "the header has more than 10000 columns"
    found = outcome(read("b.csv", 'text\n"' + "x\n" * 80 + "Alice\n", max_document_bytes=60))
    assert found[0] == "not valid CSV: a row is longer than 60 bytes"
    assert found[-1] == "Alice"


@starts_a_process
def test_pages_and_memory_of_a_pdf(read: Read) -> None:
    good = make_pdf([["Alice met Bob."]])
    assert outcome(read("a.pdf", make_pdf([["a"]] * 3), max_pages=2)) == ["the PDF has more than 2 pages: split it"]
    assert outcome(read("a.pdf", make_pdf([["Alice met Bob."]]), max_document_bytes=8))[0].startswith(
        "the text is longer"
    )
    bomb = pdf_with_stream(b"BT /F1 1 Tf 9 9 Td " + b"(a)Tj " * 2_000_000 + b"ET")
    assert outcome(read("a.pdf", bomb, memory_bytes=64 << 20)) == [
        "the PDF takes more than 67108864 bytes of memory: split it, or raise reading.memory_bytes"
    ]
    assert outcome(read("a.pdf", good)) == ["Alice met Bob."]  # the process goes on


def pdf_with_stream(content: bytes) -> bytes:
    """Return a PDF of one page, whose content is compressed."""
    packed = zlib.compress(content)
    stream = b"<< /Filter /FlateDecode /Length %d >>\nstream\n" % len(packed) + packed + b"\nendstream"
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources "
        b"<< /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >> >>",
        stream,
    ]
    body, offsets = b"%PDF-1.4\n", []
    for number, each in enumerate(objects, start=1):
        offsets.append(len(body))
        body += b"%d 0 obj\n" % number + each + b"\nendobj\n"
    entries = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    end = b"trailer\n<< /Size 5 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % len(body)
    return body + b"xref\n0 5\n0000000000 65535 f \n" + entries + end
