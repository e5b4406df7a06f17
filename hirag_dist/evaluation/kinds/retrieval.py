"""`eval retrieval`: whether what is retrieved holds the gold evidence, by mode and by level, and how fast it is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.text.normalize import count_noun
from hirag_dist.errors import ConfigError, InputError
from hirag_dist.evaluation.evidence import LEVELS, Evidence
from hirag_dist.evaluation.metrics.statistics import bootstrap_means, known_mean
from hirag_dist.evaluation.questions import Question, Questions
from hirag_dist.evaluation.session import Session
from hirag_dist.evaluation.work_units import Findings, SystemUnderTest, Trial, Value, WorkUnit, trials
from hirag_dist.html import Bars, Cell, Section, Table, Text
from hirag_dist.retrieval.search import MODES
from hirag_dist.types import IntVector, Query
from hirag_dist.types.index_info import Interval

STEP = "retrieve"
_VERSION = 1  # of what is kept of a unit
_AT_ONCE = 64  # questions under way: while one searches, others are embedded and put on record


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
    configured = session.systems(modes, MODES)
    asked = [question for question in questions.items if question.gold]
    if not asked:
        raise InputError(f"no question of {questions.source} names gold evidence; name its field with --gold-field")
    session.refuse_records("questions", questions.unreadable)
    evidence = Evidence(session.snapshot, (own for question in asked for own in question.gold))
    if not evidence.known:
        raise InputError(none_known(questions.source, asked[0].gold[0], evidence.examples))
    systems = [_deep_enough(system, max(ks)) for system in configured]
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
) -> Iterator[WorkUnit[Trial]]:
    assert session.snapshot is not None
    snapshot_id = session.snapshot.manifest.snapshot_id
    for trial in trials(questions, systems):
        question = trial.question
        decides = [_VERSION, snapshot_id, question.text, question.gold, trial.system.decides]
        yield WorkUnit(trial.name, decides, trial)


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

    async def __call__(self, asked: Trial) -> Value:
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


_PARTS = ("search", "communities", "bridge", "sources", "render", "total")
_MAX_TYPES = 20
_BASELINE = "naive"

Numbers = NDArray[np.float64]


class RetrievalTally:
    """Outcomes, question by question and system by system; a few numbers each.

    Attributes:
        ranks: (question, system) → the place of each gold id among the sources, None where it is none of them; a dead
            letter is missing.
        reached, only: level → (n_questions, n_systems) share of gold ids behind the level, and behind it alone.
        chunks: level → how many chunks are behind it.
        ms: part → milliseconds.
    """

    def __init__(self, questions: Sequence[Question], systems: Sequence[SystemUnderTest]) -> None:
        self.questions = questions
        self.systems = systems
        self._row = {question.id: place for place, question in enumerate(questions)}
        self._column = {system.name: place for place, system in enumerate(systems)}
        shape = len(questions), len(systems)
        self.ranks: dict[tuple[int, int], list[int | None]] = {}
        self.reached = {level: np.full(shape, np.nan) for level in LEVELS}
        self.only = {level: np.full(shape, np.nan) for level in LEVELS}
        self.chunks = {level: np.full(shape, np.nan) for level in LEVELS}
        self.ms = {part: np.full(shape, np.nan) for part in _PARTS}
        self.context_tokens = np.full(shape, np.nan)

    def add(self, question: Question, system: SystemUnderTest, value: Value) -> None:
        """Take in one outcome."""
        at = self._row[question.id], self._column[system.name]
        self.ranks[at] = value["ranks"]
        reached = np.array([value["reached"][level] for level in LEVELS], bool)  # (levels, gold)
        alone = reached & (reached.sum(axis=0) == 1)
        for place, level in enumerate(LEVELS):
            self.reached[level][at] = reached[place].mean()
            self.only[level][at] = alone[place].mean()
            self.chunks[level][at] = value["chunks"][level]
        for part in _PARTS:
            self.ms[part][at] = value["ms"].get(part, np.nan)
        self.context_tokens[at] = value["context_tokens"]

    def recall(self, k: int) -> Numbers:
        """Return (n_questions, n_systems) the share of a question's gold ids among its first k sources."""
        table = np.full((len(self.questions), len(self.systems)), np.nan)
        for at, ranks in self.ranks.items():
            table[at] = sum(rank is not None and rank <= k for rank in ranks) / len(ranks)
        return table


