"""Office files, books and mails."""

from __future__ import annotations

import base64
import io
import random
import struct
import zipfile
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import openpyxl
import pptx
import pytest

from hirag_dist.readers import Document, find_inputs, missing_packages, office_files
from hirag_dist.readers.model import FileRefused
from hirag_dist.readers.office import sheets
from hirag_dist.readers.office.archive import check_xml, open_archive, read_part
from hirag_dist.readers.office.book import read_book
from hirag_dist.readers.office.mail import read_mail
from hirag_dist.readers.office.placed_text import PlacedText
from hirag_dist.readers.office.program import import_reader, read_file
from hirag_dist.readers.office.slides import read_slides
from hirag_dist.readers.office.word import read_word
from hirag_dist.readers.office_files import missing_package
from tests.readers import office_makers as makers

WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


def body(content: str) -> PlacedText:
    """The text of a file with this body."""
    document = f"<w:document {WORD}><w:body>{content}</w:body></w:document>"
    return read_word(makers.with_parts(makers.word(), {"word/document.xml": document}), 10_000)


def test_headings_lists_and_tables() -> None:
    found = read_word(makers.word(), 10_000)
    assert found.text() == (
        "# The lamp\n\nThe keeper lit the lamp.\n\n- Oil\n- Wick\n\n## Parts\n\n"
        "| part | price\\|EUR |\n| --- | --- |\n| lens | 12 |\n\nThe end."
    )
    assert [place["section"] for place in found.places()] == ["The lamp", "Parts"]
    assert (found.title, found.properties["author"]) == ("Manual", "Anna Holm")


def test_tracked_changes_and_controls() -> None:
    found = body(
        "<w:p><w:r><w:t>The </w:t></w:r><w:ins><w:r><w:t>new</w:t></w:r></w:ins><w:del><w:r><w:delText>old</w:delText>"
        "<w:t>old</w:t></w:r></w:del><w:r><w:t> lamp</w:t><w:tab/><w:t>shines</w:t><w:br/><w:t>here</w:t></w:r></w:p>"
        "<w:sdt><w:sdtContent><w:p><w:r><w:t>Within a control.</w:t></w:r></w:p></w:sdtContent></w:sdt>"
    )
    assert found.text() == "The new lamp shines\nhere\n\nWithin a control."


def test_footnotes_follow_their_paragraph() -> None:
    notes = f"<w:footnotes {WORD}><w:footnote w:type='separator' w:id='0'/>"
    notes += "<w:footnote w:id='2'><w:p><w:r><w:t>In 1921.</w:t></w:r></w:p></w:footnote></w:footnotes>"
    kind = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    data = makers.word()
    relations = makers.part(data, "word/_rels/document.xml.rels").replace(
        "</Relationships>", f'<Relationship Id="n1" Type="{kind}/footnotes" Target="footnotes.xml"/></Relationships>'
    )
    types = makers.part(data, "[Content_Types].xml").replace(
        "</Types>",
        '<Override PartName="/word/footnotes.xml" ContentType="application/vnd.openxmlformats-officedocument.'
        'wordprocessingml.footnotes+xml"/></Types>',
    )
    document = (
        f"<w:document {WORD}><w:body><w:p><w:r><w:t>Lit.</w:t><w:footnoteReference w:id='2'/></w:r></w:p>"
        "<w:p><w:r><w:t>Next.</w:t></w:r></w:p></w:body></w:document>"
    )
    parts = {"word/document.xml": document, "word/footnotes.xml": notes}
    parts |= {"word/_rels/document.xml.rels": relations, "[Content_Types].xml": types}
    assert read_word(makers.with_parts(data, parts), 1000).text() == "Lit.[^2]\n\n[^2]: In 1921.\n\nNext."


def run(text: str, position: str = "") -> str:
    form = f"<w:rPr><w:vertAlign w:val='{position}'/></w:rPr>" if position else ""
    return f"<w:r>{form}<w:t xml:space='preserve'>{text}</w:t></w:r>"


def test_raised_and_lowered_digits_in_a_text() -> None:
    half = run("1", "superscript") + run("/") + run("2", "subscript")
    runs = [run("Use "), half, run(" of 3"), half, run(" and 10"), run("6", "superscript"), run("/"), run("2")]
    assert body(f"<w:p>{''.join(runs)}</w:p>").text() == "Use 1/2 of 3 1/2 and 10^6/2"
    low = "subscript"
    base = run("101") + run("1", low) + run("0", low) + run(" and v") + run("1", low) + run(", 10") + run("x", low)
    assert body(f"<w:p>{run('H')}{run('2', low)}{run('O is ')}{base}</w:p>").text() == "H2O is 101_10 and v1, 10x"


