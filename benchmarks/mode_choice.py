"""The choice of a mode by the question: training, and what it is worth on the halves that training did not see.

    python -m benchmarks.mode_choice DATA SETS --index DIR [--embedder hashing minilm] [--measured FILE] [--write]

DATA is a folder of the public data sets, SETS the folder that `source_sets.py` wrote; `mode_questions.py` describes the
questions. Every question is asked in every mode, with each EMBEDDER for which DIR has the index of its set (an index
is built with the first one where it is not there). The linear models and the mode of each class are chosen on the half
`train`; --write puts them into `hirag_dist/core/retrieval/mode_coefficients.py`. JSON lines on the half `test`: the
accuracy by class, the confusion, the accuracy on each set when it is left out of the training, and the evidence and
context tokens of `auto` against those of each mode, with a paired bootstrap interval over questions. --measured keeps
what was measured, and uses it where it is there.

The mode of a class is the one with the fewest context tokens whose evidence is not below that of `hirag` by more than
`MAX_LOSS`, among those with the level that the class asks about: paths for `path`, summaries for `corpus-wide`. Of
modes with about as few tokens (`SAME_TOKENS`) it is the one with the most evidence.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from benchmarks.bridge_ranking import interval
from benchmarks.mode_measures import FIGURES, MODES, Measured, measured
from benchmarks.mode_questions import questions
from hirag_dist.core.retrieval.mode_choice import (
    CLASSES,
    FALLBACK,
    NAME_FEATURES,
    WORD_FEATURES,
    class_probabilities,
    decided,
    question_features,
)

TARGET: Final = Path(__file__).parents[1] / "hirag_dist" / "core" / "retrieval" / "mode_coefficients.py"
MAX_LOSS: Final = 0.005  # of evidence, in the mean over sets
CANDIDATES: Final = {
    "fact": ("local", "lean", "global", "nobridge", "bridge", "hirag"),
    "comparison": ("local", "lean", "global", "nobridge", "bridge", "hirag"),
    "path": ("lean", "bridge", "hirag"),
    "corpus-wide": ("lean", "global", "nobridge", "hirag"),
}
SAME_TOKENS: Final = 1.05
_NEVER: Final = -99.0  # intercept of a class without questions
STRENGTH: Final = 0.1  # of the regularisation: inverse, as scikit-learn has it

Coefficients = dict[str, dict[str, float]]
Models = tuple[Coefficients, Coefficients]  # with words, and by names alone


@dataclass(frozen=True)
class Trained:
    """Models, and the mode of each class."""

    models: Models
    class_modes: dict[str, str]

    def mode(self, one: Measured) -> tuple[str, str]:
        """Return (class, mode) of a question."""
        features, found = question_features(one.question, one.n_names)
        choice = decided(class_probabilities(features, self.models[0 if found else 1]), self.class_modes, features)
        return choice.question_class, choice.mode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument("sets", type=Path, metavar="SETS")
    parser.add_argument("--index", type=Path, required=True, help="the indexes")
    parser.add_argument("--embedder", nargs="+", choices=("hashing", "minilm"), default=["hashing"])
    parser.add_argument("--measured", type=Path, help="file of what was measured")
    parser.add_argument("--write", action="store_true", help="write the coefficients")
    arguments = parser.parse_args()
    rows = _measured(arguments)
    train = [row for row in rows if row.half == "train"]
    trained = fit(train)
    if arguments.write:
        TARGET.write_text(written(trained, sorted({row.set for row in train})), encoding="utf-8")
    _tell({"modes of the classes": trained.class_modes})
    report_accuracy(trained, rows)
    report_left_out(rows)
    report_worth(trained, [row for row in rows if row.half == "test"])


def _measured(arguments: argparse.Namespace) -> list[Measured]:
    """Return the measures of all sets; those that are not kept are measured."""
    kept: Path | None = arguments.measured
    rows = []
    if kept is not None and kept.exists():
        rows = [Measured(**json.loads(line)) for line in kept.read_text(encoding="utf-8").splitlines()]
    asked = list(questions(arguments.data, arguments.sets))
    there = {(row.index, row.embedder) for row in rows}
    for index, embedder, found in measured(arguments, asked, there):
        rows += found
        if kept is not None:
            with kept.open("a", encoding="utf-8") as out:
                out.writelines(json.dumps(asdict(row)) + "\n" for row in found)
        _tell({"measured": index, "embedder": embedder, "questions": len(found)})
    return rows


def fit(rows: Sequence[Measured]) -> Trained:
    """Return the models and the modes of the classes that some questions suggest."""
    read = [question_features(row.question, row.n_names)[0] for row in rows]
    weights = class_weights(rows)
    names = [*NAME_FEATURES, *WORD_FEATURES]
    with_words = np.array(["words of fact" in features for features in read])
    by_words = _fit(rows, read, weights * with_words, names)
    by_names = _fit(rows, read, weights, list(NAME_FEATURES))
    return Trained((by_words, by_names), {name: cheapest(rows, name) for name in CLASSES})


def class_weights(rows: Sequence[Measured]) -> NDArray[np.float64]:
    """Return the weight of each question: classes count alike, and a set by the square root of its size."""
    cells: dict[tuple[str, str], list[int]] = defaultdict(list)
    for at, row in enumerate(rows):
        cells[row.kind, row.set].append(at)
    weights = np.zeros(len(rows))
    for cell in cells.values():
        weights[cell] = 1.0 / np.sqrt(len(cell))
    for kind in CLASSES:
        own = np.array([row.kind == kind for row in rows])
        if own.any():
            weights[own] /= weights[own].sum()
    return weights * len(rows) / len(CLASSES)


def _fit(
    rows: Sequence[Measured], read: Sequence[Mapping[str, float]], weights: NDArray[np.float64], names: Sequence[str]
) -> Coefficients:
    chosen = np.flatnonzero(weights > 0).tolist()
    values = np.array([[read[at].get(name, 0.0) for name in names] for at in chosen])
    classes = np.array([CLASSES.index(rows[at].kind) for at in chosen])
    model = LogisticRegression(C=STRENGTH, max_iter=5000, tol=1e-8)
    model.fit(values, classes, sample_weight=weights[chosen])
    found = {kind: {"intercept": _NEVER} | dict.fromkeys(names, 0.0) for kind in CLASSES}
    for kind, intercept, own in zip(model.classes_, model.intercept_, model.coef_, strict=True):
        pairs = zip(("intercept", *names), (intercept, *own), strict=True)
        found[CLASSES[kind]] = {name: round(float(value), 3) for name, value in pairs}
    return found


def cheapest(rows: Sequence[Measured], kind: str) -> str:
    """Return the mode of a class."""
    own = [row for row in rows if row.kind == kind and row.figures[FALLBACK]["evidence"] is not None]
    if not own:
        return FALLBACK
    means = {mode: [_mean(own, mode, figure) for figure in ("evidence", "tokens")] for mode in CANDIDATES[kind]}
    usable = [mode for mode, (evidence, _) in means.items() if evidence >= means[FALLBACK][0] - MAX_LOSS]
    fewest = min(means[mode][1] for mode in usable)
    return max((mode for mode in usable if means[mode][1] <= SAME_TOKENS * fewest), key=lambda mode: means[mode][0])


def _mean(rows: Sequence[Measured], mode: str, figure: str) -> float:
    """Return the mean of a figure over sets."""
    cells: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        cells[row.set, row.embedder].append(row.figures[mode][figure] or 0.0)
    return float(np.mean([np.mean(values) for values in cells.values()])) if cells else 0.0


def report_accuracy(trained: Trained, rows: Sequence[Measured]) -> None:
    """Print the accuracy on the half for tests: by class, by set, and on sets left out. Questions count once."""
    once = list({(row.set, row.index, row.question): row for row in rows}.values())
    test = [row for row in once if row.half == "test"]
    for kind in CLASSES:
        found = [trained.mode(row) for row in test if row.kind == kind]
        confusion = {other: sum(own == other for own, _ in found) for other in CLASSES}
        right = [float(own == kind) for own, _ in found]
        modes = dict(Counter(mode for _, mode in found))
        _tell(
            {"class": kind, "questions": len(found), "right": interval(np.array(right)), "classified as": confusion}
            | {"modes": modes}
        )
    for name in sorted({row.set for row in once}):
        others = fit([row for row in rows if row.half == "train" and row.set != name])
        for kind in CLASSES:
            whole = [row for row in once if row.set == name and row.kind == kind]
            held = [row for row in whole if row.half == "test"]
            if whole:
                line: dict[str, Any] = {"set": name, "class": kind, "questions": len(held)}
                line["right"] = (
                    round(float(np.mean([trained.mode(row)[0] == kind for row in held])), 3) if held else None
                )
                left = [others.mode(row)[0] for row in whole]
                line |= {"left out, questions": len(whole)}
                line |= {"left out, right": round(float(np.mean([own == kind for own in left])), 3)}
                _tell(line)


def report_left_out(rows: Sequence[Measured]) -> None:
    """Print, for each set, the difference of `auto` to `hirag` with models and modes of the other sets."""
    for name in sorted({row.set for row in rows if row.figures[FALLBACK]["evidence"] is not None}):
        others = fit([row for row in rows if row.half == "train" and row.set != name])
        for embedder in sorted({row.embedder for row in rows}):
            own = [row for row in rows if (row.set, row.embedder) == (name, embedder)]
            own = [row for row in own if row.figures[FALLBACK]["evidence"] is not None]
            if own:
                line: dict[str, Any] = {"left out": name, "embedder": embedder, "questions": len(own)}
                for figure in FIGURES:
                    pairs = [(row.figures[others.mode(row)[1]][figure], row.figures[FALLBACK][figure]) for row in own]
                    line[f"{figure}, auto - {FALLBACK}"] = interval(-np.diff(np.array(pairs, np.float64))[:, 0])
                _tell(line | {"modes": others.class_modes})


def report_worth(trained: Trained, rows: Sequence[Measured]) -> None:
    """Print what `auto` finds next to each mode, by class and for all questions with evidence."""
    asked = [row for row in rows if row.figures[FALLBACK]["evidence"] is not None]
    for embedder in sorted({row.embedder for row in asked}):
        for kind in (*CLASSES, "all"):
            own = [row for row in asked if row.embedder == embedder and kind in (row.kind, "all")]
            if not own:
                continue
            auto = [row.figures[trained.mode(row)[1]] for row in own]
            for figure in FIGURES:
                ours = np.array([one[figure] for one in auto], np.float64)
                line: dict[str, Any] = {"embedder": embedder, "class": kind, "figure": figure}
                line |= {"questions": len(own), "auto": round(float(ours.mean()), 3)}
                for mode in MODES:
                    theirs = np.array([row.figures[mode][figure] for row in own], np.float64)
                    line |= {mode: round(float(theirs.mean()), 3), f"auto - {mode}": interval(ours - theirs)}
                _tell(line)


def written(trained: Trained, sets: Sequence[str]) -> str:
    """Return the module of coefficients."""
    lines = [
        '"""Coefficients of the choice of a mode (`mode_choice`).',
        "",
        "Written by `python -m benchmarks.mode_choice --write`, not edited by hand. Trained on half the questions of",
        f"{', '.join(sets)}.",
        '"""',
        "",
        "from typing import Final",
        "",
        "# Mode of each class.",
        "CLASS_MODES: Final = {",
        *(f'    "{kind}": "{mode}",' for kind, mode in trained.class_modes.items()),
        "}",
    ]
    for title, name, model in zip(
        ("Questions with listed words.", "Questions without."), ("BY_WORDS", "BY_NAMES"), trained.models, strict=True
    ):
        lines += ["", f"# {title}", f"{name}: Final = {{"]
        for kind in CLASSES:
            lines += [
                f'    "{kind}": {{',
                *(f'        "{key}": {value!r},' for key, value in model[kind].items()),
                "    },",
            ]
        lines += ["}"]
    return "\n".join(lines) + "\n"


def _tell(line: Mapping[str, Any]) -> None:
    print(json.dumps({"benchmark": "mode_choice", **line}, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
