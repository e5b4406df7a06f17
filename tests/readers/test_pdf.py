"""PDFs: text, pages, boxes and properties, and what cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hirag_dist.readers.pdf import join_pages


def starts_a_process(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that starts the process that reads PDFs; it runs with the unit tests all the same."""
    return pytest.mark.integration(pytest.mark.smoke(test))


def make_pdf(pages: list[list[str]], title: str = "", extra: str = "") -> bytes:
    """Return a PDF with lines of text in Helvetica."""
    kids = " ".join(f"{4 + 2 * index} 0 R" for index in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for lines in pages:
        content = "BT /F1 10 Tf 14 TL 50 750 Td " + " ".join(f"({line}) Tj T*" for line in lines) + " ET"
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {len(objects) + 2} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>"
        )
        objects.append(f"<< /Length {len(content)} >>\nstream\n{content}\nendstream")
    objects.append(f"<< /Title ({title}) >>")
    body, offsets = "%PDF-1.4\n", []
    for number, each in enumerate(objects, start=1):
        offsets.append(len(body))
        body += f"{number} 0 obj\n{each}\nendobj\n"
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    trailer = f"<< /Size {len(objects) + 1} /Root 1 0 R /Info {len(objects)} 0 R {extra} >>"
    return (
        f"{body}xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}"
        f"trailer\n{trailer}\nstartxref\n{len(body)}\n%%EOF\n"
    ).encode("latin-1")


@starts_a_process
def test_the_text_layer_is_read(read: Any) -> None:
    (found,) = read("a.pdf", make_pdf([["Alice met Bob."], ["Bob left."]], title="Report"))
    assert (found.title, found.text) == ("Report", "Alice met Bob.\n\nBob left.")
    assert read("a.pdf", make_pdf([["Alice"]]))[0].title == "a"
    assert read("a.pdf", make_pdf([["Alice"]], title="about:blank"))[0].title == "a"
    assert read("a.pdf", make_pdf([["Alice"]], title="About: Blank"))[0].title == "About: Blank"


@starts_a_process
def test_each_line_has_its_page_and_its_box(read: Any) -> None:
    (found,) = read("a.pdf", make_pdf([["Alice met Bob.", "They spoke."], [], ["Bob left."]]))
    assert [(place.kind, place.page, found.text[place.start : place.end]) for place in found.places] == [
        ("page", 1, "Alice met Bob."),
        ("page", 1, "They spoke."),
        ("page", 3, "Bob left."),
    ]
    boxes = [np.frombuffer(place.boxes, "<u2") / 65_535 for place in found.places]
    left, top, right, bottom = boxes[0]
    assert left == pytest.approx(50 / 612, abs=0.01)  # where the text is set
    assert bottom == pytest.approx((792 - 750) / 792, abs=0.01)
    assert left < right < 0.5
    assert top < bottom < boxes[1][1] + 0.01


@starts_a_process
def test_pdfs_that_cannot_be_read(read: Any) -> None:
    good = make_pdf([["Alice met Bob."]])
    locked = make_pdf(
        [["Alice"]],
        extra=f"/ID [<00> <00>] /Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O <{'41' * 32}> /U <{'42' * 32}> >>",
    )
    reasons = {
        good[:200]: "the PDF is damaged or truncated",
        b"Alice met Bob.": "the file is no PDF",
        b"": "the file is empty",
        make_pdf([[]]): "the PDF has no text layer; run OCR first",
        locked: "the PDF is encrypted; remove its password first",
    }
    for data, reason in reasons.items():
        assert [each.reason for each in read("a.pdf", data)] == [reason]


def test_lines_of_a_paragraph_are_joined() -> None:
    page = (
        "Heading\r\nThe quick brown fox jumps over the lazy dog and then it\r\n"
        "runs away from here as fast as it can, over\r\nthe hill.\r\n"
        "1. An item that is about as long as the other lines\r\n2. Another item\r\n7"
    )
    assert join_pages([page])[0].split("\n") == [
        "Heading",
        "The quick brown fox jumps over the lazy dog and then it runs away from here as fast as it can, over the hill.",
        "1. An item that is about as long as the other lines",
        "2. Another item",
        "7",
    ]
