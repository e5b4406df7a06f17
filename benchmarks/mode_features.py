"""Features tried for the choice of a mode: accuracy on sets that had no part in the training, by features.

    python -m benchmarks.mode_features FILE

FILE is what `mode_choice.py --measured` kept. A line for each set of features: accuracy, on the half for training, of
models that are trained on that half of the other sets, as a mean over sets for each class, and over classes. `modes`
counts a class as right where its mode is (fact and comparison have the same).
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from benchmarks.mode_choice import STRENGTH, class_weights
from benchmarks.mode_measures import Measured
from hirag_dist.core.retrieval.mode_choice import CLASSES, NAME_FEATURES, WORD_FEATURES, question_features
from hirag_dist.core.retrieval.mode_coefficients import CLASS_MODES

_MODES: Final = np.array([sorted(set(CLASS_MODES.values())).index(CLASS_MODES[kind]) for kind in CLASSES])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, metavar="FILE")
    lines = parser.parse_args().file.read_text(encoding="utf-8").splitlines()
    rows = [row for row in (Measured(**json.loads(line)) for line in lines) if row.half == "train"]
    for names in subsets(list(rows[0].profile)):
        right = left_out(rows, names)
        line: dict[str, object] = {"benchmark": "mode_features", "features": names}
        for at, name in enumerate(("classes", "modes")):
            line[name] = round(float(np.mean([own[at] for own in right.values()])), 3)
        line |= {kind: round(own[0], 3) for kind, own in right.items()}
        print(json.dumps(line), flush=True)


def subsets(profile: Sequence[str]) -> Iterator[list[str]]:
    """Yield the sets of features: words, names, both, and each of these with a feature of the search, and with all."""
    both = [*NAME_FEATURES, *WORD_FEATURES]
    yield list(WORD_FEATURES)
    for base in (list(NAME_FEATURES), both):
        yield base
        yield from ([*base, name] for name in profile)
        yield [*base, *profile]
    yield list(profile)


def left_out(rows: Sequence[Measured], names: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Return, for each class, the accuracy and that of its mode on sets left out, as means over sets."""
    read = [{**row.profile, **question_features(row.question, row.n_names)[0]} for row in rows]
    values = np.array([[own.get(name, 0.0) for name in names] for own in read])
    classes = np.array([CLASSES.index(row.kind) for row in rows])
    sets = np.array([row.set for row in rows])
    cells: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for name in sorted(set(sets.tolist())):
        others = np.flatnonzero(sets != name)
        weights = class_weights([rows[at] for at in others.tolist()])
        found = _predicted(values, classes, others, weights)
        for kind in sorted(set(classes[sets == name].tolist())):
            own = found[(sets == name) & (classes == kind)]
            cells[kind].append((float(np.mean(own == kind)), float(np.mean(_MODES[own] == _MODES[kind]))))
    means = {kind: np.mean(each, axis=0).tolist() for kind, each in sorted(cells.items())}
    return {CLASSES[kind]: (each[0], each[1]) for kind, each in means.items()}


def _predicted(
    values: NDArray[np.float64], classes: NDArray[np.int64], chosen: NDArray[np.int64], weights: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return the class of every question by a model of the chosen ones."""
    mean, spread = values[chosen].mean(axis=0), values[chosen].std(axis=0) + 1e-9
    model = LogisticRegression(C=STRENGTH, max_iter=5000)
    model.fit((values[chosen] - mean) / spread, classes[chosen], sample_weight=weights)
    return np.asarray(model.predict((values - mean) / spread))


if __name__ == "__main__":
    main()
