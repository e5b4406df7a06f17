"""Overlap of texts: recall of tokens, and ROUGE-L of every pair of a list at once.

Lin (2004), "ROUGE: A Package for Automatic Evaluation of Summaries", section 3, with β = 1: the F-measure of the
longest common subsequence (LCS). Words are folded by case and form and not stemmed; writing without spaces is taken
character by character, so that no script vanishes, as it would where only a to z and digits are kept.

The paper gives "the average token-level recall ratio of local- and global-level context in the bridge-level context",
and neither a formula nor its program. Here it is the recall that goes by that name in question answering (a part of
SQuAD's F1): tokens are a multiset, so a token that the level holds five times and the bridge twice counts two of five,
and a bridge cannot hold more of a level than it is long. Recall of distinct tokens is reported too, since the phrase
can be read so too: there a word counts once, however often the level says it.

Comprehensiveness is the number of distinct claims, diversity the number of clusters of them, by complete linkage over 1
- ROUGE-L. How many clusters there are depends on the distance at which they are cut, so several are reported.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import linkage

from hirag_dist.core.numba_jit import compiled_apart
from hirag_dist.core.retrieval.context import LEVEL_OF_HEADING, RECORD_LETTERS
from hirag_dist.core.retrieval.record_texts import community_text, entity_text, relation_text
from hirag_dist.core.text.normalize import UNSPACED
from hirag_dist.types import FloatVector, IntVector, Retrieval

LEVELS = ("local", "global", "bridge")
_HEADING = re.compile(rf"^## ({'|'.join(LEVEL_OF_HEADING)})$", re.MULTILINE)
_REFERENCE = re.compile(rf"^\[[{RECORD_LETTERS}]\d+\]", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class TokenRecall:
    """The share of a text's tokens that another holds.

    Attributes:
        tokens: Tokens of the text, every occurrence counted; above 0.
        found: Tokens of these that the other text holds as often.
        distinct: different tokens of the text.
        distinct_found: Tokens of these that the other text holds at all.
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


_UNSPACED = re.compile(f"[{UNSPACED}]")


