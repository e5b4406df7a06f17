from __future__ import annotations

import io
import zipfile

import pytest

from hirag_dist.readers.model import FileRefused
from hirag_dist.readers.office.book import read_book
from hirag_dist.readers.office.placed_text import PlacedText
from tests.readers.office import makers


def book(data: bytes) -> tuple[PlacedText, list[str]]:
    return read_book(zipfile.ZipFile(io.BytesIO(data)), 10_000, 1 << 24)


def test_chapters_in_reading_order() -> None:
    found, lost = book(makers.book())
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
        book(makers.book(**parts))


def test_a_chapter_that_cannot_be_read_costs_itself_alone() -> None:
    found, lost = book(makers.book(OEBPS__two_xhtml="<div>" * 3000))
    assert found.text() == "Before.\n\nTwo\n\nIt ended."
    assert lost[0].startswith("chapter two.xhtml: the page is nested too deeply")
