"""Office files, books and mails, made by the libraries that read them."""

from __future__ import annotations

import datetime as dt
import io
import zipfile
from collections.abc import Mapping
from email.message import EmailMessage

import docx
import openpyxl
import pptx


def archive(parts: Mapping[str, str | bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as written:
        for name, content in parts.items():
            written.writestr(name, content)
    return file.getvalue()


def with_parts(data: bytes, parts: Mapping[str, str | bytes]) -> bytes:
    """Return an archive with parts replaced or added."""
    with zipfile.ZipFile(io.BytesIO(data)) as read:
        return archive({name: read.read(name) for name in read.namelist() if name not in parts} | dict(parts))


def word() -> bytes:
    document = docx.Document()
    document.core_properties.title = "Manual"
    document.core_properties.author = "Anna Holm"
    document.add_heading("The lamp", 1)
    document.add_paragraph("The keeper lit the lamp.")
    document.add_paragraph("Oil", style="List Bullet")
    document.add_paragraph("Wick", style="List Bullet")
    document.add_heading("Parts", 2)
    table = document.add_table(rows=2, cols=2)
    for at, text in enumerate(("part", "price|EUR", "lens", "12")):
        table.cell(at // 2, at % 2).text = text
    document.add_paragraph("The end.")
    return saved(document)


def slides() -> bytes:
    presentation = pptx.Presentation()
    presentation.core_properties.title = "Talk"
    first = presentation.slides.add_slide(presentation.slide_layouts[1])
    first.shapes.title.text = "Prices"
    first.placeholders[1].text = "Oil is dear.\nWicks are cheap."
    first.notes_slide.notes_text_frame.text = "Say it slowly."
    second = presentation.slides.add_slide(presentation.slide_layouts[5])
    second.shapes.title.text = "Table"
    cells = second.shapes.add_table(2, 2, 0, 0, 99, 99).table
    for at, text in enumerate(("part", "price", "lens", "12")):
        cells.cell(at // 2, at % 2).text = text
    hidden = presentation.slides.add_slide(presentation.slide_layouts[5])
    hidden.shapes.title.text = "Secret"
    hidden._element.set("show", "0")
    return saved(presentation)


def sheets() -> bytes:
    workbook = openpyxl.Workbook()
    prices = workbook.active
    prices.title = "Prices"
    prices.append(["Prices of parts"])
    prices.append([])
    prices.append([None, "part", "price", "since", "share"])
    prices.append([None, "lens", 12.5, dt.date(2024, 5, 1), 0.25])
    prices.append([None, "wick", 3, dt.datetime.fromisoformat("2024-05-02 08:30"), True])
    prices["E4"].number_format = "0%"
    prices["F5"] = "=C4*2"
    hidden = workbook.create_sheet("Hidden")
    hidden.append(["secret"])
    hidden.sheet_state = "hidden"
    workbook.create_sheet("Empty")
    return saved(workbook)


def book(**parts: str) -> bytes:
    container = '<container><rootfiles><rootfile full-path="OEBPS/a.opf"/></rootfiles></container>'
    package = (
        '<package xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata><dc:title>The Light</dc:title>'
        "<dc:creator>Anna Holm</dc:creator></metadata><manifest>"
        '<item id="n" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/>'
        '<item id="a" href="one%20a.xhtml" media-type="application/xhtml+xml"/>'
        '<item id="b" href="two.xhtml" media-type="application/xhtml+xml"/></manifest>'
        '<spine><itemref idref="n"/><itemref idref="b"/><itemref idref="a"/><itemref idref="gone"/></spine></package>'
    )
    pages = {
        "OEBPS/nav.xhtml": "<html><body><p>Contents</p></body></html>",
        "OEBPS/one a.xhtml": "<!DOCTYPE html><html><p>Before.</p><h1 id='x'>Two</h1><p>It ended.</p></html>",
        "OEBPS/two.xhtml": "<html><body><h1>One</h1><p>The lamp was lit.</p></body></html>",
    }
    named = {name.replace("__", "/").replace("_", "."): content for name, content in parts.items()}
    return archive({"META-INF/container.xml": container, "OEBPS/a.opf": package} | pages | named)


def mail(*attachments: tuple[str, bytes], html: str = "", text: str = "The lamp is lit.") -> bytes:
    message = EmailMessage()
    message["From"] = "Anna Holm <anna@example.org>"
    message["To"] = "keepers@example.org"
    message["Subject"] = "Lämp"
    message["Date"] = "Wed, 01 May 2024 08:30:00 +0200"
    message.set_content(text)
    if html:
        message.add_alternative(html, subtype="html")
    for name, data in attachments:
        message.add_attachment(data, maintype="application", subtype="octet-stream", filename=name)
    return bytes(message)


def saved(document: object) -> bytes:
    file = io.BytesIO()
    document.save(file)  # type: ignore[attr-defined]
    return file.getvalue()


def part(data: bytes, name: str) -> str:
    with zipfile.ZipFile(io.BytesIO(data)) as read:
        return read.read(name).decode()
