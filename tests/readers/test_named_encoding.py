"""The encoding that the user names, of texts in an encoding that is never guessed."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

Read = Callable[..., list[Any]]
CODEC = "cp852"
TEXT = "Zażółć gęślą jaźń"
BYTES = TEXT.encode(CODEC)
PAGE = b"<html><body><p>" + BYTES + b"</p></body></html>"
MAIL = b"From: a@example.org\r\nSubject: Hello\r\n\r\n" + BYTES


def table(values: list[bytes]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": pa.array(values, pa.binary())}), sink)
    return sink.getvalue()


FILES = [
    ("a.txt", BYTES),
    ("a.md", BYTES),
    ("a.html", PAGE),
    ("a.json", b'[{"text": "' + BYTES + b'"}]'),
    ("a.jsonl", b'{"text": "' + BYTES + b'"}\n'),
    ("a.csv", b"text,n\n" + BYTES + b",1\n"),
    pytest.param("a.eml", MAIL, marks=pytest.mark.integration),
    pytest.param("a.parquet", table([BYTES]), marks=pytest.mark.integration),
]


@pytest.mark.parametrize(("name", "data"), FILES)
def test_it_is_used_in_place_of_a_guess(read: Read, name: str, data: bytes) -> None:
    (guessed,) = read(name, data)
    assert TEXT not in guessed.text
    (found,) = read(name, data, encoding=CODEC)
    assert TEXT in found.text


@pytest.mark.parametrize(("name", "data"), FILES)
def test_what_is_not_in_it_is_refused_with_the_reason(read: Read, name: str, data: bytes) -> None:
    (found,) = read(name, data, encoding="utf-8")
    assert "not utf-8, which reading.encoding (--encoding) names: it has the byte 0x" in found.reason


@pytest.mark.parametrize("data", [TEXT.encode(), TEXT.encode("utf-16"), json.dumps(TEXT).encode()])
def test_what_is_unicode_by_its_bytes_stays_so(read: Read, data: bytes) -> None:
    assert read("a.txt", data, encoding=CODEC) == read("a.txt", data)


def test_a_charset_that_the_file_declares_goes_before(read: Read) -> None:
    page = b'<html><head><meta charset="windows-1250"></head><p>' + TEXT.encode("cp1250")
    assert read("a.html", page, encoding=CODEC)[0].text == TEXT


@pytest.mark.integration
def test_a_charset_that_a_mail_declares_goes_before(read: Read) -> None:
    header = (
        b"Subject: Hello\r\nContent-Type: text/plain; charset=windows-1250\r\nContent-Transfer-Encoding: 8bit\r\n\r\n"
    )
    assert TEXT in read("a.eml", header + TEXT.encode("cp1250"), encoding=CODEC)[0].text


def test_records_before_a_damaged_batch_are_kept(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hirag_dist.readers.encoding._BATCH_SIZE", 20)
    kept, lost = read("a.jsonl", b'{"text": "a good one"}\n{"text": "\x81"}\n', encoding="windows-1252")
    assert (kept.text, lost.record) == ("a good one", 1)
    assert "0x81 where windows-1252 has no such character" in lost.reason
