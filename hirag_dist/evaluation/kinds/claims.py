"""`eval claims`: answers taken apart into factual claims, which are counted and grouped (GraphRAG paper, section 4.2).

Comprehensiveness is the number of distinct claims of an answer, diversity the number of clusters that they make. No
judge compares anything, so neither position nor style decides; a model lists the claims, and what it lists is what is
counted. Claims are not checked: a false one counts as a true one does.

Clusters are made by complete linkage over 1 - ROUGE-L (Lin 2004, "ROUGE: A Package for Automatic Evaluation of
Summaries", section 3, with β = 1: the F-measure of the longest common subsequence, LCS). Words are folded by case and
form and not stemmed; writing without spaces is taken character by character, so that no script vanishes, as it would
where only a to z and digits are kept. How many clusters there are depends on the distance at which they are cut, so
several are reported.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.arrays import compiled_apart
from hirag_dist.core.prompts.requests import answer_claims_request, parse_list
from hirag_dist.core.text.normalize import UNSPACED
from hirag_dist.evaluation.answer_collections import AnswerCollections
from hirag_dist.evaluation.board import NOTE, Board, comparison, mean_table
from hirag_dist.evaluation.kinds.judge import ROLE, TRIAL_ANSWERS, TRIAL_QUESTION, AnswerMaterial, try_judge
from hirag_dist.evaluation.session import Session
from hirag_dist.evaluation.work_units import Findings, WorkUnit
from hirag_dist.html import Lines, Text
from hirag_dist.types import FloatVector, Rejected

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


THRESHOLDS: Final = (0.5, 0.6, 0.7, 0.8)  # thresholds of the paper's Table 4
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

    >>> cluster_counts(["Ann owns a mill", "Ann owns a farm", "It rained"])
    [2, 2, 2, 2]
    """
    if len(claims) < 2:
        return [len(claims)] * len(thresholds)
    from scipy.cluster.hierarchy import linkage  # not at the top: a large import

    heights = linkage(rouge_l_distances(claims), "complete")[:, 2]
    return [len(claims) - int(np.sum(heights <= threshold + _ROUNDING)) for threshold in thresholds]


CLUSTERS: Final = tuple(f"clusters at {threshold:g}" for threshold in THRESHOLDS)
MEASURES: Final = ("claims", *CLUSTERS)


async def count_claims(session: Session, *, material: AnswerMaterial) -> Findings:
    """Have claims of the answers listed, and return what is found.

    An empty answer has no claims, and no call is made about it; a failed call is a dead letter.

    Raises:
        ConfigError: answers would have to be made, and the model fails a trial.
        InputError: a file holds nothing that can be used.
    """
    form = "claims" if await session.structured(ROLE) else None
    if material.modes:
        trial = answer_claims_request(TRIAL_QUESTION, TRIAL_ANSWERS[0], session.prompts, form=form)
        await try_judge(session, "claims", trial, lambda reply: parse_list(reply, "claims", may_be_empty=True))
    sets = await material.gather(session)

    async def ask(item: tuple[str, str]) -> dict[str, Any] | Rejected:
        method, question = item
        answer = sets.answers[method][question]
        found: list[str] | Rejected = []
        if answer:
            request = answer_claims_request(sets.texts[question], answer, session.prompts, form=form)
            found = await session.pool.ask(request, lambda reply: parse_list(reply, "claims", may_be_empty=True))
        return found if isinstance(found, Rejected) else {"query_id": question, "method": method, "claims": found}

    places = {question: place for place, question in enumerate(sets.texts)}
    board = Board([""] * len(places), list(sets.answers), MEASURES)
    n_listed = 0
    async for outcome in await session.map("claims", _units(session, sets), ask):
        (method, question), claims = outcome.item, outcome.value["claims"]
        n_listed += len(claims)
        distinct = distinct_claims(claims)
        counts = [len(distinct), *cluster_counts(distinct)]
        board.add(places[question], method, dict(zip(MEASURES, counts, strict=True)))
    return claim_findings(board, n_listed, material)


def _units(session: Session, sets: AnswerCollections) -> Iterator[WorkUnit[tuple[str, str]]]:
    asks = session.asks(ROLE, "claims")
    for question, text in sets.texts.items():
        for method, answers in sets.answers.items():
            if question in answers:
                decides = {"id": question, "question": text, "method": method, "answer": answers[question]}
                yield WorkUnit(f"{question} {method}", decides | {"asks": asks}, (method, question))


_RULE = (
    "Claims are the distinct factual claims that a model lists of an answer; clusters are groups of them by complete "
    "linkage over 1 - ROUGE-L, cut at each distance (GraphRAG paper, section 4.2, tables 3 and 4). Claims are counted, "
    f"not checked. {NOTE}"
)


def claim_findings(board: Board, n_listed: int, material: AnswerMaterial) -> Findings:
    """Return the results and sections; docs/how-to/evaluate.md#claims-what-answers-state describes them.

    Args:
        n_listed: Claims as they were listed, equal ones too.
    """
    results = board.results(MEASURES, list(combinations(board.systems, 2))) | {
        "thresholds": list(THRESHOLDS),
        "answers": {method: len(board.known(method, "claims")) for method in board.systems},
        "claims_listed": n_listed,
        "claims_distinct": int(sum(board.known(method, "claims").sum() for method in board.systems)),
    }
    curves = {
        method: list(zip(THRESHOLDS, (found[name].value for name in CLUSTERS), strict=True))
        for method, found in results["systems"].items()
        if results["answers"][method]
    }
    title = "Claims and clusters of an answer"
    sections = [
        Text("How to read this", [_RULE]),
        *comparison(title, results, ".2f", ["claims"]),
        Lines("Diversity: clusters of claims", "distance at which clusters are cut", "clusters", curves, form=".1f"),
    ]
    return Findings(results, sections, [mean_table(title, results, ".2f")], material.counts)
