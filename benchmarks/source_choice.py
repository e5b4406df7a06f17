"""Choice of the constants of the ranking of sources, by a cross-validated search over several sets.

    python -m benchmarks.source_ranking FOLDER… --choose [EMBEDDER…] [--index DIR]

Every combination of `GRID` ranks the sources of the same questions, `QUESTIONS` of each kind of question of a set at
most, with each EMBEDDER (minilm alone by default: hashing compares words too, so its choice would say little about
embedders that do not). Its score is the mean over kinds of questions and embedders of recall@5 and of the share of
questions all of whose evidence is among the first 10. The combination with the best score on all sets is printed last.
The gain that it would have on a set that it was not chosen on is measured by leaving out one FOLDER after another: the
best combination on the others is compared with `naive` on all questions of the one left out, with both embedders.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from benchmarks.bridge_ranking import interval
from benchmarks.source_questions import Asked, ask
from benchmarks.source_ranking import FIGURES, Case, Figures, Question, cases, figures_of
from benchmarks.source_variants import Found, Variant, ranked

EMBEDDERS: Final = ("hashing", "minilm")
QUESTIONS: Final = 100  # of a kind of a set, for the search
GRID: Final[Mapping[str, Sequence[Any]]] = {
    "nearest": (5, 10),
    "words": (5, 10, 20),
    "retrieved": (0.25, 0.5, 1.0),
    "near": (0.5, 1.0, 2.0),
    "lexical": (0.5, 1.0, 2.0),
}
OBJECTIVE: Final = (FIGURES.index("recall@5"), FIGURES.index("all@10"))


@dataclass(frozen=True)
class Measured:
    """The questions of one kind of a set, with one embedder.

    Attributes:
        folder: name of the set.
        kind: of the questions.
        scores: (n_combinations,) of each combination, on the questions of the search; empty where it is not searched.
        asked, found, questions: all questions.
    """

    embedder: str
    folder: str
    kind: str
    scores: Figures
    asked: Asked
    found: list[Found]
    questions: list[Question]

    def figures(self, variant: Variant | None) -> Figures:
        """Return the figures of every question; None: of the vectors alone."""
        return np.array([_figures(self.asked, *pair, variant) for pair in zip(self.found, self.questions, strict=True)])


def combinations() -> list[Variant]:
    """Return every combination of `GRID`; the share of the names is 1."""
    return [
        Variant(nearest=nearest, words=words, shares=(1.0, *shares))
        for nearest, words, *shares in itertools.product(*GRID.values())
    ]


def choose(arguments: argparse.Namespace) -> None:
    """Search the grid, and print the combination chosen and its gains on sets left out, a JSON line each."""
    grid = combinations()
    choosing = arguments.choose or ["minilm"]
    measured: list[Measured] = []
    for embedder in EMBEDDERS:
        for case in cases(argparse.Namespace(**vars(arguments) | {"embedder": embedder})):
            measured += _measured(case, embedder, grid if embedder in choosing else [])
    gains: dict[str, list[Figures]] = {}
    for left_out in dict.fromkeys(one.folder for one in measured):
        best = _best(grid, [one for one in measured if one.folder != left_out and one.embedder in choosing])
        for one in measured:
            if one.folder == left_out:
                gain = one.figures(best) - one.figures(None)
                gains.setdefault(one.embedder, []).append(gain)
                _tell({"left out": one.kind, "embedder": one.embedder, "chosen": described(best)}, [gain])
    for embedder, each in gains.items():
        _tell({"left out": "each, together", "embedder": embedder}, each)
    best = _best(grid, [one for one in measured if one.embedder in choosing])
    print(json.dumps({"benchmark": "source_choice", "chosen": described(best)}), flush=True)


def described(variant: Variant) -> str:
    """Return the SPEC of a combination.

    >>> described(Variant(nearest=5, words=10, shares=(1.0, 0.5, 0.5, 1.0)))
    'nearest=5,words=10,shares=1/0.5/0.5/1'
    """
    return f"nearest={variant.nearest},words={variant.words},shares={'/'.join(f'{one:g}' for one in variant.shares)}"


def _best(grid: Sequence[Variant], measured: Sequence[Measured]) -> Variant:
    """Return the combination with the highest mean score, the first of equal ones."""
    return grid[int(np.argmax(np.mean([one.scores for one in measured], axis=0)))]


def _measured(case: Case, embedder: str, grid: Sequence[Variant]) -> Iterator[Measured]:
    asked = asyncio.run(ask(case))
    for kind, _, chosen in case.kinds():
        rows = np.flatnonzero(chosen).tolist()
        rows.sort(key=lambda row: hashlib.sha256(case.questions[row].text.encode()).hexdigest())
        pairs = [(asked.found[row], case.questions[row]) for row in rows]
        scores = [
            np.mean([_figures(asked, *pair, variant) for pair in pairs[:QUESTIONS]], axis=0)[list(OBJECTIVE)].mean()
            for variant in grid
        ]
        found, questions = map(list, zip(*pairs, strict=True))
        yield Measured(embedder, case.name, kind, np.array(scores), asked, found, questions)


def _figures(asked: Asked, found: Found, question: Question, variant: Variant | None) -> list[float]:
    if variant is None:
        rows = [row for row, _ in found.chunks]
    else:
        rows = ranked(asked.index.walk_graph, asked.index.provenance, found, variant)
    return figures_of([asked.passages[row] for row in rows[:10]], question.gold)


def _tell(line: Mapping[str, Any], gains: Sequence[Figures]) -> None:
    together = np.concatenate(gains)
    more = {figure: interval(together[:, at]) for at, figure in enumerate(FIGURES)}
    print(
        json.dumps({"benchmark": "source_choice", **line, "questions": len(together), "more than naive": more}),
        flush=True,
    )
