"""References in an answer: found in the forms that models write them, checked, and written in one form.

A reference is a letter that says what kind of record it is, and the record's number: E1, R2, K3, C4, S5. It counts as a
citation inside brackets that hold references and nothing else: `[S1]`, `[S1, E2]`, `[s1 and s3]`, `[S1–S3]`,
`[S1-3]`, `[Source S1]`, `[^S1]`, `[S1, p. 3]`, `【S1†source】`, `(S1)`. All become `[S1]`, `[S1][E2]`. Every other
bracket is left as it is. Text of documents that would read as a citation is put between ‹ and › before a model sees
it (`defused`), so that a model that quotes it cites nothing.

A citation of a chunk points at the sentences of the chunk that support it: those that share most words with the
statement that cites it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from typing import Final

from hirag_dist.core.retrieval.places import character_place
from hirag_dist.core.text.normalize import unwrapped
from hirag_dist.types import Citation, Place, Retrieval, SourceItem

_PAIRS: Final = {"[": "]", "【": "】", "［": "］", "(": ")", "（": "）"}
_ROUND: Final = "(（"
_LONGEST = 160  # characters between brackets that are looked at
_WIDEST = 100  # references that a range may stand for


def _words(*lines: str) -> frozenset[str]:
    return frozenset(" ".join(lines).split())


_WORDS: Final = _words(  # allowed next to references: their names, and conjunctions
    "source sources src record records reference references ref refs entity entities relation relations report",
    "reports community communities passage passages context citation citations cite cited see also cf from per via",
    "and or to through und oder bis siehe quelle quellen et ou à voir y o a ver fuente fuentes e fonte fontes vedi en",
    "bron bronnen и или см источник источники источника 和 与 及 或 至 到 来源 出典 資料 と および から",
    "및 와 과 출처 و أو المصدر",
)
_PLACES: Final = _words(  # that begin a place inside a source, which is left out
    "p pp page pages line lines l ll para paragraph paragraphs section sections sec char chars character characters",
    "s seite seiten zeile zeilen página páginas стр 页 頁 行",
)
UNSEEN: Final = "\u00ad\u200b-\u200f\u2060-\u2064\ufeff"  # models leave them out when they copy a text
_TOKEN: Final = re.compile(
    rf"(?P<ref>(?P<kind>[ERKCSerkcs])[\s_#{UNSEEN}]*(?P<number>\d{{1,6}})(?![^\W_]))"
    r"|(?P<range>-|–|—|‒|‐|‑|−|\.\.\.?|…|~|〜|～)"
    r"|(?P<bare>\d{1,6}(?![^\W_]))"
    r"|(?P<word>[^\W\d_]+)"
    rf"|(?P<joint>[\s,;:&+/|.、，；：^#·•*{UNSEEN}]+)"
)
_RANGE_WORDS: Final = _words("to through bis à a до 至 到 から")
_LAST_WORD: Final = re.compile(r"[^\W_]+\Z")
_SPACES: Final = re.compile(r"[ \t]+\Z")
_MAX_SPACES = 1000  # white space in a row, in an answer
# Both begin with one class of characters, so that a search skips all others quickly.
_INVISIBLE: Final = re.compile(rf"[{UNSEEN}](?:\s?[{UNSEEN}])+\s?")
_SPECIAL: Final = re.compile(  # <|im_start|>, <start_of_turn>, </s>, <<SYS>>; [INST], [TOOL_CALLS]
    r"[<>[](?:(?<=<)(?=[|｜](?!>)|</?SYS>>|/?[a-z_][a-z0-9_]{0,30}>)|(?<=[|｜]>)(?<!<[|｜]>)"
    r"|(?<=\[)(?=/?INST\]|(?-i:/?[A-Z_]{4,30}\])))",
    re.IGNORECASE,
)


def references(inside: str) -> list[str] | None:
    """Return the references that brackets hold, or None where what they hold is no citation.

    A range stands for all between its ends. A number without a letter goes by the reference before it.

    >>> references("S1, e2 and S4–S6"), references("see page 3"), references("S1 is wrong")
    (['S1', 'E2', 'S4', 'S5', 'S6'], None, None)
    """
    text = inside.partition("†")[0]
    found: list[str] = []
    joined = spanned = placed = False  # what stood since the last reference
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            return None
        at = token.end()
        word = (token["word"] or "").lower()
        if token["ref"]:
            kind, number = token["kind"].upper(), int(token["number"])
            if found and not (joined or spanned):
                return None  # S1E2: no such thing
            _add(found, kind, number, spanned)
            joined = spanned = placed = False
        elif token["bare"]:
            if not found or not (joined or spanned or placed):
                return None
            if not placed:
                _add(found, found[-1][0], int(token["bare"]), spanned)
            joined = spanned = False
        elif token["range"]:
            spanned = True
        elif word in _RANGE_WORDS and found:
            spanned = not placed
            joined = True
        elif word in _PLACES and found:
            placed, spanned, joined = True, False, False
        elif word in _WORDS or token["joint"]:
            joined = True
        else:
            return None
    return found or None


def _add(found: list[str], kind: str, number: int, spanned: bool) -> None:
    """Add a reference, or all from the last one on."""
    if spanned and found and found[-1][0] == kind:
        first = int(found[-1][1:]) + 1
        if first <= number < first + _WIDEST:
            found.extend(f"{kind}{each}" for each in range(first, number + 1))
            return
    found.append(f"{kind}{number}")


def defused(text: str) -> str:
    """Return text of a document in which nothing reads as a citation, or as a mark of a chat's structure.

    What the text becomes must not make brackets shorter: fold its white space before. A bracket that stays open, and
    that a text behind this one could close, is replaced too: the fields of a record stand side by side.

    >>> defused("As [S1] says, f[x] (C4) <|im_start|>system [INST]")
    'As ‹S1› says, f[x] ‹C4› < |im_start| >system [ INST]'
    >>> defused("Log [S1"), defused("a (the log"), defused("(S1† (S2†)")
    ('Log ‹S1', 'a (the log', '‹S1† ‹S2†›')
    """
    if not (text.isascii() or text.replace("\n", "").isprintable()):  # models leave these characters out
        text = _INVISIBLE.sub(_folded, text)
    parts: list[str] = []
    start = at = 0
    kinds = [each for each in _PAIRS if each in text]
    while (at := _next_bracket(text, at, kinds)) >= 0:
        end = text.find(_PAIRS[text[at]], at + 1, at + 1 + _LONGEST)
        if end > 0 and _DIGIT.search(text, at + 1, end) and references(text[at + 1 : end]) is not None:
            parts.append(f"{text[start:at]}‹{defused(text[at + 1 : end])}›")  # a bracket inside may stay open
            start = at = end + 1
        elif end < 0 and len(text) - at <= _LONGEST and _may_become(text[at + 1 :]):
            parts.append(f"{text[start:at]}‹")
            start = at = at + 1
        else:
            at += 1
    return unmarked("".join([*parts, text[start:]]) if parts else text)


def defused_beginning(text: str) -> str:
    """Return the beginning of a defused text, defused: only a bracket near its end can have lost what closed it."""
    at = max(len(text) - _LONGEST - 1, 0)
    at -= text[at - 1 : at] == "<"  # which `_SPECIAL` looks back for
    return text[:at] + defused(text[at:])


def _folded(run: re.Match[str]) -> str:
    return "\n" if "\n" in run[0] else " " if any(map(str.isspace, run[0])) else ""


def unmarked(text: str) -> str:
    """Return text without marks of a chat's structure: servers of models take them for such wherever they stand.

    >>> unmarked("<eos><start_of_turn>model </think> [TOOL_CALLS] a<|>b [x] 1 < 2")
    '< eos>< start_of_turn>model < /think> [ TOOL_CALLS] a<|>b [x] 1 < 2'
    """
    if "<" not in text and ">" not in text and "[" not in text:
        return text
    return _SPECIAL.sub(lambda mark: f"{mark[0]} " if mark[0] in "<[" else f" {mark[0]}", text)


_DIGIT: Final = re.compile(r"\d")  # every reference has one
_BRACKET: Final = re.compile("[" + re.escape("".join(_PAIRS)) + "]")


def _next_bracket(text: str, at: int, kinds: Collection[str] = _PAIRS) -> int:
    """Return where the next bracket of these kinds, the only ones in the text, begins; -1 where none does."""
    if len(kinds) == 1:  # as in most texts: several times as fast
        (only,) = kinds
        return text.find(only, at)
    found = _BRACKET.search(text, at)
    return -1 if found is None else found.start()


class CitationReader:
    """Reads an answer piece by piece, and gives back the pieces that may be shown.

    What may be the beginning of a citation is held back until it is one or is none, 160 characters at most, with the
    spaces before it: a citation that is removed is then never shown.

    Brackets like `(S1)` may be ordinary text, so they count only where they name a known record, or where an earlier
    one did.

    Attributes:
        cited: references kept, in order of their first mention.
        dropped: how many were removed.
        stuck: whether there was more white space in a row than any answer has. Some models write nothing else any
            more; what is beyond 1,000 characters is left out.
    """

    def __init__(self, known: Collection[str]) -> None:
        """Begin an answer. `known` are the references that name something."""
        self.cited: dict[str, None] = {}
        self.dropped = 0
        self.stuck = False
        self._known = known
        self._buffer = ""
        self._begun = False
        self._round = False

    def feed(self, piece: str) -> str:
        """Return the text that may be shown now."""
        self._buffer += piece
        return self._read(last=False)

    def finish(self) -> str:
        """Return the rest of the text. White space at the end of an answer is dropped, as at its beginning."""
        return self._read(last=True).rstrip()

    def _read(self, last: bool) -> str:
        out: list[str] = []
        text, at, start = self._buffer, 0, 0
        while (at := _next_bracket(text, at)) >= 0:
            limit = at + 1 + _LONGEST
            end = text.find(_PAIRS[text[at]], at + 1, limit)
            if end < 0 and not last and len(text) < limit and _may_become(text[at + 1 :]):
                break
            shown = None if end < 0 else self._checked(text[at], text[at + 1 : end])
            if shown is None:
                at += 1
                continue
            before = text[start:at]
            out.append(before if shown else _SPACES.sub("", before))
            out.append(shown)
            start = at = end + 1
        else:
            at = len(text)
        ready = text[start:at]
        kept = ready if last else ready.rstrip()  # what follows may be removed, or nothing may follow
        out.append(kept)
        spaces = ready[len(kept) :]
        self.stuck = self.stuck or len(spaces) > _MAX_SPACES
        self._buffer = spaces[:_MAX_SPACES] + text[at:]
        shown_now = "".join(out)
        if not self._begun:
            shown_now = shown_now.lstrip()
            self._begun = bool(shown_now)
        return shown_now

    def _checked(self, bracket: str, inside: str) -> str | None:
        """Return the replacement of brackets: their known references; None to leave the brackets unchanged."""
        refs = references(inside)
        if refs is None:
            return None
        known = [ref for ref in dict.fromkeys(refs) if ref in self._known]
        if bracket in _ROUND:
            if not inside[0].isupper() or not (known or self._round):
                return None
            self._round = True
        self.dropped += sum(ref not in self._known for ref in refs)
        self.cited.update(dict.fromkeys(known))
        return "".join(f"[{ref}]" for ref in known)


def _may_become(inside: str) -> bool:
    """Return whether brackets that begin like this may still become a citation, however the last word goes on."""
    whole = _LAST_WORD.sub("", inside)
    return not whole.strip() or references(whole) is not None or references(f"{whole}S1") is not None


Quoted = Callable[[SourceItem, int, int], tuple[Place, ...]]  # (chunk, start, end in its document) → places

MIN_COVERAGE = 0.4  # share of a statement's words, by rarity, that a sentence must have
MIN_WORDS = 2  # minimum words that it must share
_MAX_STATEMENT = 600  # characters before a citation that are looked at
_MAX_SUPPORTS = 5  # sentences for each citation
_ABBREVIATED: Final = re.compile(
    r"(?:\b(?:[A-Za-z]|Mr|Mrs|Ms|Messrs|Dr|Capt|Gen|Col|Lt|Rev|Hon|Prof|St|Mt|No|Nr|Fig|Eq|Sec|vs|al|cf|approx|ca|Inc|Ltd|Jr|Sr|bzw|Bd|Hr|Fr|S)|\A\s*\d+)\Z"
)
_STEM = 6  # characters of a word that are compared, so that its forms are one
_LONGEST_ABBREVIATION = 12  # characters before a point that are looked at
_END: Final = re.compile(r"[.!?…][\"'”’»)\]]*\s+(?![a-zß-öø-ÿ])|[。！？；][」』”’）]*\s*|\n+")
_GROUP: Final = re.compile(r"(?:\s*\[[ERKCS]\d+\])+[\s.,;:]*\Z")
_WORD: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\u0e00-\u0e7f]+|[^\W_]+(?:[.,'’\-][^\W_]+)*")
_UNSPACED: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\u0e00-\u0e7f]")


def placed_citations(
    text: str, citations: Iterable[Citation], retrieval: Retrieval, quoted: Quoted | None = None
) -> tuple[Citation, ...]:
    """Return citations with the stretches of documents that support an answer, of those that cite chunks.

    Args:
        text: of the answer, with checked citations.
        quoted: returns the places of a stretch of a chunk; None: places with characters only.
    """

    def characters(source: SourceItem, start: int, end: int) -> tuple[Place, ...]:
        text = source.text[start - source.start : end - source.start]
        return (character_place(source.uri, start, end, text),)

    chunks = {item.chunk_id: item for item in retrieval.sources}
    find = quoted or characters
    placed = []
    for citation in citations:
        source = chunks.get(citation.id) if citation.kind == "chunk" else None
        if source is not None:
            spans = supporting_spans(text, citation.ref, source.text) or [(0, source.end - source.start)]
            places = [place for low, high in spans for place in find(source, source.start + low, source.start + high)]
            citation = replace(citation, document_id=source.document_id, uri=source.uri, places=tuple(places))
        placed.append(citation)
    return tuple(placed)


def supporting_spans(text: str, ref: str, source: str) -> list[tuple[int, int]]:
    """Return the sentences of a source that state what an answer cites it for, in their order; none if unclear.

    A sentence supports a statement if it has at least `MIN_COVERAGE` of the statement's words, weighted by how rare
    they are in the source, and more of them than any other sentence.

    Args:
        ref: as it stands in the text, without brackets.

    >>> supporting_spans("The lamp was lit at dusk [S1].", "S1", "He slept. The lamp was always lit at dusk.")
    [(10, 42)]
    """
    spans = sentence_spans(source)
    words = [set(_words_of(source[start:end])) for start, end in spans]
    counts = Counter(word for own in words for word in own)
    found: dict[tuple[int, int], None] = {}
    for statement in statements(text, ref):
        wanted = set(_words_of(statement))
        rarity = {word: math.log(1 + len(spans) / (max(counts[word], 1))) for word in wanted}
        total = sum(rarity.values())
        scores = [
            (sum(rarity[word] for word in own & wanted), -len(own), -at)
            for at, own in enumerate(words)
            if len(own & wanted) >= min(MIN_WORDS, len(wanted))
        ]
        if scores and total and max(scores)[0] >= MIN_COVERAGE * total:
            found[spans[-max(scores)[2]]] = None
    return sorted(found)[:_MAX_SUPPORTS]


def statements(text: str, ref: str) -> Iterator[str]:
    """Yield the sentence before each citation of a reference, or the part of it since the citation before.

    >>> list(statements("It rained [S1]. He left, and she stayed [S2][S1]. So it was.", "S1"))
    ['It rained', 'He left, and she stayed']
    """
    mark = f"[{ref}]"
    at = text.find(mark)
    while at >= 0:
        before = _GROUP.sub("", text[max(at - _MAX_STATEMENT, 0) : at] + mark)
        before = before.rpartition("]")[2] if re.search(r"\[[ERKCS]\d+\]", before) else before
        spans = sentence_spans(before)
        if spans:
            start, end = spans[-1]
            yield before[start:end].strip(" .,;:")
        at = text.find(mark, at + len(mark))


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Return (start, end) of the sentences and lines of a text, without the white space around them.

    A sentence may go on over lines of a text that is wrapped at a fixed width.
    """
    text = unwrapped(text)
    spans = []
    start = 0
    for match in _END.finditer(text):
        if match[0][0] == "." and _ABBREVIATED.search(text[start : match.start()][-_LONGEST_ABBREVIATION:]):
            continue
        spans.append((start, match.end()))
        start = match.end()
    spans.append((start, len(text)))
    stripped = ((low + len(text[low:high]) - len(text[low:high].lstrip()), high) for low, high in spans)
    return [(low, low + len(text[low:high].rstrip())) for low, high in stripped if text[low:high].strip()]


def _words_of(text: str) -> Iterator[str]:
    """Yield words in small letters; pairs of characters where a script has no spaces."""
    for match in _WORD.finditer(text.casefold()):
        word = match[0]
        if _UNSPACED.match(word) and len(word) > 1:
            yield from (word[at : at + 2] for at in range(len(word) - 1))
        else:
            yield word[:_STEM]
