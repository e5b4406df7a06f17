"""Compile all numba functions by building and querying a small index, so that the image holds the machine code.

    NUMBA_CACHE_DIR=… NUMBA_CPU_NAME=… python warm.py FOLDER

The sample corpus, and four documents with labels and a field of metadata, since what a caller may not see, or a filter
leaves out, is left out by code of its own. Ends with exit code 1 where a compiled function was not met: then something
here has to call it.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from importlib import resources
from pathlib import Path

import numpy as np

from hirag_dist.core.clustering.anchored import row_cosines
from hirag_dist.evaluation.kinds.claims import rouge_l_distances

LABELLED = [
    {"id": name, "title": name, "text": text, "labels": labels, "year": year}
    for name, text, labels, year in (
        (
            "a",
            "Ada Lovelace met Charles Babbage in London. He built the Difference Engine.",
            ["left"],
            1833,
        ),
        ("b", "Charles Babbage wrote to the Royal Society. The Royal Society is in London.", ["right"], 1843),
        ("c", "Mary Somerville taught Ada Lovelace. Mary Somerville knew the Royal Society.", ["left"], 1853),
        ("d", "The Difference Engine stands in the Science Museum. The Science Museum is in London.", [], 1863),
    )
]
CONFIG = "metadata: {fields: {year: number}}\n"
FILTER = ("--filter", "year < 1850")


def main() -> None:
    """Build, query and check the cache."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True)
    samples = Path(str(resources.files("hirag_dist.samples")))
    question = (samples / "questions.txt").read_text(encoding="utf-8").splitlines()[0]
    labelled = folder / "labelled.jsonl"
    labelled.write_text("".join(json.dumps(each) + "\n" for each in LABELLED), encoding="utf-8")
    config = folder / "hirag.yaml"
    config.write_text(CONFIG, encoding="utf-8")
    memory = ("--config", str(config), "--set", "vectors.backend=memory")
    for name, given, reading in (("plain", samples / "corpus", ()), ("labels", labelled, ("--label-field", "labels"))):
        index = ("--index", str(folder / name))
        _run("index", str(given), *index, "--executor", "inline", *memory, *reading)
        _run("inspect", *index)
        asks = [(), ("--as-label", "left"), ("--set", "retrieval.community_level=all")]
        for asked in (*asks, *([FILTER, ("--as-label", "left", *FILTER)] if reading else ())):
            _run("query", *index, *memory, "--context-only", *asked, question)
    row_cosines(np.ones((1, 2), np.float32), np.zeros(1, np.int64))  # of updates
    rouge_l_distances(["claims are measured", "by evaluation alone"])
    missing = compiled_functions() - found(Path(os.environ["NUMBA_CACHE_DIR"]))
    if missing:
        sys.exit(f"not compiled: {', '.join(sorted(missing))}")


def compiled_functions() -> set[str]:
    """Return the names of the package's compiled functions."""
    names = set()
    for path in Path(str(resources.files("hirag_dist.core"))).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.FunctionDef):
                continue
            if any(getattr(each, "id", "") in ("compiled", "compiled_apart") for each in node.decorator_list):
                names.add(node.name)
    return names


def found(cache: Path) -> set[str]:
    """Return the names of the functions whose machine code is kept: FILE.NAME-LINE.VERSION.nbi."""
    return {path.name.split("-")[0].split(".", 1)[1] for path in cache.rglob("*.nbi")}


def _run(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "hirag_dist", *arguments], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