def findings(tally: RetrievalTally, ks: Sequence[int], n_chunks: int, counts: Mapping[str, int]) -> Findings:
    """Return results and sections.

    Args:
        tally: of all outcomes.
        ks: sources that count, rising.
        n_chunks: of the index, against which levels are weighed.
        counts: of the questions.
    """
    recall = {k: tally.recall(k) for k in ks}
    measures = {f"recall@{k}": recall[k] for k in ks}
    measures |= {f"all@{k}": np.where(np.isnan(recall[k]), np.nan, recall[k] >= 1.0) for k in ks}
    types = sorted({question.type for question in tally.questions})
    groups = {"": np.ones(len(tally.questions), bool)}
    if 1 < len(types) <= _MAX_TYPES:
        of_type = np.array([question.type for question in tally.questions])
        groups |= {kind: of_type == kind for kind in types if kind}
    by_group = {kind: _of_group(tally, measures, rows) for kind, rows in groups.items()}
    levels, times = _levels(tally), _times(tally)
    results = {
        "measures": list(measures),
        "asked": len(tally.questions),
        "systems": by_group[""]["systems"],
        "differences": by_group[""]["differences"],
        "by_type": {kind: found for kind, found in by_group.items() if kind},
        "levels": levels,
        "chunks_of_index": n_chunks,
        "ms": times,
        "context_tokens": {
            system.name: known_mean(tally.context_tokens[:, place]) for place, system in enumerate(tally.systems)
        },
    }
    main = _main_table(tally, by_group[""]["systems"], list(measures))
    differences = _difference_table(by_group, f"recall@{_middle(ks)}")
    compared: list[Section] = []
    if len(tally.systems) > 1:
        compared = [_difference_bars(by_group, f"recall@{_middle(ks)}"), differences]
    sections: list[Section] = [
        Text("What this shows", _explained(ks, n_chunks, counts, tally)),
        main,
        *(_bars(by_group[""]["systems"], f"{name}@", ks, title) for name, title in _TITLES.items()),
        *compared,
        *_type_tables(tally, by_group, f"recall@{_middle(ks)}"),
        _level_table(levels, n_chunks),
        _time_table(times),
    ]
    brief = f"recall@{_middle(ks)}"
    few = replace(differences, rows=[row for row in differences.rows if row[:2] == [brief, "all"]], note="")
    shown = [main, few] if len(tally.systems) > 1 else [main]
    return Findings(results, sections, shown, counts)


_TITLES = {"recall": "Recall of gold evidence", "all": "Questions with all of their evidence"}


def _of_group(tally: RetrievalTally, measures: Mapping[str, Numbers], rows: NDArray[np.bool_]) -> dict[str, Any]:
    """Return each system's measures over some questions, and its differences to the first and to the baseline."""
    names = [system.name for system in tally.systems]
    against = list(dict.fromkeys([*(name for name in names if name == _BASELINE), names[0]]))
    pairs = [(one, other) for other in against for one in names if one != other]
    pairs = [pair for at, pair in enumerate(pairs) if pair[::-1] not in pairs[:at]]
    place = {name: at for at, name in enumerate(names)}
    columns = [table[rows, place[name]] for table in measures.values() for name in names]
    columns += [table[rows, place[a]] - table[rows, place[b]] for table in measures.values() for a, b in pairs]
    intervals = iter(bootstrap_means(np.stack(columns, axis=1)))
    by_measure = {measure: {name: next(intervals) for name in names} for measure in measures}
    differences = [
        {"measure": measure, "system": a, "against": b, "difference": next(intervals)}
        for measure in measures
        for a, b in pairs
    ]
    systems = {name: {measure: by_measure[measure][name] for measure in measures} for name in names}
    return {"questions": int(rows.sum()), "systems": systems, "differences": differences}


def _levels(tally: RetrievalTally) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for place, system in enumerate(tally.systems):
        found[system.name] = {
            level: {
                "reached": known_mean(tally.reached[level][:, place]),
                "only_by_it": known_mean(tally.only[level][:, place]),
                "chunks": known_mean(tally.chunks[level][:, place]),
            }
            for level in LEVELS
        }
    return found


def _times(tally: RetrievalTally) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for place, system in enumerate(tally.systems):
        known = {part: tally.ms[part][:, place] for part in _PARTS}
        known = {part: times[~np.isnan(times)] for part, times in known.items()}
        found[system.name] = {
            part: {"p50": float(np.quantile(times, 0.5)), "p99": float(np.quantile(times, 0.99))}
            for part, times in known.items()
            if len(times)
        }
    return found


