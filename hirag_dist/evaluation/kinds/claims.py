"""`eval claims`: answers taken apart into factual claims, which are counted and grouped (GraphRAG paper, section 4.2).

Comprehensiveness is the number of distinct claims of an answer, diversity the number of clusters that they make. No
judge compares anything, so neither position nor style decides; a model lists the claims, and what it lists is what is
counted. Claims are not checked: a false one counts as a true one does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from hirag_dist.core.prompts.evaluation_requests import answer_claims_request, parse_list
from hirag_dist.evaluation.answer_collections import AnswerCollections
from hirag_dist.evaluation.board import NOTE, Board, all_pairs, comparison, mean_table
from hirag_dist.evaluation.kinds.judge import ROLE, TRIAL_ANSWERS, TRIAL_QUESTION, AnswerMaterial, try_judge
from hirag_dist.evaluation.metrics.overlap import THRESHOLDS, cluster_counts, distinct_claims
from hirag_dist.evaluation.session import Session
from hirag_dist.evaluation.work_units import Findings, WorkUnit
from hirag_dist.html import Lines, Text
from hirag_dist.types import Rejected

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
    board = Board([""] * len(places), sets.methods, MEASURES)
    n_listed = 0
    async for outcome in await session.map("claims", _units(session, sets), ask):
        (method, question), claims = outcome.item, outcome.value["claims"]
        n_listed += len(claims)
        board.add(places[question], method, claim_measures(claims))
    return claim_findings(board, n_listed, material)


def claim_measures(claims: list[str]) -> dict[str, float | None]:
    """Return the number of distinct claims of an answer, and of clusters of them at each threshold."""
    distinct = distinct_claims(claims)
    return dict(zip(MEASURES, [len(distinct), *cluster_counts(distinct)], strict=True))


def _units(session: Session, sets: AnswerCollections) -> Iterator[WorkUnit[tuple[str, str]]]:
    asks = session.asks(ROLE, "claims")
    for question, text in sets.texts.items():
        for method, answers in sets.answers.items():
            if question in answers:
                decides = {
                    "id": question,
                    "question": text,
                    "method": method,
                    "answer": answers[question],
                    "asks": asks,
                }
                yield WorkUnit(f"{question} {method}", decides, (method, question))


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
    results = board.results(MEASURES, all_pairs(board.systems)) | {
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
