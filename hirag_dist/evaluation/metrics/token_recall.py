"""Share of one level's context that another level contains too (HiRAG paper, appendix H, Table 7).

The paper gives "the average token-level recall ratio of local- and global-level context in the bridge-level context",
and neither a formula nor its program. Here it is the recall that goes by that name in question answering (a part of
SQuAD's F1): tokens are a multiset, so a token that the level holds five times and the bridge twice counts two of five,
and a bridge cannot hold more of a level than it is long. Recall of distinct tokens is reported too, since the phrase
can be read so too: there a word counts once, however often the level says it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hirag_dist.core.retrieval.context import LEVEL_OF_HEADING, RECORD_LETTERS
from hirag_dist.core.retrieval.record_texts import community_text, entity_text, relation_text
from hirag_dist.types import Retrieval

LEVELS = ("local", "global", "bridge")
_HEADING = re.compile(rf"^## ({'|'.join(LEVEL_OF_HEADING)})$", re.MULTILINE)
_REFERENCE = re.compile(rf"^\[[{RECORD_LETTERS}]\d+\]", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class TokenRecall:
    """The share of a text's tokens that another holds.

    Attributes:
        tokens: of the text, every occurrence counted; above 0.
        found: of these, those that the other holds as often.
        distinct: different tokens of the text.
        distinct_found: of these, those that the other holds at all.
    """

    tokens: int
    found: int
    distinct: int
    distinct_found: int

    @property
    def recall(self) -> float:
        """Of all occurrences, 0 to 1."""
        return self.found / self.tokens

    @property
    def distinct_recall(self) -> float:
        """Of different tokens, 0 to 1."""
        return self.distinct_found / self.distinct


def token_recall(part: Sequence[Hashable], whole: Sequence[Hashable]) -> TokenRecall | None:
    """Return how much of `part` stands in `whole` too; None where `part` is empty, of which no share can be said.

    >>> token_recall("aab", "abc").recall
    0.6666666666666666
    """
    if not part:
        return None
    wanted, held = Counter(part), Counter(whole)
    return TokenRecall(len(part), (wanted & held).total(), len(wanted), len(wanted.keys() & held.keys()))


def rendered_levels(context: str) -> dict[str, str]:
    """Return a rendered context by level, without headings and references: what a model reads of each.

    Args:
        context: as `core.retrieval.context.render_context` makes it; no text of a record can pass for a heading there.
    """
    headings = list(_HEADING.finditer(context))
    ends = [heading.start() for heading in headings[1:]] + [len(context)]
    texts = dict.fromkeys(LEVELS, "")
    for heading, end in zip(headings, ends, strict=False):
        texts[LEVEL_OF_HEADING[heading[1]]] = _REFERENCE.sub("", context[heading.end() : end]).strip()
    return texts


def retrieved_levels(found: Retrieval) -> dict[str, str]:
    """Return everything retrieved by level, as it would be written into a context without a limit."""
    return {level: "\n".join(text.strip() for text in _texts(level, found)) for level in LEVELS}


def recall_in_bridge(
    levels: Mapping[str, str], encode: Callable[[str], Sequence[Hashable]]
) -> dict[str, TokenRecall | None]:
    """Return how much of the local and of the global level the bridge holds, None of a level without text.

    Paper: Table 7.

    Args:
        levels: as `rendered_levels` and `retrieved_levels` give them.
        encode: text → tokens; the paper counts by cl100k_base.
    """
    bridge = encode(levels["bridge"])
    return {level: token_recall(encode(levels[level]), bridge) for level in ("local", "global")}


def _texts(level: str, found: Retrieval) -> Iterator[str]:
    if level == "local":
        return (entity_text(item.name, item.type, item.layer, item.description) for item in found.local)
    if level == "global":
        return (community_text(item.title, item.level, item.rating, item.report) for item in found.communities)
    return (relation_text(item.source_name, item.target_name, item.description) for item in found.triples)
