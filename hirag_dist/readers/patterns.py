"""Globs of INPUT arguments as regular expressions."""

from __future__ import annotations

import os
import re


def is_named(pattern: str, path: str) -> bool:
    """Check that a glob ends in the extension of the file it found."""
    extension = os.path.splitext(path)[1]
    return bool(extension) and pattern.endswith(extension)


def matches_hidden(pattern: str) -> bool:
    """Check whether a glob names files or folders that begin with a dot."""
    return any(part.startswith(".") and part not in (".", "..") for part in pattern.split("/"))


def may_match_below(pattern: str, folder: str) -> bool:
    """Check whether a glob may match a path below a folder.

    >>> may_match_below("docs/*/*.txt", "docs/a"), may_match_below("*.txt", "docs")
    (True, False)
    """
    parts = pattern.split("/")
    names = folder.split("/")
    for part, name in zip(parts, names, strict=False):
        if "**" in part:
            return True
        if re.fullmatch(glob_to_regex(part), name) is None:
            return False
    return len(names) < len(parts)


def glob_to_regex(pattern: str) -> str:
    """Return a regular expression for relative paths.

    >>> re.fullmatch(glob_to_regex("**/*.txt"), "a/b/c.txt") is not None
    True
    """
    pieces = re.split(r"(\*\*/|\*\*|\*|\?|\[!?\]?[^\]]*\])", pattern)
    known = {"**/": r"(?:[^/]+/)*", "**": r".*", "*": r"[^/]*", "?": r"[^/]"}
    regex = ""
    for piece in pieces:
        if len(piece) > 2 and piece[0] == "[" and piece[-1] == "]":
            inside = piece[1:-1].replace("\\", r"\\")
            regex += "[" + ("^" + inside[1:] if inside[0] == "!" else inside) + "]"
        else:
            regex += known.get(piece, re.escape(piece))
    return regex
