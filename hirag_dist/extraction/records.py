"""The records of a text that is extracted without a language model: found names, described and related."""

from __future__ import annotations

from collections.abc import Sequence

from hirag_dist.core.entities.association import associations
from hirag_dist.core.prompts.reply_parsing import EntityRecord, ExtractionReply, RelationRecord
from hirag_dist.extraction.scripts import Script, scripts_of
from hirag_dist.llm.rule_based.excerpts import about, around
from hirag_dist.types import FoundName

_WORDS_PER_NAME = 32
_CHARS_PER_NAME = {Script.IDEOGRAPHIC: 60, Script.UNSPACED: 150}
_MIN_NAMES, _MAX_NAMES = 4, 60


def extracted(found: Sequence[FoundName], lines: Sequence[str]) -> ExtractionReply:
    """Return the best names of a text with the sentences that tell most about them, and how they are related.

    Args:
        found: best first.
        lines: the sentences of the text, which the places of the names count.
    """
    names = found[: _limit(lines)]
    entities = tuple(
        EntityRecord(name.name, name.type.lower(), about(name.name, [place for place, _ in name.places], lines))
        for name in names
    )
    relations = tuple(
        RelationRecord(
            names[pair.first].name,
            names[pair.second].name,
            around(names[pair.first].name, names[pair.second].name, *(lines[place] for place in pair.sentences)),
            pair.strength,
        )
        for pair in associations(names)
    )
    return ExtractionReply(entities, relations)


def _limit(lines: Sequence[str]) -> int:
    """Return how many names are kept, in proportion to the text."""
    scripts = scripts_of(" ".join(lines))
    per_name = _CHARS_PER_NAME.get(scripts[0]) if scripts else None
    if per_name:
        wanted = sum(map(len, lines)) // per_name
    else:
        wanted = sum(line.count(" ") + 1 for line in lines) // _WORDS_PER_NAME
    return min(max(wanted, _MIN_NAMES), _MAX_NAMES)
