"""Encodings that are found, named by the user or declared, and characters that are no text."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hirag_dist.readers import clean_text
from hirag_dist.readers.encoding import NotText, cleaned_offsets, decode_text, text_lines
from hirag_dist.readers.model import InputTooLarge

CHINESE = "孙悟空大闹天宫，玉皇大帝请如来佛祖。"
JAPANESE = "吾輩は猫である。名前はまだ無い。"
KOREAN = "모든 인간은 태어날 때부터 자유로우며 존엄하다."
RUSSIAN = "Все люди рождаются свободными и равными."
GREEK = "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι"
GREEK_CAPITALS = "ΚΑΝΟΝΙΣΜΟΣ ΛΕΙΤΟΥΡΓΙΑΣ ΤΟΥ ΛΙΜΕΝΑ ΤΗΣ ΝΑΥΠΛΙΟΥ"
POLISH = "Wszyscy ludzie rodzą się wolni i równi pod względem swej godności"
CZECH = "Všichni lidé rodí se svobodní a sobě rovní"
FRENCH = "Tous les êtres humains naissent libres et égaux en dignité"
ENGLISH = "Marley’s grave — “Humbug!” he said; it cost £5."


@pytest.mark.parametrize(
    ("text", "codec"),
    [
        (CHINESE, "gb18030"),
        (CHINESE[:3], "gb18030"),
        (JAPANESE, "euc_jp"),
        (JAPANESE, "iso2022_jp"),
        (KOREAN, "cp949"),
        (RUSSIAN, "koi8_r"),
        (GREEK, "cp1253"),
        (POLISH, "cp1250"),
        (CZECH, "cp1250"),
        (RUSSIAN.upper(), "cp1251"),
        (GREEK_CAPITALS, "iso8859_7"),
        (ENGLISH, "cp1252"),
    ],
)
def test_a_line_in_a_legacy_encoding(text: str, codec: str) -> None:
    assert decode_text(text.encode(codec)) == text


@pytest.mark.parametrize("codec", ["utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("mark", [True, False])
def test_unicode_with_and_without_a_byte_order_mark(codec: str, mark: bool) -> None:
    assert decode_text((("\ufeff" if mark else "") + ENGLISH).encode(codec)).removeprefix("\ufeff") == ENGLISH


def test_several_encodings_in_one_file() -> None:
    lines = [ENGLISH.encode(), ENGLISH.encode("cp1252"), CHINESE[:3].encode("gb18030"), ENGLISH.encode()]
    assert decode_text(b"\n".join(lines)).split("\n") == [ENGLISH, ENGLISH, CHINESE[:3], ENGLISH]


def test_damaged_utf8_keeps_the_rest() -> None:
    damaged = (FRENCH + " " + RUSSIAN).encode().replace(" ê".encode(), b" \xff\xc3\xaa")
    assert decode_text(damaged) == (FRENCH + " " + RUSSIAN).replace(" ê", " \ufffdê")


def test_a_declared_charset_is_believed_unless_the_bytes_are_utf8() -> None:
    assert decode_text(b"\xe9\xe8", "ISO-8859-1") == "éè"
    assert decode_text("é".encode(), "big5") == "é"


@pytest.mark.parametrize(
    "data", [b"\x89PNG\r\n\x1a\n" + bytes(range(256)), b"PK\x03\x04" + bytes(100), bytes(5000), bytes(range(256)) * 20]
)
def test_binary_is_refused(data: bytes) -> None:
    with pytest.raises(NotText, match="binary"):
        decode_text(data)


def lines(data: bytes, limit: int = 1 << 20) -> list[str]:
    return list(text_lines(io.BufferedReader(io.BytesIO(data)), limit))


def test_line_ends() -> None:
    assert lines(b"a\nb\r\nc\rd\n\ne") == ["a", "b", "c", "d", "", "e"]
    assert lines(b"a\n") == ["a"]
    assert lines(b"") == []
    assert lines(b"a\x0cb\n" + "c\x85d\n".encode()) == ["a\nb", "c\nd"]  # these end no record


def test_a_line_beyond_the_limit() -> None:
    stream = text_lines(io.BufferedReader(io.BytesIO(b"short\n" + b"x" * 100)), 50)
    assert next(stream) == "short"
    with pytest.raises(InputTooLarge, match="longer than 50"):
        next(stream)


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
def test_a_named_encoding_takes_the_place_of_a_guess_and_what_is_not_in_it_is_refused(
    read: Any, name: str, data: bytes
) -> None:
    (guessed,) = read(name, data)
    assert TEXT not in guessed.text
    (found,) = read(name, data, encoding=CODEC)
    assert TEXT in found.text
    (refused,) = read(name, data, encoding="utf-8")
    assert "not utf-8, which reading.encoding (--encoding) names: it has the byte 0x" in refused.reason


@pytest.mark.parametrize("data", [TEXT.encode(), TEXT.encode("utf-16")])
def test_what_is_unicode_by_its_bytes_stays_so(read: Any, data: bytes) -> None:
    assert read("a.txt", data, encoding=CODEC) == read("a.txt", data)


HEADER = b"Subject: Hello\nContent-Type: text/plain; charset=windows-1250\nContent-Transfer-Encoding: 8bit\n\n"


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("a.html", b'<html><head><meta charset="windows-1250"></head><p>'),
        pytest.param("a.eml", HEADER, marks=pytest.mark.integration),
    ],
)
def test_a_charset_that_the_file_declares_goes_before(read: Any, name: str, head: bytes) -> None:
    assert TEXT in read(name, head + TEXT.encode("cp1250"), encoding=CODEC)[0].text


def test_records_before_a_damaged_batch_are_kept(read: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hirag_dist.readers.encoding._BATCH_SIZE", 20)
    kept, lost = read("a.jsonl", b'{"text": "a good one"}\n{"text": "\x81"}\n', encoding="windows-1252")
    assert (kept.text, lost.record) == ("a good one", 1)
    assert "0x81 where windows-1252 has no such character" in lost.reason


@pytest.mark.parametrize(
    ("dirty", "clean"),
    [
        ("\ufeffAlice", "Alice"),
        ("a\r\nb\rc\nd", "a\nb\nc\nd"),
        ("page\x0cpage\x0bline\x85end", "page\npage\nline\nend"),
        ("A\x00l\x01i\x1bc\x7fe\x9f\tBob", "Alice\tBob"),
        ("\ud800x\udfff", "\ufffdx\ufffd"),
        ("e\u0301 \u00e9 \u200bzero \ufeffinside \u202erl \U0001f469\u200d\U0001f467 \ufb01 \u2028", None),
    ],
)
def test_only_what_is_no_text_goes(dirty: str, clean: str | None) -> None:
    assert clean_text(dirty) == (dirty if clean is None else clean)


@given(st.text(alphabet="a\ufeff\r\n\x00\x85\ud800é", max_size=12), st.integers(0, 12))
def test_offsets_in_the_cleaned_text(text: str, offset: int) -> None:
    """A character that stays is where its offset leads, and what is before it is what is before it there."""
    at = cleaned_offsets(text)
    assert at(0) == 0
    assert at(len(text)) == len(clean_text(text))
    if offset < len(text) and text[offset] == "a":
        assert clean_text(text)[at(offset)] == "a"
        assert clean_text(text)[: at(offset)].count("a") == text[:offset].count("a")
