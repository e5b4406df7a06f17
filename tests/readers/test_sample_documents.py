"""Every file of the shared sample documents, where there are any: none raises, none is lost."""

from __future__ import annotations

import pytest

from hirag_dist.readers import Document, ReadOptions, Unreadable, find_inputs, read_source
from tests.shared_data import SHARED_DATA, needs_shared

SAMPLES = SHARED_DATA / "documents"

pytestmark = needs_shared("documents")

SCROOGE = "Scrooge visited Marley’s grave in London — “Humbug!” he said; it cost £5.\n"

NASTY_TEXT = {
    "control_chars.txt": "\t\n\n\n\n Alice [31mred[0m  Bob\n",
    "cr_only.txt": SCROOGE * 3,
    "crlf.txt": SCROOGE * 3,
    "file name with spaces & ünïcode.txt": "Carol knows Dave.\n",
    "gb18030.txt": "孙悟空大闹天宫，玉皇大帝请如来佛祖。\n",
    "mixed_encodings.txt": SCROOGE * 2 + "孙悟空\n" + SCROOGE,
    "mixed_newlines.txt": SCROOGE * 3 + "a\u2028b\u2029c\nd\n",
    "no_trailing_newline.txt": "Alice knows Bob",
    "nul_bytes.txt": "Alice works at Acme Corp.\n",
    "one_character.txt": "x",
    "shift_jis.txt": "吾輩は猫である。名前はまだ無い。\n",
    "utf16_be_bom.txt": SCROOGE,
    "utf16_le_bom.txt": SCROOGE,
    "utf8_bom.txt": SCROOGE,
    "windows_1252.txt": SCROOGE,
}
NASTY_REASON = {
    "empty.txt": "the text is empty",
    "only_whitespace.txt": "the text is empty",
    "not_really_text.txt": "the content is binary, not text",
    "truncated.pdf": "the PDF is damaged or truncated",
    "only_numbers.csv": "no field named text",
}
NASTY_UNCHANGED = {
    "base64_blob.txt", "delimiter_collision.txt", "duplicate_a.txt", "duplicate_b.txt",
    "emoji_zwj_combining.txt",
    "huge_single_line.txt", "instructions_in_text.txt", "json_like.txt", "long_unbroken_token.txt",
    "near_duplicate.txt", "only_punctuation.txt", "rtl_bidi.txt",
}  # fmt: skip


def read(name: str) -> list[Document | Unreadable]:
    (source,) = find_inputs([str(SAMPLES / name)])
    return list(read_source(source, ReadOptions()))


def test_every_nasty_file_is_expected() -> None:
    there = {path.name for path in (SAMPLES / "nasty").iterdir()}
    assert there == NASTY_TEXT.keys() | NASTY_REASON.keys() | NASTY_UNCHANGED | {"invalid_utf8.txt"}


@pytest.mark.parametrize("name", sorted(NASTY_TEXT))
def test_nasty_files_with_text(name: str) -> None:
    (found,) = read(f"nasty/{name}")
    assert isinstance(found, Document)
    assert (found.text, found.title) == (NASTY_TEXT[name], name.removesuffix(".txt"))


def test_stray_bytes_leave_the_words_around_them() -> None:
    (found,) = read("nasty/invalid_utf8.txt")
    assert isinstance(found, Document)
    assert found.text.startswith("Alice met Bob ")
    assert found.text.endswith(" left.\n\ufffd lone surrogate bytes\n")


@pytest.mark.parametrize("name", sorted(NASTY_UNCHANGED))
def test_nasty_files_that_only_look_bad(name: str) -> None:
    (found,) = read(f"nasty/{name}")
    assert isinstance(found, Document)
    assert found.text == (SAMPLES / "nasty" / name).read_bytes().decode()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.integration) if name.endswith(".pdf") else name  # starts a process
        for name in sorted(NASTY_REASON)
    ],
)
def test_nasty_files_without_text(name: str) -> None:
    (found,) = read(f"nasty/{name}")
    assert isinstance(found, Unreadable)
    assert found.reason.startswith(NASTY_REASON[name])


@pytest.mark.parametrize(
    ("name", "titles"),
    [
        ("dulce.csv", [f"dulce#{record}" for record in range(9)]),
        ("input.csv", ["1", "2", "3"]),
        ("invalid_and_blank_lines.jsonl", ["Hello", None, "Goodbye", None, "Adios"]),
        ("many_objects.json", ["Hello", "Goodbye", "Adios"]),
        ("one.csv", ["Hello", "Goodbye"]),
        ("one.html", ["Test"]),
        ("one.jsonl", ["Hello", "Goodbye", "Adios"]),
        pytest.param("one.parquet", ["Hello", "World"], marks=pytest.mark.integration),  # starts a process
        ("one_object.json", ["Hello"]),
    ],
)
def test_formats(name: str, titles: list[str | None]) -> None:
    found = read(f"formats/{name}")
    assert [each.title if isinstance(each, Document) else None for each in found][: len(titles)] == titles


@pytest.mark.integration
def test_the_pdf_against_another_extraction() -> None:
    (pdf,) = read("bitcoin.pdf")
    (other,) = read("bitcoin_extracted.txt")
    assert isinstance(pdf, Document)
    assert isinstance(other, Document)
    expected = set(other.text.split())  # where it glues words together: "1.Introduction", "Key4.Proof-of-Work"
    assert len(expected & set(pdf.text.split())) / len(expected) > 0.9
    assert "use a proof-of-work system similar to Adam Back's Hashcash [6], rather than" in pdf.text
    assert [each.reason for each in read("small.pdf") if isinstance(each, Unreadable)] == [
        "the PDF has no text layer; run OCR first"
    ]


@pytest.mark.integration
def test_the_whole_folder_yields_something_for_each_file() -> None:
    for source in find_inputs([str(SAMPLES)]):
        found = list(read_source(source, ReadOptions()))
        assert found, source.display
        assert [each.record for each in found] == list(range(len(found)))
