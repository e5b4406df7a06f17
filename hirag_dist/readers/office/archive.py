"""ZIP archives of office files and books, checked before anything is unpacked."""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from collections.abc import Iterator

from hirag_dist.readers.model import FileRefused

MAX_ENTRIES = 20_000
_OLE = b"\xd0\xcf\x11\xe0"
_STRICT = b"http://purl.oclc.org/ooxml/"
_PIECE_BYTES = 1 << 20
_OVERLAP = 16  # of two pieces, longer than what is searched
_ENCRYPTED_FLAG = 1
_TYPES = "[Content_Types].xml"
_OTHER_TYPES = re.compile(
    rb"application/vnd\.(?:ms-|openxmlformats-officedocument\.)(word|presentation|powerpoint)(?:processing)?(?:ml)?\."
    rb"(?:document\.macroEnabled|template|template\.macroEnabledTemplate|template\.macroEnabled|slideshow|"
    rb"slideshow\.macroEnabled)\.main\+xml"
)
_PLAIN_TYPES = {
    b"word": b"application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml",
    b"presentation": b"application/vnd.openxmlformats-officedocument.presentationml.presentation.main+xml",
    b"powerpoint": b"application/vnd.openxmlformats-officedocument.presentationml.presentation.main+xml",
}

BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError)
"""What reading a damaged archive raises; NotImplementedError of an unknown compression."""


def open_archive(data: bytes, max_bytes: int) -> zipfile.ZipFile:
    """Return the archive of a file.

    Args:
        max_bytes: limit of all that it holds, unpacked.

    Raises:
        FileRefused: it is no archive, is encrypted, or passes a limit.
    """
    if data.startswith(_OLE):
        raise FileRefused(
            "the file is encrypted, or in the binary format of earlier versions: save it without a password in the "
            "present format"
        )
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
        entries = archive.infolist()
    except (*BROKEN, ValueError) as error:
        raise FileRefused("the file is damaged or truncated") from error
    if len(entries) > MAX_ENTRIES:
        raise FileRefused(f"the file holds more than {MAX_ENTRIES} parts")
    if sum(entry.file_size for entry in entries) > max_bytes:
        too_large = f"the content is larger than {max_bytes} bytes unpacked"
        raise FileRefused(f"{too_large}: split the file, or raise reading.max_file_bytes")
    if any(entry.flag_bits & _ENCRYPTED_FLAG for entry in entries):
        raise FileRefused("the file is encrypted; remove its password first")
    return archive


def check_xml(archive: zipfile.ZipFile) -> None:
    """Refuse an archive with XML that declares entities, which office files never do, or of the strict form.

    Raises:
        FileRefused: it has some, is of that form, or is damaged.
    """
    if _STRICT in (read_part(archive, "_rels/.rels") or b""):
        raise FileRefused("the file is in the strict form of Open XML: save it in the usual one")
    for name in archive.namelist():
        if name.lower().endswith((".xml", ".rels", ".vml")):
            for piece in _pieces(archive, name):
                if b"<!DOCTYPE" in piece or b"<!ENTITY" in piece:
                    declared = "a document type declaration, which no office program writes"
                    raise FileRefused(f"part {name[:80]} has {declared}")


def with_plain_type(data: bytes, archive: zipfile.ZipFile) -> bytes:
    """Return a file with macros, a template or a slide show as the document that it holds, for libraries that ask."""
    types = read_part(archive, _TYPES) or b""
    plain = _OTHER_TYPES.sub(lambda match: _PLAIN_TYPES[match[1]], types)
    if plain == types:
        return data
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as written:
        for name in dict.fromkeys(archive.namelist()):
            written.writestr(name, plain if name == _TYPES else read_part(archive, name) or b"")
    return file.getvalue()


def _pieces(archive: zipfile.ZipFile, name: str) -> Iterator[bytes]:
    """Yield the bytes of a part, without the zeros of UTF-16, in pieces that overlap."""
    try:
        with archive.open(name) as part:
            kept = b""
            while piece := part.read(_PIECE_BYTES):
                piece = kept + piece.replace(b"\0", b"")
                yield piece
                kept = piece[-_OVERLAP:]
    except (*BROKEN, RuntimeError) as error:
        raise FileRefused("the file is damaged or truncated") from error


def read_part(archive: zipfile.ZipFile, name: str) -> bytes | None:
    """Return a part of an archive, None where it has no such part. Raises FileRefused where the part is damaged."""
    try:
        return archive.read(name)
    except KeyError:
        return None
    except (*BROKEN, RuntimeError) as error:
        raise FileRefused("the file is damaged or truncated") from error