def _middle(ks: Sequence[int]) -> int:
    return ks[len(ks) // 2]


def _explained(ks: Sequence[int], n_chunks: int, counts: Mapping[str, int], tally: RetrievalTally) -> list[str]:
    said = [
        "recall@k is the share of a question's gold ids of which a chunk is among the first k sources, averaged over "
        "questions; all@k is the share of questions that have all of theirs there. Intervals are 95 % percentile "
        "bootstrap intervals over questions (10,000 resamples); differences are paired, question by question.",
        f"Asked: {count_noun(len(tally.questions), 'question')} with gold evidence; the index has "
        f"{count_noun(n_chunks, 'chunk')}, "
        f"so a random choice of {count_noun(ks[-1], 'source')} would find "
        f"{min(ks[-1] / max(n_chunks, 1), 1):.2%} of single "
        "chunks.",
    ]
    if counts.get("without_gold"):
        without = count_noun(counts["without_gold"], "question that names", "questions that name")
        said.append(f"Not asked: {without} no evidence.")
    if counts.get("gold_ids_unknown"):
        unknown = count_noun(counts["gold_ids_unknown"], "gold id is", "gold ids are")
        said.append(f"{unknown} not in the index, which counts as evidence that was not found.")
    return said


def _main_table(tally: RetrievalTally, systems: Mapping[str, Mapping[str, Interval]], measures: Sequence[str]) -> Table:
    rows: list[list[Cell]] = [[name, *(systems[name][measure] for measure in measures)] for name in systems]
    return Table("Evidence found by mode", ["mode", *measures], rows, form=".1%")


def _bars(systems: Mapping[str, Mapping[str, Interval]], prefix: str, ks: Sequence[int], title: str) -> Bars:
    series = {f"@{k}": [(name, found[f"{prefix}{k}"]) for name, found in systems.items()] for k in ks}
    return Bars(title, series, "Lines are 95 % bootstrap intervals over questions.")


def _difference_table(by_group: Mapping[str, Mapping[str, Any]], measure: str) -> Table:
    rows = []
    for kind, found in by_group.items():
        for row in found["differences"]:
            if kind == "" or row["measure"] == measure:
                which = kind or "all"
                sure = row["difference"].beyond_zero
                rows.append([row["measure"], which, row["system"], row["against"], row["difference"], sure])
    columns = ["measure", "questions", "mode", "against", "difference", "beyond zero"]
    note = "Paired: over the questions that both answered. Of types, only one measure is shown; report.json has all."
    return Table("Differences between modes", columns, rows, note, "+.1%")


def _difference_bars(by_group: Mapping[str, Mapping[str, Any]], measure: str) -> Bars:
    series: dict[str, list[tuple[str, Interval]]] = {}
    for kind, found in by_group.items():
        for row in found["differences"]:
            if row["measure"] == measure:
                pair = f"{row['system']} − {row['against']}"
                series.setdefault(kind or "all questions", []).append((pair, row["difference"]))
    note = "An interval that does not touch zero tells the two apart; of many such intervals some do by chance."
    return Bars(f"Differences in {measure}", series, note, "+.1%", None)


def _type_tables(tally: RetrievalTally, by_group: Mapping[str, Mapping[str, Any]], measure: str) -> list[Section]:
    kinds = {kind: found for kind, found in by_group.items() if kind}
    if not kinds:
        return []
    names = [system.name for system in tally.systems]
    rows: list[list[Cell]] = [
        [kind, found["questions"], *(found["systems"][name][measure] for name in names)]
        for kind, found in kinds.items()
    ]
    return [Table(f"{measure} by type of question", ["type", "questions", *names], rows, form=".1%")]


def _level_table(levels: Mapping[str, Mapping[str, Any]], n_chunks: int) -> Table:
    rows: list[list[Cell]] = [
        [name, level, found["reached"], found["only_by_it"], found["chunks"] / max(n_chunks, 1)]
        for name, by_level in levels.items()
        for level, found in by_level.items()
        if found["chunks"]
    ]
    note = (
        "Share of gold evidence of which a chunk stands behind a level, and behind no other; and the share of all "
        "chunks of the index that stand behind it. local: chunks of the entities; global: of the members of the "
        "communities, of which the reports tell only a part; bridge: of path nodes, key entities and relations."
    )
    return Table(
        "Evidence reached by level", ["mode", "level", "reached", "only by it", "of the index"], rows, note, ".1%"
    )


def _time_table(times: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Table:
    rows: list[list[Cell]] = []
    for name, found in times.items():
        medians = [found[part]["p50"] if part in found else None for part in _PARTS]
        rows.append([name, *medians, found["total"]["p99"] if "total" in found else None])
    note = "Milliseconds of one question, median; embedding the question is not in them."
    return Table("Time", ["mode", *_PARTS, "total p99"], rows, note, ".2f")