def rouge_tokens(text: str) -> list[str]:
    """Return the words of a text, folded; a character, with its marks, is a word where writing has no spaces.

    >>> rouge_tokens("Ann's COST: 3.5 %"), rouge_tokens("हिन्दी में"), rouge_tokens("東京 2020")
    (['ann', 's', 'cost', '3', '5'], ['हिन्दी', 'में'], ['東', '京', '2020'])
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    words: list[str] = []
    open_word = False  # whether the next letter goes on with the last word
    for char in folded:
        kind = unicodedata.category(char)[0]
        if kind == "M" and words and (open_word or _UNSPACED.match(words[-1])):
            words[-1] += char  # a vowel sign or accent belongs to what stands before it
        elif kind not in "LN":
            open_word = False
        elif _UNSPACED.match(char):
            words.append(char)
            open_word = False
        elif open_word:
            words[-1] += char
        else:
            words.append(char)
            open_word = True
    return words


def rouge_l(one: str, other: str) -> float:
    """Return the F-measure of the longest common subsequence of words: 0 to 1, and 0 where a text has no words.

    >>> rouge_l("police killed the gunman", "police kill the gunman")
    0.75
    """
    return float(1.0 - rouge_l_distances([one, other])[0])


def rouge_l_distances(texts: Sequence[str]) -> FloatVector:
    """Return 1 - ROUGE-L of every pair of texts.

    Takes time that grows with the pairs and the product of their lengths: 1,000 texts of 20 words a second, about.

    Returns:
        (n (n - 1) / 2,) in the order of scipy's condensed distances: (0, 1), (0, 2), …, (n - 2, n - 1).
    """
    ids: dict[str, int] = {}
    rows = [[ids.setdefault(word, len(ids)) for word in rouge_tokens(text)] for text in texts]
    starts = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) for row in rows], out=starts[1:])
    words = np.array([word for row in rows for word in row], np.int64)
    return _distances(words, starts)


@compiled_apart
def _distances(words: NDArray[np.int64], starts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Fill the condensed distances; `words[starts[i]:starts[i + 1]]` are text i's."""
    n_texts = len(starts) - 1
    found = np.empty(n_texts * (n_texts - 1) // 2, np.float64)
    longest = 0
    for row in range(n_texts):
        longest = max(longest, starts[row + 1] - starts[row])
    lengths = np.empty(longest + 1, np.int64)  # of the LCS with each beginning of the second text
    place = 0
    for one in range(n_texts):
        for other in range(one + 1, n_texts):
            m = starts[one + 1] - starts[one]
            n = starts[other + 1] - starts[other]
            lengths[: n + 1] = 0
            for i in range(m):
                word = words[starts[one] + i]
                corner = 0  # the entry above and to the left
                for j in range(n):
                    above = lengths[j + 1]
                    if words[starts[other] + j] == word:
                        lengths[j + 1] = corner + 1
                    elif lengths[j] > above:
                        lengths[j + 1] = lengths[j]
                    corner = above
            found[place] = 1.0 - 2.0 * lengths[n] / (m + n) if lengths[n] else 1.0
            place += 1
    return found


THRESHOLDS: Final = (0.5, 0.6, 0.7, 0.8)  # of the paper's Table 4
_ROUNDING = 1e-9  # distances are ratios of small numbers: 1 - 2/5 is meant to be 0.6


def distinct_claims(claims: Sequence[str]) -> list[str]:
    """Return the claims, each once: those that differ in case, white space or punctuation alone are the same.

    What holds no word is no claim. The first of equal ones stays, as it was written.

    >>> distinct_claims(["Ann owns a mill.", "ann  owns a mill", "…", "Bob owns a mill."])
    ['Ann owns a mill.', 'Bob owns a mill.']
    """
    first: dict[tuple[str, ...], str] = {}
    for claim in claims:
        words = tuple(rouge_tokens(claim))
        if words:
            first.setdefault(words, claim)
    return list(first.values())


def cluster_counts(claims: Sequence[str], thresholds: Sequence[float] = THRESHOLDS) -> list[int]:
    """Return how many clusters the claims make at each distance.

    Two clusters are merged where no claim of one is farther from a claim of the other than the threshold (the paper's
    rule; scikit-learn's `distance_threshold` leaves clusters at exactly the threshold apart). Complete linkage is
    monotone, so one tree of merges serves all thresholds.

    Args:
        claims: distinct claims of one answer; none make no cluster.
        thresholds: distances 1 - ROUGE-L.

    >>> cluster_counts(["Ann owns a mill", "Ann owns a farm", "It rained"])
    [2, 2, 2, 2]
    """
    if len(claims) < 2:
        return [len(claims)] * len(thresholds)
    heights = linkage(rouge_l_distances(claims), "complete")[:, 2]
    return [len(claims) - int(np.sum(heights <= threshold + _ROUNDING)) for threshold in thresholds]


@dataclass(frozen=True, slots=True)
class LabelAgreement:
    """Agreement between a count of claims and the judge's preference (GraphRAG paper, section 5.2).

    Attributes:
        compared: questions that have both a label and two counts.
        labelled: Pairs of these in which the judge prefers one answer.
        same: Labelled pairs in which the same answer has the larger count.
        tied: Labelled pairs in which both counts are equal.
    """

    compared: int
    labelled: int
    same: int
    tied: int

    @property
    def rate(self) -> float | None:
        """The share of labels that the counts agree with, a tie of counts being none; None without a label."""
        return self.same / self.labelled if self.labelled else None


def label_agreement(labels: IntVector, differences: FloatVector) -> LabelAgreement:
    """Compare labels with counts.

    Args:
        labels: (n_questions,) 1 where the judge prefers the first method, -1 the second, 0 a tie.
        differences: (n_questions,) count of the first less that of the second; NaN where one is not known.
    """
    known = ~np.isnan(differences)
    labelled = known & (labels != 0)
    signs = np.sign(differences[labelled])
    return LabelAgreement(
        int(known.sum()), int(labelled.sum()), int(np.sum(signs == labels[labelled])), int(np.sum(signs == 0))
    )
