"""`eval claims`: answers taken apart into factual claims, which are counted and grouped (GraphRAG paper, section 4.2).

Comprehensiveness is the number of distinct claims of an answer, diversity the number of clusters that they make. No
judge compares anything, so neither position nor style decides; a model lists the claims, and what it lists is what is
counted. Claims are not checked: a false one counts as a true one does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from hirag_dist.core.prompts.evaluation_requests import answer_claims_request, parse_list
from hirag_dist.errors import InputError
from hirag_dist.evaluation.answer_collections import AnswerCollections
from hirag_dist.evaluation.metrics.claims import THRESHOLDS, cluster_counts, distinct_claims
from hirag_dist.evaluation.questions import rows_of, strings
from hirag_dist.evaluation.session import Session
from hirag_dist.evaluation.work_units import WorkUnit
from hirag_dist.readers import Unreadable
from hirag_dist.types import FloatVector, Rejected

STEP: Final = "claims"
MEASURES: Final = ("claims", *(f"clusters at {threshold:g}" for threshold in THRESHOLDS))
_ID = ("query_id", "question_id", "qid", "id")


@dataclass
class ClaimCounts:
    """The measures of each answer, by method and question.

    Attributes:
        counts: method → question id → (1 + n_thresholds,) distinct claims, then clusters at each threshold.
        listed: claims as they were listed, equal ones too.
    """

    counts: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    listed: int = 0

    def add(self, method: str, question: str, claims: Sequence[str]) -> None:
        """Count the claims of an answer."""
        distinct = distinct_claims(claims)
        self.listed += len(claims)
        self.counts.setdefault(method, {})[question] = [len(distinct), *cluster_counts(distinct)]

    @property
    def methods(self) -> list[str]:
        """Their names, in order."""
        return list(self.counts)

    def table(self, questions: Sequence[str]) -> FloatVector:
        """Return (n_methods, n_questions, 1 + n_thresholds) measures, NaN where an answer has none."""
        table = np.full((len(self.counts), len(questions), len(MEASURES)), np.nan)
        for row, found in enumerate(self.counts.values()):
            for column, question in enumerate(questions):
                if question in found:
                    table[row, column] = found[question]
        return table

    @property
    def questions(self) -> list[str]:
        """The ids of all questions that an answer was counted of."""
        return list(dict.fromkeys(question for found in self.counts.values() for question in found))


async def list_claims(session: Session, sets: AnswerCollections, role: str) -> ClaimCounts:
    """Have the claims of all answers listed, and count them; what failed is a dead letter.

    An empty answer has no claims, and no call is made about it.

    Args:
        role: who lists them.
    """
    form = "claims" if await session.structured(role) else None

    async def ask(item: tuple[str, str]) -> dict[str, Any] | Rejected:
        method, question = item
        answer = sets.answers[method][question]
        found: list[str] | Rejected = []
        if answer:
            request = answer_claims_request(sets.texts[question], answer, session.prompts, role=role, form=form)
            found = await session.pool.ask(request, lambda reply: parse_list(reply, "claims", may_be_empty=True))
        if isinstance(found, Rejected):
            return found
        return {"query_id": question, "method": method, "claims": found}

    counts = ClaimCounts({method: {} for method in sets.methods})
    async for outcome in await session.map(STEP, _units(session, sets, role), ask):
        counts.add(*outcome.item, outcome.value["claims"])
    return counts


def _units(session: Session, sets: AnswerCollections, role: str) -> Iterator[WorkUnit[tuple[str, str]]]:
    asks = session.asks(role, "claims")
    for question, text in sets.texts.items():
        for method, answers in sets.answers.items():
            if question in answers:
                decides = {
                    "id": question,
                    "question": text,
                    "method": method,
                    "answer": answers[question],
                    "role": role,
                    "asks": asks,
                }
                yield WorkUnit(f"{question} {method}", decides, (method, question))


def read_claims(paths: Sequence[str]) -> tuple[ClaimCounts, list[Unreadable]]:
    """Read recorded claims, and count them; with the records that hold none, and why.

    A record has `query_id` (or `question_id`), `method`, and `claims`, a list of texts, which may be empty. Lines of
    `outcomes/claims.jsonl` are such records.

    Raises:
        InputError: a file is not there, or holds no claims.
    """
    counts, unreadable = ClaimCounts(), []
    for path in paths:
        n_found = 0
        for row in rows_of(path):
            if isinstance(row, Unreadable):
                unreadable.append(row)
                continue
            value = row.fields.get("value")  # of a line of outcomes/claims.jsonl
            fields: Mapping[str, Any] = value if isinstance(value, dict) else row.fields
            question = next((own for name in _ID if (own := next(iter(strings(fields.get(name))), ""))), "")
            method, claims = fields.get("method"), fields.get("claims")
            why = ""
            if "dead_letter" in fields:
                why = f"a dead letter: {fields['dead_letter']}"
            elif not question or not isinstance(method, str) or not method:
                why = "no query_id and method"
            elif not isinstance(claims, list) or not all(isinstance(claim, str) for claim in claims):
                why = "claims is not a list of texts"
            elif question in counts.counts.get(method, {}):
                why = f"claims of {method} for question {question!r} stand there a second time"
            if why:
                unreadable.append(Unreadable(path, row.record, why))
                continue
            n_found += 1
            counts.add(str(method), question, claims if isinstance(claims, list) else [])
        if not n_found:
            said = f": {unreadable[-1].reason}" if unreadable else ""
            raise InputError(f"{path} holds no claims that can be used{said}")
    return counts, unreadable