def test_slides_with_notes_and_tables() -> None:
    found = read_slides(makers.slides(), 10_000)
    assert found.text() == (
        "## Prices\n\nOil is dear.\nWicks are cheap.\n\nNotes: Say it slowly.\n\n"
        "## Table\n\n| part | price |\n| --- | --- |\n| lens | 12 |"
    )
    assert [(place["kind"], place["page"], place["section"]) for place in found.places()] == [
        ("slide", 1, "Prices"),
        ("slide", 2, "Table"),
    ]
    assert found.title == "Talk"


def test_raised_and_lowered_digits_on_a_slide() -> None:
    presentation = pptx.Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[1])
    paragraph = slide.placeholders[1].text_frame.paragraphs[0]
    low, high = "-25000", "30000"
    for text, baseline in (("H", ""), ("2", low), ("O, 101", "0"), ("1", low), ("0", low), (", 10", ""), ("6", high)):
        run = paragraph.add_run()
        run.text = text
        if baseline:
            run.font._element.set("baseline", baseline)
    assert read_slides(makers.saved(presentation), 10_000).text() == "H2O, 101_10, 10^6"


def test_values_by_sheet_and_row() -> None:
    found = sheets.read_sheets(makers.sheets(), 10_000)
    assert found.text() == (
        "## Prices\n\nPrices of parts\n\n| part | price | since | share |\n| --- | --- | --- | --- |\n"
        "| lens | 12.5 | 2024-05-01 | 25% |\n| wick | 3 | 2024-05-02 08:30:00 | TRUE |"
    )
    text = found.text()
    rows = {place["row"]: text[place["start"] : place["end"]].split()[1] for place in found.places() if place["row"]}
    assert rows == {1: "of", 3: "part", 4: "lens", 5: "wick"}
    assert {place["section"] for place in found.places()} == {"Prices"}


def test_the_header_of_a_long_table_is_repeated() -> None:
    workbook = openpyxl.Workbook()
    workbook.active.append(["part", "price"])
    for row in range(400):
        workbook.active.append([f"part {row}", row])
    text = sheets.read_sheets(makers.saved(workbook), 100_000).text()
    assert text.count("| part | price |") == 5
    assert max(map(len, text.split("\n\n"))) < 1700


def test_a_limit_of_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sheets, "MAX_CELLS", 5)
    with pytest.raises(FileRefused, match="more than 5 cells"):
        sheets.read_sheets(makers.sheets(), 10_000)


def book(**parts: str) -> tuple[PlacedText, list[str]]:
    return read_book(zipfile.ZipFile(io.BytesIO(makers.book(**parts))), 10_000, 1 << 24)


def test_chapters_in_reading_order() -> None:
    found, lost = book()
    assert lost == ["chapter gone is not in the list of the book's files"]
    assert found.text() == "One\n\nThe lamp was lit.\n\nBefore.\n\nTwo\n\nIt ended."
    assert [(place["kind"], place["section"], place["anchor"]) for place in found.places()] == [
        ("chapter", "One", "two.xhtml"),
        ("chapter", "Two", "one a.xhtml"),
        ("chapter", "Two", "one a.xhtml#x"),
    ]
    assert (found.title, found.properties["creator"]) == ("The Light", "Anna Holm")


ENCRYPTED = "<encryption><EncryptedData><EncryptionMethod Algorithm='{}'/></EncryptedData></encryption>"


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"META-INF__encryption_xml": ENCRYPTED.format("http://www.w3.org/2001/04/xmlenc#aes128-cbc")}, "DRM"),
        ({"META-INF__container_xml": "<container/>"}, "no electronic book"),
        ({"OEBPS__a_opf": '<!DOCTYPE x [<!ENTITY a "b">]><package>&a;'}, "is no XML"),
    ],
)
def test_books_that_cannot_be_read(parts: dict[str, str], reason: str) -> None:
    with pytest.raises(FileRefused, match=reason):
        book(**parts)


