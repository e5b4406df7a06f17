"""Small builds by the built-in model, in this process, through the same call as the command's."""

from __future__ import annotations

from pathlib import Path

from hirag_dist.application.build import BuildOptions, run_build
from hirag_dist.application.index_result import IndexResult
from hirag_dist.config.model import Config

CONFIG = Config.model_validate({"execution": {"executor": "inline"}, "kernels": "cpu"})
_TEXT = "Ada Lovelace wrote notes on the Analytical Engine. Charles Babbage designed the Analytical Engine in {}."


def write_corpus(folder: Path, n_documents: int) -> Path:
    """Write short documents that differ in a name."""
    folder.mkdir(exist_ok=True)
    for number in range(n_documents):
        town = "".join(chr(ord("a") + int(digit)) for digit in f"{number:03d}")
        (folder / f"{number}.txt").write_text(_TEXT.format(f"Town{town}"), encoding="utf-8")
    return folder


def build(corpus: Path, index: Path, **options: bool) -> IndexResult:
    """Build or update an index."""
    return run_build([str(corpus)], str(index), CONFIG, BuildOptions(**options))
