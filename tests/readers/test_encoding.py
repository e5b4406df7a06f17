from __future__ import annotations

import io

import pytest

from hirag_dist.readers.encoding import NotText, decode_text, text_lines
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
