from __future__ import annotations

import base64
from email.message import EmailMessage

import pytest

from hirag_dist.readers.model import FileRefused
from hirag_dist.readers.office.mail import read_mail
from tests.readers.office import makers


def text_of(data: bytes) -> str:
    return read_mail(data, 10_000, 1 << 20)[0].text()


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
    assert "Inside." in text_of(base64.b64decode(attached["data"]))


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
