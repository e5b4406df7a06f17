"""`eval coverage`: how far the bridge covers the other levels, and what the hierarchy is and cost.

Four of the HiRAG paper's measures, of one index: the share of local and global context that the bridge holds too
(Table 7), what indexing and a retrieval cost (Table 5), the sparsity of each layer (Figure 4) and the clustering
coefficient (Figure 5, Eq. 18). No model is asked but the one that embeds questions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.text.tokens import encoding
from hirag_dist.errors import ConfigError
from hirag_dist.evaluation.metrics.overlap import (
    LEVELS,
    TokenRecall,
    recall_in_bridge,
    rendered_levels,
    retrieved_levels,
)
from hirag_dist.evaluation.metrics.statistics import bootstrap_means, known_mean
from hirag_dist.evaluation.questions import Questions
from hirag_dist.evaluation.session import Session
from hirag_dist.evaluation.work_units import Findings, Trial, Value, WorkUnit, trials
from hirag_dist.html import Bars, Cell, Lines, Section, Table, Text
from hirag_dist.inspection.model import BillLine, GraphSummary, LayerSummary
from hirag_dist.inspection.summary import added_lines, bill_lines, graph_summaries, layer_summaries
from hirag_dist.retrieval.search import MODES
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.types import Query, Retrieval
from hirag_dist.types.index_info import Interval

_LAYER_COLUMNS = ("layer", "entities", "clusters", "median_cluster", "sparsity", "change_rate", "decision")


@dataclass(frozen=True)
class HierarchyDescription:
    """Figures of an index and its cost.

    Attributes:
        base, whole: the graph of layer 0, and that of all layers.
        build_seconds: Seconds of the build that published it; None where no record of that is left.
    """

    layers: tuple[LayerSummary, ...]
    base: GraphSummary
    whole: GraphSummary
    bill: tuple[BillLine, ...]
    build_seconds: float | None

    @property
    def total(self) -> BillLine:
        """The bill as one line."""
        return added_lines("total", self.bill)


def hierarchy_of(snapshot: Snapshot, build_seconds: float | None) -> HierarchyDescription:
    """Measure an index: a pass over its entities and relations."""
    tables = {name: snapshot.table(name) for name in ("entities", "relations", "layers", "usage")}
    base, whole = graph_summaries(tables["entities"], tables["relations"])
    return HierarchyDescription(layer_summaries(tables), base, whole, bill_lines(tables["usage"]), build_seconds)


def index_results(hierarchy: HierarchyDescription) -> dict[str, Any]:
    """Return JSON."""
    return {
        "layers": [asdict(layer) for layer in hierarchy.layers],
        "clustering": {"layer_0": asdict(hierarchy.base.clustering), "all_layers": asdict(hierarchy.whole.clustering)},
        "bill": [asdict(line) for line in hierarchy.bill],
        "total": asdict(hierarchy.total),
        "build_seconds": hierarchy.build_seconds,
    }


def index_tables(hierarchy: HierarchyDescription) -> Iterator[Table]:
    """Yield layers, clustering coefficients and the bill."""
    yield Table(
        "Layers (Figure 4)",
        ["layer", "entities", "clusters", "median cluster", "sparsity CS", "change rate", "decision"],
        [[getattr(each, name) for name in _LAYER_COLUMNS] for each in hierarchy.layers],
        form=".4g",
    )
    graphs = (("layer 0", hierarchy.base), ("all layers", hierarchy.whole))
    yield Table(
        "Clustering coefficients (Figure 5)",
        ["graph", "entities", "edges", "closed triples of all (Eq. 18)", "mean of local ones"],
        [
            (name, graph.entities, graph.edges, graph.clustering.transitivity, graph.clustering.average_local)
            for name, graph in graphs
        ],
        form=".4f",
    )
    seconds = hierarchy.build_seconds
    lines = [*hierarchy.bill, hierarchy.total]
    yield Table(
        "Indexing cost (Table 5)",
        ["stage", "calls", "tokens in", "tokens out", "US dollars", "models"],
        [
            (line.stage, line.calls, line.input_tokens, line.output_tokens, line.cost_usd, ", ".join(line.models))
            for line in lines
        ],
        note="No record of the build is left, so its time is not known."
        if seconds is None
        else f"The stages of the build that published it took {seconds:,.1f} seconds.",
        form=",.4g",
    )


def index_curves(hierarchy: HierarchyDescription) -> Iterator[Section]:
    """Yield the sparsity of the layers as the paper draws it."""
    sparsity = [(float(each.layer), each.sparsity) for each in hierarchy.layers if each.sparsity is not None]
    change = [(float(each.layer), each.change_rate) for each in hierarchy.layers if each.change_rate is not None]
    if sparsity:
        yield Lines(
            "Cluster sparsity by layer (Figure 4)", "layer", "share", {"sparsity CS": sparsity, "change rate": change}
        )


ENCODING = "cl100k_base"  # the paper's, whatever the index counts by
PARTS = ("context", "retrieved")
READINGS = ("recall", "distinct_recall")
_COVERED = ("local", "global")
_PARTS_OF_TIME = ("search", "communities", "bridge", "sources", "render")
_TIMES = (*_PARTS_OF_TIME, "retrieval", "embed")
_PART_NAMES = {"context": "in a model's context", "retrieved": "in all that was retrieved"}


async def evaluate_coverage(
    session: Session, questions: Questions, modes: Sequence[str], build_seconds: float | None = None
) -> Findings:
    """Retrieve for every question in every mode and variant, and measure what the bridge covers.

    Args:
        modes: with a bridge; of others nothing is covered.
        build_seconds: as of `Hierarchy`.

    Raises:
        ConfigError: no index, or an unknown mode.
    """
    if session.snapshot is None:
        raise ConfigError("coverage is measured on an index: name it with --index URI")
    systems = session.systems(modes, MODES)
    session.refuse_records("questions", questions.unreadable)
    context = {
        "snapshot": session.snapshot.manifest.snapshot_id,
        "tokenizer": session.config.tokenizer,
        "encoding": ENCODING,
    }

    def units() -> Iterator[WorkUnit[Trial]]:
        for trial in trials(questions.items, systems):
            decides = {"question": trial.question.text, **context, **trial.system.decides}
            yield WorkUnit(trial.name, decides, trial)

    async def work(asked: Trial) -> Value:
        engine = session.engine(asked.system)
        return measured(await engine.retrieve(Query(asked.question.text, mode=asked.system.mode)))

    outcomes = await session.map("coverage", units(), work, at_once=1)  # its times are those of a question alone
    board = _Board(len(questions.items), [system.name for system in systems])
    async for outcome in outcomes:
        board.add(outcome.item.place, outcome.item.system.name, outcome.value)
    hierarchy = hierarchy_of(session.snapshot, build_seconds)
    results = {"systems": board.results(), "index": index_results(hierarchy)}
    about_index = list(index_tables(hierarchy))
    sections: list[Section] = [
        *board.bars(),
        *index_curves(hierarchy),
        board.covered(PARTS),
        board.times(_TIMES),
        *about_index,
        _EXPLAINED,
    ]
    headline = [board.covered(PARTS[:1]), board.times(("retrieval", "embed")), *about_index]
    return Findings(results, sections, headline, questions.counts)


def measured(found: Retrieval) -> Value:
    """Return the figures of one retrieval, as they are stored."""
    encode = encoding(ENCODING).encode_ordinary
    value: Value = {"context_tokens": found.context_tokens, "timings_ms": dict(found.timings_ms)}
    for part, levels in (("context", rendered_levels(found.context)), ("retrieved", retrieved_levels(found))):
        recalls = recall_in_bridge(levels, encode)
        value[part] = {
            "tokens": {level: len(encode(levels[level])) for level in LEVELS},
            "in_bridge": {level: None if each is None else asdict(each) for level, each in recalls.items()},
        }
    value["pairs"] = len(found.paths)
    value["connected"] = sum(path.connected for path in found.paths)
    return value


class _Board:
    """Recalls, tokens and times by question and system."""

    def __init__(self, n_questions: int, systems: Sequence[str]) -> None:
        self._systems = tuple(systems)
        self._columns = [(part, level, reading) for part in PARTS for level in _COVERED for reading in READINGS]
        shape = (n_questions, len(systems))
        self._recalls = np.full((*shape, len(self._columns)), np.nan)
        self._tokens = np.full((*shape, len(PARTS) * len(LEVELS)), np.nan)
        self._times = np.full((*shape, len(_TIMES)), np.nan)
        self._facts = np.full((*shape, 3), np.nan)  # context tokens, pairs, connected pairs

    def add(self, place: int, system: str, value: Value) -> None:
        column = self._systems.index(system)
        self._tokens[place, column] = [value[part]["tokens"][level] for part in PARTS for level in LEVELS]
        times = value["timings_ms"]
        parts = [times.get(name, np.nan) for name in _PARTS_OF_TIME]
        embed = times.get("embed", np.nan)
        self._times[place, column] = [*parts, times["total"] - np.nan_to_num(embed), embed]
        self._facts[place, column] = [value["context_tokens"], value["pairs"], value["connected"]]
        for at, (part, level, reading) in enumerate(self._columns):
            if (counts := value[part]["in_bridge"][level]) is not None:
                self._recalls[place, column, at] = getattr(TokenRecall(**counts), reading)

    def results(self) -> dict[str, Any]:
        """Return JSON by system."""
        return {system: self._result(column) for column, system in enumerate(self._systems)}

    def bars(self) -> Iterator[Section]:
        """Yield the headline: both levels, every occurrence counted, in a model's context."""
        series = {
            level: [(system, self._recall(at, "context", level, "recall")) for at, system in enumerate(self._systems)]
            for level in _COVERED
        }
        yield Bars(
            "Share of a level's tokens that the bridge holds too",
            series,
            note="In a model's context, every occurrence counted; 95 % bootstrap intervals over questions.",
        )

    def covered(self, parts: Sequence[str]) -> Table:
        """Return both readings of Table 7 for some parts."""
        rows: list[list[Cell]] = [
            [
                system,
                _PART_NAMES[part],
                level,
                *(self._recall(at, part, level, reading) for reading in READINGS),
                _whole(self._tokens[:, at, PARTS.index(part) * len(LEVELS) + LEVELS.index(level)]),
            ]
            for at, system in enumerate(self._systems)
            for part in parts
            for level in _COVERED
        ]
        columns = ["system", "of the text", "level", "of all tokens", "of distinct tokens", "tokens"]
        return Table("What the bridge holds of the other levels (Table 7)", columns, rows)

    def times(self, names: Sequence[str]) -> Table:
        """Return the mean cost of a retrieval, with the times of some of its parts."""
        rows: list[list[Cell]] = [
            [
                system,
                _whole(self._facts[:, at, 0]),
                *(known_mean(self._times[:, at, _TIMES.index(name)]) for name in names),
            ]
            for at, system in enumerate(self._systems)
        ]
        return Table(
            "A retrieval takes, on average",
            ["system", "context tokens", *(f"{name} ms" for name in names)],
            rows,
            note="No chat model is asked: 0 tokens, and one embedding of a question (Table 5, Retrieval). An endpoint "
            "is asked for it once: the systems after the first read it from the ledger. Retrieval is without it.",
            form=",.4g",
        )

    def _result(self, column: int) -> dict[str, Any]:
        return {
            "questions": int((~np.isnan(self._facts[:, column, 0])).sum()),
            "in_bridge": {
                part: {
                    level: {reading: self._recall(column, part, level, reading) for reading in READINGS}
                    for level in _COVERED
                }
                for part in PARTS
            },
            "tokens": {
                part: {
                    level: known_mean(self._tokens[:, column, at * len(LEVELS) + place])
                    for place, level in enumerate(LEVELS)
                }
                for at, part in enumerate(PARTS)
            },
            "context_tokens": known_mean(self._facts[:, column, 0]),
            "connected_pairs": _ratio(self._facts[:, column, 2], self._facts[:, column, 1]),
            "timings_ms": {name: _times(self._times[:, column, at]) for at, name in enumerate(_TIMES)},
        }

    def _recall(self, column: int, part: str, level: str, reading: str) -> Interval:
        at = self._columns.index((part, level, reading))
        return bootstrap_means(self._recalls[:, column, at : at + 1])[0]


