"""Normalisation of names and lines, truncation of texts, and line breaks inside sentences."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from itertools import groupby
from typing import Final

UNSPACED: Final = (  # ranges, for a class of a regular expression, of writing in which words are not set apart
    "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Tibetan; Myanmar; Khmer
    "\u3005-\u3007\u3040-\u30ff\u3100-\u312f\u31f0-\u31ff"  # kana, bopomofo
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Chinese characters
)
_QUOTES = "\"'`“”‘’«»‹›„‚「」『』"
_EDGES = _QUOTES + " .,;:!?()[]{}<>*_#|"
_INITIALS = re.compile(r"(?:\A|[^\w.])(?:[^\W\d_]\.)+[^\W\d_]\Z")  # without the last point: R.E.M, the U.S


def one_line(text: str) -> str:
    r"""Return the text with every run of white space made one space.

    >>> one_line(" a\n b ")
    'a b'
    """
    if text.isprintable() and "  " not in text:  # no white space but single spaces, as in most lines
        return text.strip(" ")
    return " ".join(text.split())


def encodable(text: str) -> str:
    r"""Return the text with each lone surrogate, which UTF-8 and so no table can hold, replaced by U+FFFD.

    A pair of surrogates becomes the character that it stands for.

    >>> encodable("a\ud800"), encodable("\ud83d\ude00") == "😀"
    ('a�', True)
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def clean_name(name: str) -> str:
    """Return a name as it is shown: one line, without the quotes and punctuation around it.

    A point that begins a word, and the last one of initials, belong to the name.

    >>> clean_name('"Ebenezer  Scrooge",'), clean_name("(.NET)"), clean_name("R.E.M.")
    ('Ebenezer Scrooge', '.NET', 'R.E.M.')
    """
    flat = one_line(name)
    begun = flat.lstrip(_EDGES)
    trimmed = begun.rstrip(_EDGES.replace("#", ""))  # C# is a name
    if not trimmed:
        return ""
    before, after = flat[: len(flat) - len(begun)], begun[len(trimmed) :]
    if trimmed.count("(") > trimmed.count(")") and flat.rstrip(_QUOTES + " .,;").endswith(")"):
        trimmed += ")" * (trimmed.count("(") - trimmed.count(")"))
    elif after.startswith(".") and not after.startswith("..") and _INITIALS.search(trimmed):
        trimmed += "."
    if before.endswith(".") and before[-2:-1] != "." and trimmed[0].isalnum():
        trimmed = f".{trimmed}"
    return trimmed


def name_key(name: str) -> str:
    """Return the key by which names are merged: NFKC, case folded, quotes and the point of initials dropped.

    >>> name_key("The  ‘Ghost’") == name_key("the GHOST")
    True
    """
    folded = unicodedata.normalize("NFKC", name).casefold()
    bare = folded.translate(_NO_QUOTES)
    key = clean_name(unicodedata.normalize("NFKC", bare))
    return key.removesuffix(".")


_NO_QUOTES = {ord(mark): None for mark in _QUOTES if mark != "'"} | {ord("’"): "'", ord("‘"): None}


def is_name(name: str) -> bool:
    """Return whether a cleaned name can stand for an entity: it holds a letter or digit and is not a paragraph."""
    return 0 < len(name) <= 200 and any(ch.isalnum() for ch in name)


def count_noun(count: int, one: str, more: str = "") -> str:
    """Return a count with what is counted: `one`, or `more`, which is `one` with an s unless it is given.

    >>> count_noun(1, "entity", "entities"), count_noun(2000, "entity", "entities"), count_noun(0, "page")
    ('1 entity', '2,000 entities', '0 pages')
    """
    return f"{count:,} {one if count == 1 else more or one + 's'}"


def count_plural(count: int, more: str) -> str:
    """Return a count with what is counted, as `count_noun`, by its plural.

    >>> count_plural(1, "layers"), count_plural(1, "entities"), count_plural(1, "aliases"), count_plural(2, "layers")
    ('1 layer', '1 entity', '1 alias', '2 layers')
    """
    one = f"{more[:-3]}y" if more.endswith("ies") else more.removesuffix("es" if more.endswith("ses") else "s")
    return count_noun(count, one, more)


