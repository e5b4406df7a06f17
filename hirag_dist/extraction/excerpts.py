"""The sentences of a text that descriptions made by rules quote."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from hirag_dist.extraction.scripts import split_sentences
from hirag_dist.llm.rule_based.records import safe
from hirag_dist.llm.rule_based.sentences import GAP

_MIN_PIECE = 12  # bytes (four Chinese characters) of a part of a sentence that tell which sentence it is of


def quoted_sentences(text: str, quotes: Iterable[str], names: Iterable[str] = ()) -> str:
    r"""Return the sentences of a text that descriptions quote, whole, one a line, in their order.

    Of a name that none of them holds in full, the first sentence that does is returned too. An empty line stands
    for sentences that are left out. A text of which no sentence is quoted is returned as it is.

    Args:
        text: of a chunk.
        quotes: descriptions of `extracted`: a sentence or two of the text, or parts of them with an ellipsis.

    >>> quoted_sentences("Ada wrote. It rained. It rained again. Ada met Bo.", ["Ada wrote.", "Ada met Bo."])
    'Ada wrote.\n\nAda met Bo.'
    """
    lines = split_sentences(text)
    bare = [safe(line.lstrip("# "), len(line)) for line in lines]
    shown: set[int] = set()
    for quote in set(quotes):
        shown |= _quoted(quote, bare)
    folded = [line.casefold() for line in lines]
    for name in (name.casefold() for name in names):
        holding = [place for place, line in enumerate(folded) if name in line]
        if holding and shown.isdisjoint(holding):
            shown.add(holding[0])
    if not shown:
        return text
    places = sorted(shown)
    parts = [lines[places[0]]]
    for before, place in pairwise(places):
        parts += [lines[place]] if place == before + 1 else ["", lines[place]]
    return "\n".join(parts)


def _quoted(quote: str, lines: Sequence[str]) -> set[int]:
    """Return the positions of the sentences that a description quotes; of equal sentences the first."""
    found: dict[str, int] = {}
    rest = quote
    for place in sorted(range(len(lines)), key=lambda place: (-len(lines[place]), place)):
        line = lines[place]
        if line == rest or (_tells(line) and line not in found and line in rest):
            found[line] = place
            rest = rest.replace(line, GAP)
    for piece in (piece.strip() for piece in rest.split(GAP)):
        holding = [place for place, line in enumerate(lines) if piece in line] if _tells(piece) else []
        if holding:
            found.setdefault(lines[holding[0]], holding[0])
    return set(found.values())


def _tells(piece: str) -> bool:
    return len(piece.encode("utf-8", "surrogatepass")) >= _MIN_PIECE