def test_a_chapter_that_cannot_be_read_costs_itself_alone() -> None:
    found, lost = book(OEBPS__two_xhtml="<div>" * 3000)
    assert found.text() == "Before.\n\nTwo\n\nIt ended."
    assert lost[0].startswith("chapter two.xhtml: the page is nested too deeply")


def test_headers_text_and_attachments() -> None:
    found, attachments = read_mail(makers.mail(("a.txt", b"hello"), ("b/c.bin", b"\0")), 10_000, 1 << 20)
    assert found.text() == (
        "# Lämp\n\nFrom: Anna Holm <anna@example.org>\nTo: keepers@example.org\nDate: 2024-05-01 08:30:00+02:00\n\n"
        "The lamp is lit.\n\nAttachments: a.txt, b_c.bin"
    )
    assert [(each["name"], base64.b64decode(each["data"])) for each in attachments] == [
        ("a.txt", b"hello"),
        ("b_c.bin", b"\0"),
    ]
    assert found.properties["Date"] == "2024-05-01 08:30:00+02:00"


@pytest.mark.parametrize(
    ("charset", "content"),
    [
        ("koi8-r", "text/plain; charset=koi8-r"),
        ("windows-1251", "text/plain"),
        ("iso-8859-1", "text/plain; charset=us-ascii"),
        ("utf-8", "text/plain"),
    ],
)
def test_headers_of_8_bits_are_decoded_as_bodies_are(charset: str, content: str) -> None:
    subject = "Größe der Lämpchen für Übungen" if charset == "iso-8859-1" else "Отчёт о работе маяка за сентябрь"
    head = f"From: a@example.org\r\nSubject: {subject}\r\nContent-Type: {content}\r\n\r\n"
    found, _ = read_mail(head.encode(charset) + b"Lit.", 10_000, 1 << 20)
    assert found.title == subject
    assert found.text().endswith("\n\nLit.")


@pytest.mark.parametrize("charset", ["koi8-r", "windows-1251", "utf-8"])
@pytest.mark.parametrize("header", ["Content-Disposition: attachment; filename", "Content-Type: application/pdf; name"])
def test_names_of_attachments_of_8_bits_are_decoded_as_headers_are(charset: str, header: str) -> None:
    mail = (
        "From: a@example.org\r\nSubject: Маяк\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n"
        f"--b\r\nContent-Type: text/plain; charset={charset}\r\n\r\nЗажжён.\r\n-- \r\nСторож\r\n"
        f'--b\r\nContent-ID: <1>\r\n{header}="Отчёт за сентябрь.pdf"\r\n\r\n%PDF\r\n--b--\r\n'
    )
    found, attachments = read_mail(mail.encode(charset), 10_000, 1 << 20)
    assert [each["name"] for each in attachments] == ["Отчёт за сентябрь.pdf"]
    assert "Сторож" in found.text()


def test_a_mail_in_a_mail_and_a_picture_in_the_text() -> None:
    inner, outer = EmailMessage(), EmailMessage()
    inner["Subject"] = "Inner"
    inner.set_content("Inside.")
    outer["Subject"] = "Outer"
    outer.set_content("Outside.")
    outer.add_attachment(inner)
    outer.add_attachment(b"x", maintype="image", subtype="png", filename="logo.png", disposition="inline")
    found, attachments = read_mail(bytes(outer), 10_000, 1 << 20)
    assert "Inside." not in found.text()
    (attached,) = attachments
    assert attached["name"] == "mail.eml"
    assert "Inside." in read_mail(base64.b64decode(attached["data"]), 10_000, 1 << 20)[0].text()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"just words", "no header"),
        (b"Subject: x\nContent-Type: application/pkcs7-mime\n\nabc", "encrypted"),
        (b"Subject: x\nContent-Type: text/plain\n\n\0\0\0\0\1\1\1\1", "no text"),
    ],
)
def test_mails_that_cannot_be_read(data: bytes, reason: str) -> None:
    with pytest.raises(FileRefused, match=reason):
        read_mail(data, 10_000, 1 << 20)


def test_a_bomb_is_refused_by_what_it_declares_and_is_damaged_where_it_declares_little() -> None:
    data = makers.archive({"word/document.xml": b"x" * 1_000_000})
    assert len(data) < 2000
    with pytest.raises(FileRefused, match="larger than 999999 bytes"):
        open_archive(data, 999_999)
    opened = open_archive(data.replace(struct.pack("<L", 1_000_000), struct.pack("<L", 10)), 1000)
    with pytest.raises(FileRefused, match="damaged"):
        read_part(opened, "word/document.xml")


