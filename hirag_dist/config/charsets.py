"""Names of character encodings that extend ASCII."""

from __future__ import annotations

_ALIASES = {  # what browsers read these names as
    "iso-8859-1": "cp1252", "latin-1": "cp1252", "latin1": "cp1252", "us-ascii": "cp1252", "ascii": "cp1252",
    "gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932", "shift-jis": "cp932", "x-sjis": "cp932",
    "euc-kr": "cp949", "ks_c_5601-1987": "cp949", "big5": "big5hkscs",
    "iso-8859-9": "cp1254", "tis-620": "cp874",
}  # fmt: skip

_PROBE = b"az \n~+-\\u0041.xn--mnchen-3ya.\x1b(B"
"""Bytes that such an encoding reads as ASCII.

UTF-16, UTF-7, encodings that switch by escapes, and codecs of Python that are no charset do not.
"""


def ascii_codec(charset: str) -> str | None:
    """Return the codec of a charset that extends ASCII, as browsers read its name; None for any other name.

    >>> ascii_codec("Shift_JIS"), ascii_codec("windows-1251"), ascii_codec("utf-16")
    ('cp932', 'windows-1251', None)
    """
    name = charset.strip().lower()
    codec = _ALIASES.get(name, name)
    try:
        return codec if _PROBE.decode(codec) == _PROBE.decode() else None
    except (ValueError, LookupError):  # ValueError: the codec "undefined", and a name with a NUL
        return None