def _whole(values: NDArray[np.float64]) -> int | None:
    """Return the mean without its fraction; None where no value is known."""
    mean = known_mean(values)
    return None if np.isnan(mean) else round(mean)


def _ratio(part: NDArray[np.float64], whole: NDArray[np.float64]) -> float | None:
    total = float(np.nansum(whole))
    return float(np.nansum(part)) / total if total else None


def _times(values: NDArray[np.float64]) -> dict[str, float]:
    known = values[~np.isnan(values)]
    if not len(known):
        return {}
    p50, p95 = (float(np.percentile(known, at)) for at in (50, 95))
    return {"mean": float(known.mean()), "p50": p50, "p95": p95}


_EXPLAINED = Text(
    "What is measured",
    [
        "The paper calls its Table 7 an average token-level recall and gives no formula. Here a level's tokens "
        f"({ENCODING}) are a multiset, as in the recall of question answering: a token that the level holds five times "
        "and the bridge twice counts two of five. The share of distinct tokens is the other way to read it.",
        "In a model's context each level is cut to its share of the token limit, the bridge too; all that was "
        "retrieved is the same texts uncut. The bridge's text is its triples: both names and the relation's "
        "description. Shares are means over the questions whose level holds any text.",
        "High coverage says that the bridge repeats a level's words, not that answers become better by it.",
    ],
)
