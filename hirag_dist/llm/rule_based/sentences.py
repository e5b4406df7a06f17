"""Text to sentences and words: markup, addresses and special tokens go, and what is left is read."""

from __future__ import annotations

import re
import unicodedata

from hirag_dist.core.text.terms import MARKS
from hirag_dist.llm.rule_based.language import Script, scripts_of

GAP = "…"  # stands where something unreadable was taken out; no name or phrase runs across it

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ufffd\ud800-\udfff]")
_SPECIAL = re.compile(  # as prompts have them: a space stands behind the bracket
    r"< ?\|[^<>\n]{0,40}\|? ?>|\|>|#{2,}|\[ ?/?INST\]|< ?/?[a-z_][a-z0-9_]{0,30}>", re.IGNORECASE
)
_ADDRESS = re.compile(
    r"\b(?:https?|ftp)[:/]\S+|\bwww\.\S+|\b[\w.+-]+@[\w-]+\.[\w.-]+|\b[\w-]+\.(?:com|org|net|html?|php)\b\S*"
)
_MARKUP = re.compile(
    r"<!--.{0,4000}?-->|< ?(?:script|style)\b.{0,4000}?< ?/(?:script|style)>|</?[a-zA-Z][^<>\n]{0,300}>", re.DOTALL
)
_ENTITY = re.compile(r"&(?:#\d{1,6}|#x[0-9a-fA-F]{1,5}|[a-z]{2,8});")
_GLUED = re.compile(r"(?<=[a-zà-þ0-9)\]”\"])([.!?])(?=[A-ZÀ-Þ][a-zà-þ’']+[ ,])|(?<=[a-z])(\[\d+\])+")
_LONG = re.compile(r"[^\s\u3000-\u9fff]{48,}")
_BLANK = re.compile(r"\n[ \t]*\n")
_SENTENCE_END = re.compile(
    r"""(?:[.!?…]+["'”’»)\]]*\s+(?=["'“‘«(\[—-]*[A-ZÀ-ÞА-ЯЁ0-9ΆΈ-Ϋ])|[。！？；]+[”’」』）]*(?=[^\s”’」』）]))"""
)
_ABBREVIATED = re.compile(
    r"(?:^|[\s(\[\"“'‘])(?:Mr|Mrs|Ms|Dr|St|Prof|Sr|Jr|Rev|Hon|Capt|Gen|Col|Lt|Sgt|Gov|Sen|Mt|Ft|Inc|Ltd|Co|Corp|vs|No|"
    r"Nos|Fig|Figs|Eq|Eqs|Sec|Ref|Refs|Vol|pp|ed|eds|al|cf|ca|e\.g|i\.e|viz|approx|Messrs|[bcdfr]|fl|Jan|Feb|Mar|Apr|Aug|Sept?|"
    r"Oct|Nov|Dec|[A-ZÀ-ÞА-Я]|(?:[A-Z]\.)+[A-Z])\.$"
)
_LETTERS = rf"(?:[^\W_][{MARKS}]*)+"
_TOKEN = re.compile(
    r"(?:Mr|Mrs|Ms|Dr|St|Prof|Capt|Col|Lt|Sgt|Rev|Hon|Jr|Sr|Mt|Messrs|Mme|Mlle)\.(?=\s)"
    r"|(?:[A-ZÀ-ÞА-Я]\.(?:-?[A-ZÀ-ÞА-Я]\.)*)(?![^\W_])|[A-Z]&[A-Z]\b"
    rf"|{_LETTERS}(?:['’\-‐–.׳״]{_LETTERS})*['’]?|[^\w\s]|_"
)
_ROMAN = re.compile(r"[IVXLC]+$")
_CASELESS_END = re.compile(r"(?<=[.!?؟।॥۔።։།။])\s*(?=\S)(?<![A-Za-z\d]\.)")
_PIECE = 60  # characters of a sentence where nothing but spaces parts them


def clean(text: str) -> str:
    """Return readable text: no markup, addresses, special tokens or control characters; lines are kept."""
    text = unicodedata.normalize("NFC", text).replace("\r\n", "\n").replace("\r", "\n")
    text = _CONTROL.sub("", text)
    if "<" in text:
        text = _MARKUP.sub(" ", text)
    if "&" in text:
        text = _ENTITY.sub(" ", text)
    if "<" in text or "#" in text or "|" in text or "[" in text:
        text = _SPECIAL.sub(f" {GAP} ", text)
    if "://" in text or "www." in text or "@" in text or ".com" in text or ".org" in text:
        text = _ADDRESS.sub(GAP, text)
    return _LONG.sub(GAP, _GLUED.sub(r"\1 ", text))


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text in any writing, each on one line and without markup.

    Writing without capitals ends a sentence at its punctuation alone. Where there is none either, as in Thai, spaces
    part clauses, which are joined up to some length.
    """
    lines = sentences(clean(text))
    scripts = scripts_of(text)
    if Script.CASELESS in scripts:
        lines = [piece for line in lines for piece in _CASELESS_END.split(line) if piece]
    if Script.UNSPACED in scripts:
        lines = [piece for line in lines for piece in _clauses(line)]
    return lines


def _clauses(line: str) -> list[str]:
    found: list[str] = []
    for piece in line.split():
        if found and len(found[-1]) < _PIECE:
            found[-1] = f"{found[-1]} {piece}"
        else:
            found.append(piece)
    return found


def sentences(text: str) -> list[str]:
    """Return the sentences of cleaned text, each on one line; headings and list items are sentences of their own."""
    found: list[str] = []
    for block in _BLANK.split(text):
        for unit in _joined(block.split("\n")):
            start = 0
            for match in _SENTENCE_END.finditer(unit):
                if _ABBREVIATED.search(unit, max(match.start() - 12, 0), match.start() + 1):
                    continue
                _add(found, unit[start : match.end()])
                start = match.end()
            _add(found, unit[start:])
    return found


def _add(found: list[str], piece: str) -> None:
    flat = " ".join(piece.split())
    if flat:
        found.append(flat)


def _joined(lines: list[str]) -> list[str]:
    """Join the lines of a hard-wrapped paragraph: a line well short of the others ends what it says."""
    if len(lines) < 2:
        return lines
    width = max(map(len, lines))
    full = sum(len(line) > 0.75 * width for line in lines)
    if width > 110 or width < 36:
        return lines
    wrapped_block = full * 2 >= len(lines)
    units: list[str] = []
    wrapped = False
    for line in lines:
        bare = line.strip()
        goes_on = (wrapped_block and not bare.startswith(("- ", "* ", "• ", "|"))) or bare[:1].islower()
        if wrapped and bare and goes_on:
            units[-1] = f"{units[-1]} {bare}"
        else:
            units.append(bare)
        wrapped = len(line.rstrip()) > width * 0.6
    return units


def tokens(sentence: str) -> list[str]:
    """Return the words of a sentence and its punctuation marks, in order; a heading in capitals gets common spelling.

    >>> tokens("Mr. Cox's dog ran.")
    ['Mr.', "Cox's", 'dog', 'ran', '.']
    """
    found = _TOKEN.findall(sentence)
    if len(found) > 1 and sentence.isupper():
        return [
            word.capitalize() if len(word) > 1 and word[0].isalpha() and not _ROMAN.match(word) else word
            for word in found
        ]
    return found
