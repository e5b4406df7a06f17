"""`eval retrieval`: whether what is retrieved holds the gold evidence, by mode and by level, and how fast it is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from hirag_dist.errors import ConfigError, InputError
from hirag_dist.evaluation.evidence import LEVELS, Evidence
from hirag_dist.evaluation.findings import Findings
from hirag_dist.evaluation.questions import Question, Questions
from hirag_dist.evaluation.retrieval_report import RetrievalTally, findings
from hirag_dist.evaluation.session import Session, SystemUnderTest
from hirag_dist.evaluation.work_units import Value, WorkUnit
from hirag_dist.retrieval.search import MODES
from hirag_dist.types import IntVector, Query

STEP = "retrieve"
_VERSION = 1  # of what is kept of a unit
_AT_ONCE = 64  # questions under way: while one searches, others are embedded and put on record


@dataclass(frozen=True, slots=True)
class RetrievalOutcome:
    """A question, put to a system."""

    question: Question
    system: SystemUnderTest


async def evaluate_retrieval(
    session: Session, questions: Questions, modes: Sequence[str], ks: Sequence[int]
) -> Findings:
    """Ask every question with gold evidence in every mode and setting, and compare what comes.

    Args:
        session: with an index.
        questions: those without gold ids are counted and not asked.
        modes: of retrieval.
        ks: sources that count, each at least 1.

    Raises:
        ConfigError: no index, an unknown mode, or no k.
        InputError: no question has gold evidence, or the index has none of all the gold ids.
    """
    if session.snapshot is None:
        raise ConfigError("eval retrieval asks an index: name it with --index URI")
    if not ks or min(ks) < 1:
        raise ConfigError("--k takes numbers of sources, each at least 1")
    unknown = [mode for mode in modes if mode not in MODES]
    if unknown or not modes:
        raise ConfigError(f"--modes: there is no {', '.join(unknown) or 'mode'}; there are: {', '.join(MODES)}")
    asked = [question for question in questions.items if question.gold]
    if not asked:
        raise InputError(f"no question of {questions.source} names gold evidence; name its field with --gold-field")
    session.refuse_records("questions", questions.unreadable)
    evidence = Evidence(session.snapshot, (own for question in asked for own in question.gold))
    if not evidence.known:
        raise InputError(none_known(questions.source, asked[0].gold[0], evidence.examples))
    systems = [_deep_enough(system, max(ks)) for system in session.systems(modes)]
    outcomes = await session.map(STEP, _units(session, asked, systems), _Work(session, evidence), at_once=_AT_ONCE)
    tally = RetrievalTally(asked, systems)
    async for outcome in outcomes:
        tally.add(outcome.item.question, outcome.item.system, outcome.value)
    counts = questions.counts | {"gold_ids_unknown": _n_unknown(asked, evidence)}
    return findings(tally, sorted(set(ks)), evidence.n_chunks, counts)


def none_known(source: str, gold_id: str, examples: Sequence[str]) -> str:
    """Return the advice for an index that has none of the gold ids; `examples` are ids that it has."""
    said = f"the index has none of the gold ids of {source}, which are like {gold_id!r}"
    if not examples:
        return (
            f"{said}: an earlier version built it, which kept no ids of records; build it again, nothing is paid again"
        )
    like = ", ".join(map(repr, examples))
    return (
        f"{said}, while its records have ids like {like}; name the right field with --gold-field, or build the index "
        "with --id-field"
    )


def _deep_enough(system: SystemUnderTest, k: int) -> SystemUnderTest:
    """Return a system that returns as many sources as are counted; which ones come first does not change."""
    n_sources = max(system.retrieval.top_sources, k)
    return replace(system, retrieval=system.retrieval.model_copy(update={"top_sources": n_sources}))


def _units(
    session: Session, questions: Sequence[Question], systems: Sequence[SystemUnderTest]
) -> Iterator[WorkUnit[RetrievalOutcome]]:
    assert session.snapshot is not None
    snapshot_id = session.snapshot.manifest.snapshot_id
    for question in questions:
        for system in systems:
            decides = [_VERSION, snapshot_id, question.text, question.gold, system.decides]
            yield WorkUnit(f"{question.id} {system.name}", decides, RetrievalOutcome(question, system))


def _n_unknown(questions: Sequence[Question], evidence: Evidence) -> int:
    return len({own for question in questions for own in question.gold} - evidence.known)


class _Work:
    """Retrieves for one question at a time, so that the times are a question's own.

    Vectors are waited for beforehand where an endpoint makes them, for many questions together.
    """

    def __init__(self, session: Session, evidence: Evidence) -> None:
        self._session = session
        self._evidence = evidence
        self._alone = asyncio.Lock()

    async def __call__(self, asked: RetrievalOutcome) -> Value:
        text = asked.question.text
        vector = await self._session.embed(text) if self._session.embeds_elsewhere else None
        async with self._alone:
            if vector is None:
                vector = await self._session.embed(text)
            found = await self._session.engine(asked.system).retrieve(Query(text, asked.system.mode, vector=vector))
            behind = self._evidence.behind(found)  # here: concurrent work would count in another question's times
        gold = [self._evidence.of(own) for own in asked.question.gold]
        return {
            "question": asked.question.id,
            "system": asked.system.name,
            "ranks": [_rank(behind["sources"], chunks) for chunks in gold],
            "reached": {level: [bool(chunks & set(behind[level].tolist())) for chunks in gold] for level in LEVELS},
            "chunks": {level: len(behind[level]) for level in LEVELS},
            "ms": {part: round(time, 4) for part, time in found.timings_ms.items() if part != "embed"},
            "context_tokens": found.context_tokens,
        }


def _rank(sources: IntVector, chunks: frozenset[int]) -> int | None:
    """Return the place of the first source, from 1, that is one of the chunks; None where none is."""
    return next((place for place, chunk in enumerate(sources.tolist(), start=1) if chunk in chunks), None)
