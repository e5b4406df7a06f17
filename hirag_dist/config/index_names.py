"""Names of indexes in a catalogue, and patterns of such names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_PATTERN = re.compile(r"[A-Za-z0-9*][A-Za-z0-9._*-]{0,62}")


def is_index_name(text: str) -> bool:
    """Return whether a text is a name: 1 to 63 letters, digits and . _ - of ASCII, a letter or digit first.

    >>> is_index_name("acme-2026"), is_index_name("..")
    (True, False)
    """
    return _NAME.fullmatch(text) is not None


def is_index_pattern(text: str) -> bool:
    """Return whether a text is a pattern: a name in which * may stand for any characters.

    >>> is_index_pattern("acme-*"), is_index_pattern("a/*")
    (True, False)
    """
    return _PATTERN.fullmatch(text) is not None


def matches_any(name: str, patterns: Iterable[str]) -> bool:
    """Return whether a name matches one of the patterns.

    >>> matches_any("acme-2026", ["beta", "acme-*"]), matches_any("acme", ["acme-*"])
    (True, False)
    """
    return any(_compiled(pattern).fullmatch(name) for pattern in patterns)


@lru_cache(4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))))
