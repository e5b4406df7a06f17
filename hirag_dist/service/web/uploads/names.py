"""Names of uploaded files, which come from a browser and become names of files."""

from __future__ import annotations

import re
import unicodedata

from hirag_dist.errors import InputError

_SEPARATORS = re.compile(r"[/\\]")
_MAX_BYTES = 200  # of a name; filesystems allow 255
_SEARCHED = re.compile(r"[*?\[\]:|<>\"]")  # globs, alternate streams, and what some filesystems refuse


def safe_name(given: str) -> str:
    r"""Return a name for a file: without folders, control characters, leading dots, and signs that globs read.

    Raises:
        InputError: nothing is left of the name, or the readers do not know its type.

    >>> safe_name("../../etc/notes.md"), safe_name("C:\\My files\\Straße?.txt"), safe_name(".hidden.csv")
    ('notes.md', 'Straße_.txt', 'hidden.csv')
    """
    from hirag_dist.readers.uris import FORMATS, split_name  # pyarrow, which the page does without

    name = _SEPARATORS.split(unicodedata.normalize("NFC", given))[-1]
    name = "".join(character for character in name if unicodedata.category(character)[0] != "C")
    name = _SEARCHED.sub("_", name).strip().lstrip(".").strip()
    if not name:
        raise InputError(f"{given[:80]!r} is no name of a file")
    stem, extension, _ = split_name(name)
    if extension not in FORMATS:
        raise InputError(f"{name}: files of type {extension} cannot be read; what can be read is {readable()}")
    ending = name[len(stem) :]
    return _cut(stem, _MAX_BYTES - len(ending.encode())) + ending


def readable() -> str:
    """Return the extensions that the readers know, for people."""
    from hirag_dist.readers.uris import FORMATS

    return " ".join(extension for extension in FORMATS if extension)


def _cut(text: str, max_bytes: int) -> str:
    """Return the beginning of a text that fits, cut between characters."""
    return text.encode()[: max(max_bytes, 1)].decode("utf-8", "ignore")
