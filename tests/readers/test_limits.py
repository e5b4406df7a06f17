"""Limits of what one file may hold: what passes one is a dead letter that names the key, and costs nothing else."""

from __future__ import annotations

import errno
import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hirag_dist.readers import Document
from hirag_dist.readers.limited_process import LimitedProcess, TemporaryFolderFull, raise_if_full
from hirag_dist.readers.model import FileRefused, ReadOptions
from tests.readers.test_pdf import make_pdf, starts_a_process


def outcome(found: list[Any]) -> list[str]:
    """Return texts, and reasons of what was not read."""
    return [each.text if isinstance(each, Document) else each.reason for each in found]


def table(columns: dict[str, Any], **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink, **options)
    return bytes(sink.getvalue().to_pybytes())


@pytest.mark.integration  # of 64 MiB and more
def test_decompression_that_makes_too_much_of_a_file(read: Any) -> None:
    (found,) = read("a.txt.gz", gzip.compress(b" x" * (33 << 20), 9))
    assert found.reason.endswith("unpack it")
    assert outcome(read("b.txt.gz", gzip.compress(b"x " * 100_000, 9), max_expansion=1)) == ["x " * 100_000]  # small
    lines = b'{"text": "Alice"}\n' + b" " * 100 + b"\n"
    found = outcome(read("c.jsonl.gz", gzip.compress(lines + (b" " * 1023 + b"\n") * (70 << 10), 1), max_expansion=1))
    assert found[0] == "Alice"  # what comes before the limit is kept
    assert found[1].endswith("unpack it")


@pytest.mark.integration  # it starts the process that reads Parquet
def test_one_text_in_many_rows(read: Any) -> None:
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 100, pa.int32()), pa.array(["x" * (1 << 20)]))
    found = outcome(read("a.parquet", table({"text": text}, compression="zstd")))
    assert found[-1].startswith("the content is more than 250 times as large as the stored file")
    assert len(found) == 65


def test_large_texts_and_files(read: Any) -> None:
    long = "the text is longer than 10 bytes: split it"
    assert outcome(read("a.txt", "x" * 11, max_document_bytes=10)) == [long]
    assert outcome(read("a.txt", "é" * 6, max_document_bytes=10)) == [long]
    assert outcome(read("a.txt", "é" * 5, max_document_bytes=10)) == ["é" * 5]
    large = "the content is larger than 10 bytes: split the file, or raise reading.max_file_bytes"
    assert outcome(read("a.html", "x" * 11, max_file_bytes=10)) == [large]


def test_more_records_than_a_file_may_hold(read: Any) -> None:
    more = "the file holds more than 2 records, and the rest is not read: split it"
    lines = "".join(f'{{"text": "{name}"}}\n' for name in "abcd")
    assert outcome(read("a.jsonl", lines, max_records=2)) == ["a", "b", more]
    assert outcome(read("a.jsonl", lines, max_records=4)) == list("abcd")


@starts_a_process
def test_texts_and_records_of_parquet(read: Any) -> None:
    rows = table({"text": ["Alice", "x" * 11, "Bob"]})
    found = outcome(read("a.parquet", rows, max_document_bytes=10))
    assert found == ["Alice", "the text is longer than 10 bytes: split it", "Bob"]
    more = "the file holds more than 2 records, and the rest is not read: split it"
    assert outcome(read("a.parquet", table({"text": list("abcd")}), max_records=2)) == ["a", "b", more]
    assert outcome(read("a.parquet", table({"text": list("ab")}), max_records=2)) == ["a", "b"]


@pytest.mark.integration  # of 80 MiB and a second
def test_memory_and_time_of_parquet(read: Any) -> None:
    bomb = table({"text": ["x" * (80 << 20)]}, compression="zstd", use_dictionary=False)
    (reason,) = outcome(read("a.parquet", bomb, memory_bytes=64 << 20))
    assert reason.endswith("bytes of memory: split it, or raise reading.memory_bytes")
    nothing = pa.array([None] * 10_000_000, pa.list_(pa.string()))
    lists = pa.ListArray.from_arrays(pa.array([0, 10_000_000], pa.int32()), nothing)
    (reason,) = outcome(read("b.parquet", table({"text": ["Alice"], "labels": lists}), memory_bytes=64 << 20))
    assert reason.endswith("or raise reading.memory_bytes")
    many = table({"text": ["x"] * 4_000_000}, row_group_size=4_000_000)
    assert outcome(read("c.parquet", many, cpu_s=1, max_records=10**7))[-1].endswith("to read: split it")
    unused = table({"text": ["Alice"], "image": ["x" * (80 << 20)]}, compression="zstd", use_dictionary=False)
    assert outcome(read("d.parquet", unused, memory_bytes=64 << 20)) == ["Alice"]  # only what is read counts


