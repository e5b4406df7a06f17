"""Mails (.eml): headers and text, and the attachments as files of their own."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from email import message_from_bytes, policy
from email.errors import MessageError
from email.message import EmailMessage, Message, MIMEPart

from hirag_dist.readers.encoding import NotText, clean_text, decode_text
from hirag_dist.readers.html import parse_page
from hirag_dist.readers.model import FileRefused
from hirag_dist.readers.office.placed_text import PlacedText

MAX_PARTS = 1000
_PART = re.compile(rb"^content-type:", re.IGNORECASE | re.MULTILINE)
_HEAD_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_PART_HEAD = re.compile(rb"^--[^\r\n]+\r?\n(Content-[^\r\n]*(?:\r?\n[^\r\n]+)*)", re.IGNORECASE | re.MULTILINE)
_CHARSET = re.compile(rb"charset\s*=\s*\"?([\w.:-]+)", re.IGNORECASE | re.ASCII)
_SHOWN = ("From", "To", "Cc")
_ENCRYPTED = frozenset(("application/pkcs7-mime", "application/x-pkcs7-mime", "multipart/encrypted"))
_SIGNATURES = frozenset(("application/pkcs7-signature", "application/x-pkcs7-signature", "application/pgp-signature"))
_MAX_HEADER_CHARS = 2000
_HEADERS = frozenset(("from", "to", "subject", "date", "received", "message-id", "return-path", "mime-version"))


def read_mail(
    data: bytes, max_chars: int, max_tree_bytes: int, encoding: str | None = None
) -> tuple[PlacedText, list[dict[str, str]]]:
    """Return the text of a mail, and its attachments: `name`, and `data` in base64.

    Args:
        max_tree_bytes: limit of the memory of a parsed page of HTML.
        encoding: that the user names, for texts that declare none.

    Raises:
        FileRefused: it is no mail, is encrypted, has too many parts, or is not in the named encoding.
    """
    if len(_PART.findall(data)) > 2 * MAX_PARTS:  # before they are parsed, which takes time quadratic in them
        raise FileRefused(f"the mail has more than {MAX_PARTS} parts")
    data = _with_utf8_heads(data, encoding)
    message = message_from_bytes(data, policy=policy.default.clone(max_line_length=None))
    if not isinstance(message, EmailMessage) or not _HEADERS & {name.lower() for name in message}:
        raise FileRefused("the file is no mail: it has no header")
    if message.get_content_type() in _ENCRYPTED:
        raise FileRefused("the mail is encrypted: save it decrypted")
    if sum(1 for _ in message.walk()) > MAX_PARTS:
        raise FileRefused(f"the mail has more than {MAX_PARTS} parts")
    body = message.get_body(preferencelist=("plain", "html"))
    text = "" if body is None else _body_text(body, max_tree_bytes, encoding)
    if not text.strip() and body is not None and body.get_content_type() == "text/plain":
        other = message.get_body(preferencelist=("html",))
        text = "" if other is None else _body_text(other, max_tree_bytes, encoding)
    others = [part for part in _attachments(message, body) if part.get_content_type() not in _SIGNATURES]
    attachments = [part for part in others if not _is_text(part)]
    texts = [text, *(_body_text(part, max_tree_bytes, encoding) for part in others if _is_text(part))]
    found = PlacedText(max_chars)
    subject = _header(message, "Subject")
    found.add(f"# {subject}" if subject else "")
    lines = [f"{name}: {value}" for name in _SHOWN if (value := _header(message, name))]
    try:  # in ISO 8601, with the offset that it has
        date = str(message["Date"].datetime.isoformat(" "))
    except (MessageError, ValueError, IndexError, AttributeError, TypeError, OverflowError):
        date = _header(message, "Date")
    lines += [f"Date: {date}"] if date else []
    found.add("\n".join(lines))
    for text in texts:
        found.add(text.strip())
    named = [{"name": _name(part), "data": base64.b64encode(_content(part)).decode()} for part in attachments]
    if named:
        found.add(f"Attachments: {', '.join(each['name'] for each in named)}")
    found.title = subject
    found.properties = {name: value for name in (*_SHOWN, "Subject") if (value := _header(message, name))}
    found.properties |= {"Date": date} if date else {}
    return found, named


def _with_utf8_heads(data: bytes, encoding: str | None) -> bytes:
    """Return a mail whose headers, its parts' too, are UTF-8: the parser puts U+FFFD for other undeclared bytes.

    They are decoded as a text of the mail is, by the first charset that the mail declares, else by a guess.
    """
    end = _HEAD_END.search(data)
    heads = [(0, end.start() if end else len(data)), *(part.span(1) for part in _PART_HEAD.finditer(data))]
    charset = declared[1].decode() if (declared := _CHARSET.search(data)) else None
    pieces, at = [], 0
    for first, last in heads:
        head = data[first:last]
        if first < at or head.isascii():
            continue
        try:
            pieces += [data[at:first], decode_text(head, charset, encoding).encode()]
        except (NotText, FileRefused):
            continue
        at = last
    return b"".join([*pieces, data[at:]])


def _is_text(part: MIMEPart) -> bool:
    """Check that a part is shown as text of its mail, such as what follows a picture."""
    is_attached = part.get_content_disposition() == "attachment" or part.get_filename() is not None
    return part.get_content_type() in ("text/plain", "text/html") and not is_attached


def _attachments(message: MIMEPart, body: MIMEPart | None) -> Iterator[MIMEPart]:
    """Yield the parts that are neither the body nor another form of a text nor pictures in it."""
    if message.get_content_type() == "message/rfc822":
        return
    if not message.is_multipart():
        if message is not body:
            yield message
        return
    if message.get_content_subtype() == "alternative":
        forms = list(message.walk())
        if body not in forms and (text := message.get_body(preferencelist=("plain", "html"))) is not None:
            yield text
        for part in message.iter_parts():
            if part.is_multipart() and part is not body:
                yield from _attachments(part, body)
        return
    for part in message.iter_parts():
        if part is body:
            continue
        if part.get_content_maintype() == "multipart":
            yield from _attachments(part, body)
        elif part.get_content_disposition() != "inline" or part.get_content_maintype() != "image":
            yield part


def _body_text(part: MIMEPart, max_tree_bytes: int, encoding: str | None) -> str:
    data = _content(part)
    charset = part.get_content_charset()
    try:
        text = clean_text(decode_text(data, charset, encoding))
        if part.get_content_type() != "text/html":
            return text
        page = parse_page(text.encode(), max_tree_bytes)
    except (NotText, LookupError) as error:
        raise FileRefused("the body of the mail is no text") from error
    if isinstance(page, str):
        raise FileRefused(f"the body of the mail: {page}")
    return page.text


def _content(part: MIMEPart) -> bytes:
    """Return the bytes of a part, of a mail that is attached the mail itself."""
    if part.get_content_type() == "message/rfc822":
        inner = part.get_payload()
        first = inner[0] if isinstance(inner, list) and inner else None
        return first.as_bytes() if isinstance(first, Message) else b""
    payload = part.get_payload(decode=True)
    return payload if isinstance(payload, bytes) else b""


def _name(part: MIMEPart) -> str:
    name = " ".join(clean_text(part.get_filename() or "").split()).replace("/", "_")[:200]
    if part.get_content_type() == "message/rfc822":
        return name if name.lower().endswith(".eml") else f"{name or 'mail'}.eml"
    return name or f"part.{part.get_content_subtype()}"


def _header(message: MIMEPart, name: str) -> str:
    try:
        value = str(message.get(name, ""))
    except (MessageError, ValueError, IndexError, AttributeError, TypeError):  # of headers that cannot be parsed
        return ""
    return " ".join(clean_text(value).split())[:_MAX_HEADER_CHARS]