def first_names(names: Iterable[str], n_shown: int = 5) -> str:
    """Return the first names in their order by commas, and the number of the others.

    >>> first_names(["b", "a", "c"], n_shown=2)
    'a, b and 1 more'
    """
    ordered = sorted(names)
    more = f" and {len(ordered) - n_shown:,} more" if len(ordered) > n_shown else ""
    return ", ".join(ordered[:n_shown]) + more


def shorten(text: str, n_chars: int) -> str:
    """Return the text, cut at a word where it is longer than `n_chars` characters, with an ellipsis.

    >>> shorten("one two three", 9)
    'one two…'
    """
    if len(text) <= n_chars:
        return text
    cut = text[: max(n_chars - 1, 1)]
    space = cut.rfind(" ")
    return (cut[:space] if space > n_chars // 2 else cut).rstrip(" ,;:") + "…"


_SENTENCE_END = re.compile(r"""[.!?…]["'”’»)\]]*(?=\s|\Z)|[。！？]["'”’」』）]*""")


def cut_at_sentence(text: str, n_chars: int) -> str:
    """Return the text, cut at the end of a sentence in its last half, or else of a word, where it is longer.

    >>> cut_at_sentence("Ada wrote. Bob read it.", 14), cut_at_sentence("one two three", 9)
    ('Ada wrote.', 'one two…')
    """
    if len(text) <= n_chars:
        return text
    ends = [match.end() for match in _SENTENCE_END.finditer(text[:n_chars]) if 2 * match.end() > n_chars]
    return text[: ends[-1]] if ends else shorten(text, n_chars)


_MARKED: Final = re.compile(r"(?:[-*•+–|>#]|\(?\d{1,3}[.)])(?:\s|\Z)|\|")  # list items, tables, quotations, headings
_WIDTHS: Final = range(36, 111)  # characters of the longest line of a wrapped paragraph
_FULL, _GOES_ON = 0.75, 0.6  # shares of that width: a line that is full, and one that the next may go on from
_MIN_SMALL = 0.125  # share of the lines that begin inside a sentence, of a text that is wrapped


def unwrapped(text: str) -> str:
    r"""Return a text with a space for each line break inside a sentence. Its length and all positions stay.

    A line goes on with the next one if it is not much shorter than the longest of its paragraph, and the next begins
    with a small letter, or the text is wrapped: an eighth of its lines begin so, and most of the paragraph's are full.

    >>> unwrapped("He lit the lamp of the lighthouse and\nwent home.\n\n- one\n- two")
    'He lit the lamp of the lighthouse and went home.\n\n- one\n- two'
    """
    lines = text.split("\n")
    bare = [line.strip() for line in lines]
    inner = [bare[at] for at in range(1, len(lines)) if bare[at] and bare[at - 1]]
    small = sum(_begins_inside(line) for line in inner)
    if not small:
        return text
    is_wrapped = small >= _MIN_SMALL * len(inner)
    parts: list[str] = []
    for is_blank, block in groupby(range(len(lines)), key=lambda at: not bare[at]):
        rows = list(block)
        width = 0 if is_blank else max(len(bare[at]) for at in rows)
        wrapped_block = is_wrapped and 2 * sum(len(bare[at]) > _FULL * width for at in rows) >= len(rows)
        for at in rows:
            goes_on = (
                at > rows[0]
                and width in _WIDTHS
                and len(bare[at - 1]) > _GOES_ON * width
                and not bare[at - 1].startswith(("#", "|"))
                and not _MARKED.match(bare[at])
                and (wrapped_block or _begins_inside(bare[at]))
            )
            parts.append((" " if goes_on else "\n") + lines[at])
    return "".join(parts)[1:]


def _begins_inside(line: str) -> bool:
    """Return whether a line begins with a letter that is no capital."""
    return line[0].isalpha() and not line[0].isupper()