def test_values_of_json(read: Any) -> None:
    many = '[{"text": "Alice"}' + ",{}" * 1000 + "]"
    assert outcome(read("a.json", many, max_file_bytes=4000)) == [
        "not valid JSON: it holds too many values, about 1001: split it, or raise the limits of `reading`"
    ]
    lines = '{"text": "Alice", "list": [' + "1," * 1000 + '1]}\n{"text": "Bob"}\n'
    reason, text = outcome(read("a.jsonl", lines, max_document_bytes=4000))
    assert "too many values" in reason
    assert text == "Bob"


def test_elements_and_attributes_of_html(read: Any) -> None:
    reason = "the page has too many elements: split it, or raise reading.max_file_bytes"
    assert outcome(read("a.html", "<p>a" * 2000, max_file_bytes=8000)) == [reason]
    assert outcome(read("a.html", f"<p {'a=b ' * 2000}>a", max_file_bytes=9000)) == [reason]
    many = "".join(f"a{number} " for number in range(20_000))
    assert outcome(read("a.html", f"<p {many}>a")) == ["an element of the page has more than 10000 attributes"]
    assert outcome(read("a.html", f"<p data-x='{many}'>a")) == ["a"]
    assert outcome(read("a.html", "<p>a" * 100, max_file_bytes=8000))[0].startswith("a\n\na")


def test_rows_and_columns_of_csv(read: Any) -> None:
    (reason,) = outcome(read("a.csv", "text" + ",a" * 10_000 + "\nx\n"))
    assert reason == "the header has more than 10000 columns"
    found = outcome(read("b.csv", 'text\n"' + "x\n" * 80 + "Alice\n", max_document_bytes=60))
    assert found[0] == "not valid CSV: a row is longer than 60 bytes"
    assert found[-1] == "Alice"


@starts_a_process
def test_pages_and_memory_of_a_pdf(read: Any) -> None:
    good = make_pdf([["Alice met Bob."]])
    assert outcome(read("a.pdf", make_pdf([["a"]] * 3), max_pages=2)) == ["the PDF has more than 2 pages: split it"]
    assert outcome(read("a.pdf", good, max_document_bytes=8))[0].startswith("the text is longer")
    bomb = make_pdf([["a"] * 2_000_000])
    assert outcome(read("a.pdf", bomb, memory_bytes=64 << 20)) == [
        "the PDF takes more than 67108864 bytes of memory: split it, or raise reading.memory_bytes"
    ]
    assert outcome(read("a.pdf", good)) == ["Alice met Bob."]  # the process goes on


PROGRAM = """
import resource
from hirag_dist.readers.pdf_text import answer_requests

def read(request, data):
    if data == b"loop":
        while True:
            pass
    if data == b"grow":
        return {"size": len([bytes(1 << 20) for _ in range(1 << 12)])}
    if data == b"fail":
        raise ValueError
    if data == b"full":
        resource.setrlimit(resource.RLIMIT_FSIZE, (4, 4))  # fewer bytes than the reply has
    return {"size": len(data)}

answer_requests(read)
"""


@pytest.mark.integration
def test_a_file_that_passes_a_limit_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    process = LimitedProcess(path, "files")
    options = ReadOptions(memory_bytes=1 << 28, cpu_s=1)
    try:
        for data, reason in ((b"loop", "more than 1 s"), (b"grow", "bytes of memory"), (b"fail", "is damaged")):
            with pytest.raises(FileRefused, match=reason):
                process.ask({}, data, options)
        with pytest.raises(TemporaryFolderFull, match="is full: let TMPDIR name a folder with room"):
            process.ask({}, b"full", options)
        assert process.ask({}, b"words", options) == {"size": 5}
    finally:
        process.close()
    path.write_text("")
    with pytest.raises(OSError, match=r"Broken pipe|ended without a reply"):
        LimitedProcess(path, "files").ask({}, b"words", options)


def test_a_full_disk_is_no_fault_of_the_file() -> None:
    raise_if_full(OSError(errno.EIO, "broken"))
    for error in (OSError(errno.ENOSPC, "No space left"), TemporaryFolderFull("full")):
        with pytest.raises(TemporaryFolderFull, match="full"):
            raise_if_full(error)
