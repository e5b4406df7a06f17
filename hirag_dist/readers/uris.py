"""File names and URIs: what a name says about the content, and what of a URI may be shown."""

from __future__ import annotations

import posixpath
import re
from urllib.parse import unquote

from hirag_dist.readers.open import COMPRESSIONS

FORMATS = {
    ".txt": "txt", ".text": "txt", ".rst": "txt", "": "txt",
    ".md": "md", ".markdown": "md",
    ".html": "html", ".htm": "html", ".xhtml": "html",
    ".pdf": "pdf",
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json",
    ".parquet": "parquet", ".pq": "parquet",
    ".csv": "csv", ".tsv": "tsv", ".tab": "tsv",
    ".docx": "docx", ".docm": "docx", ".dotx": "docx",
    ".pptx": "pptx", ".pptm": "pptx", ".ppsx": "pptx",
    ".xlsx": "xlsx", ".xlsm": "xlsx",
    ".epub": "epub", ".eml": "eml",
}  # fmt: skip
"""File name extension → format. A name without one (README) is read as text."""

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def is_uri(name: str) -> bool:
    """Tell a URI from a path."""
    return _URI.match(name) is not None


def is_utf8(name: str) -> bool:
    """Tell a name in UTF-8 from one with other bytes, which Python holds as lone surrogates."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def public_uri(uri: str) -> str:
    """Return a URI without the credentials and the query that it may hold.

    >>> public_uri("s3://key:secret@bucket/a.txt?region=eu-west-1")
    's3://bucket/a.txt'
    """
    scheme, _, rest = uri.partition("?")[0].partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2] if ':' in host else host}{slash}{path}"


def split_name(name: str) -> tuple[str, str, str | None]:
    """Return stem, extension in lower case and compression of a path or URI.

    >>> split_name("s3://bucket/notes.v2.JSONL.gz")
    ('notes.v2', '.jsonl', 'gz')
    """
    base = posixpath.basename(name)
    if is_uri(name):
        base = unquote(posixpath.basename(name.partition("?")[0]))
    stem, extension = posixpath.splitext(base)
    compression = COMPRESSIONS.get(extension.lower())
    if compression is not None:
        stem, extension = posixpath.splitext(stem)
    return stem, extension.lower(), compression