def test_encrypted_files() -> None:
    with pytest.raises(FileRefused, match="encrypted, or in the binary format"):
        open_archive(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 99, 1000)
    data = bytearray(makers.archive({"a": "x"}))
    data[data.index(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(FileRefused, match="remove its password"):
        open_archive(bytes(data), 1000)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_declarations_of_entities(encoding: str) -> None:
    bomb = '<?xml version="1.0"?><!-- ' + "x" * 99 + ' --><!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'
    file = zipfile.ZipFile(io.BytesIO(makers.archive({"xl/workbook.xml": bomb.encode(encoding)})))
    with pytest.raises(FileRefused, match="document type declaration"):
        check_xml(file)


MAKERS = {"docx": makers.word, "pptx": makers.slides, "xlsx": makers.sheets, "epub": makers.book, "eml": makers.mail}


@pytest.mark.parametrize("form", MAKERS)
def test_damaged_files_are_refused_or_read_and_never_raise(form: str) -> None:
    limits = {"max_chars": 100_000, "max_bytes": 1 << 24, "max_tree_bytes": 1 << 24, "encoding": None}
    import_reader({"form": form})
    data = MAKERS[form]()
    draw = random.Random(form)
    others = [make() for other, make in MAKERS.items() if other != form]
    damaged = [data[: draw.randrange(len(data))] for _ in range(8)] + [b"PK\x05\x06", b"\0" * 40, *others]
    for _ in range(8):
        changed = bytearray(data)
        for _ in range(draw.randrange(1, 30)):
            changed[draw.randrange(len(data))] = draw.randrange(256)
        damaged.append(bytes(changed))
    for each in damaged:
        assert {"text", "refused", "error"} & read_file({"form": form} | limits, each).keys()
    assert read_file({"form": form} | limits, data)["text"]


@pytest.mark.integration
@pytest.mark.smoke
def test_files_are_read_in_the_process_with_limits(read: Any) -> None:
    (word,) = read("a.docx", makers.word())
    assert (word.title, word.text.split("\n")[0], word.places[0].section) == ("Manual", "# The lamp", "The lamp")
    attachments = ("b.docx", makers.word()), ("c.jsonl", b'{"text": "one"}\n{"text": "two"}\n'), ("d.zip", b"x")
    inner = makers.mail(("e.html", b"<h1 id='x'>Deep</h1><p>words</p>"), ("f.docx", b"broken"))
    found = read("a.eml", makers.mail(*attachments, ("in.eml", inner)))
    assert [each.record for each in found] == list(range(7))
    documents = [each for each in found if isinstance(each, Document)]
    assert [each.title for each in documents] == ["Lämp", "Manual", "one", "two", "Lämp", "Deep"]
    assert "d.zip" in documents[0].text
    assert [each.places[0].section for each in documents[1:4]] == ["The lamp", "c.jsonl", "c.jsonl"]
    assert found[-1].reason == "attachment in.eml: attachment f.docx: the file is damaged or truncated"
    assert read("a.pptx", b"")[0].reason == "the file is empty"
    assert "is larger than 5 bytes" in read("a.xlsx", makers.sheets(), max_file_bytes=5)[0].reason
    long = read("a.docx", makers.word(), max_document_bytes=20)
    assert [each.reason[:39] for each in long] == ["the text is longer than 20 bytes: split"]
    body = f"<w:document {WORD}><w:body>{'<w:p/>' * 500_000}</w:body></w:document>"
    small = read("a.docx", makers.with_parts(makers.word(), {"word/document.xml": body}), memory_bytes=1 << 20)
    assert [each.reason[:33] for each in small] == ["the file takes more than 1048576 "]


def test_a_package_that_is_not_installed(read: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(office_files.PACKAGES, "docx", ("no_such_module", "python-docx"))
    reason = "the file needs python-docx: pip install 'hirag-dist[documents]', and run the same command again"
    assert missing_package("docx") == reason
    assert missing_package("pdf") == ""
    assert [each.reason for each in read("a.docx", makers.word())] == [reason]
    notice = missing_packages(find_inputs([str(tmp_path / "a.docx")]))
    assert notice.endswith(
        "without the extra `documents`: pip install 'hirag-dist[documents]', and run the same command again"
    )
    assert missing_packages(()) == ""
