"""Cost of updates of an index, against `simulate-llm` at zero latency in another process.

    python -m benchmarks updates --corpus CORPUS.jsonl [--documents N] [--copies 1] [--only NAME …]
        [--set KEY=VALUE …] [--builtin] [--no-drift]

CORPUS has a `text` a line. Prints a JSON line for each run: calls and tokens of chat that
the run paid, by stage, their ratio to the extraction of the changed documents, wall and CPU seconds (of this process,
not of the endpoint), peak memory, summaries and reports kept and written, the debt, and the drift from a shadow
clustering.

All documents but the last tenth are indexed, and each change is applied to a copy of that index: nothing, one document
of median length added, 1 % and 10 % added, a sentence of one document replaced, 1 and 10 % of the documents removed,
the added document removed again, and the debt of the 10 % paid. --copies repeats the corpus under other names
(`update_corpora.py`).
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.update_corpora import CorpusFolder, of_median_length, read_corpus, with_new_sentence
from benchmarks.update_steps import EXTRACTION, configured, drift_figures, measured, units
from hirag_dist.application.build import run_build, run_refresh
from hirag_dist.config.model import Config

Documents = Mapping[str, str]


@dataclass(frozen=True)
class Bench:
    """Settings of all runs.

    Attributes:
        work: folder of indexes and inputs.
        drift: whether the drift of each index is measured.
        labels: figures that are in every line.
    """

    config: Config
    work: Path
    drift: bool
    labels: dict[str, Any]

    def build(self, index: str, documents: Documents) -> dict[str, Any]:
        """Have an index hold these documents and no others; return the figures of the run."""
        folder = CorpusFolder(self.work / "input")
        folder.write(documents)
        return measured(lambda heard: run_build([str(folder.path)], self.uri(index), self.config, None, heard))

    def refresh(self, index: str) -> dict[str, Any]:
        """Pay the debt of an index; return the figures of the run."""
        return measured(lambda heard: run_refresh(self.uri(index), self.config, None, heard))

    def uri(self, index: str) -> str:
        """Return the folder of an index."""
        return str(self.work / index)

    def copy(self, index: str, name: str) -> None:
        """Copy an index."""
        shutil.rmtree(self.work / name, ignore_errors=True)
        shutil.copytree(self.work / index, self.work / name)

    def extraction(self, documents: Documents) -> int:
        """Return the tokens that the extraction of some documents costs, from an index of them alone."""
        figures = self.build("extraction", documents)
        shutil.rmtree(self.work / "extraction")
        return int(figures["tokens_by_stage"].get(EXTRACTION, 0))

    def line(self, case: str, index: str, base_id: str | None, extraction: int, run: dict[str, Any]) -> dict[str, Any]:
        """Return the line of a run.

        Args:
            base_id: snapshot that was updated; None for a first build.
            extraction: tokens of extracting the changed documents.
        """
        line = {"benchmark": "updates", **self.labels, "case": case, **run, "own_extraction_tokens": extraction}
        line["ratio"] = round(run["tokens"] / extraction, 3) if extraction else None
        if base_id is not None:
            line |= units(self.uri(index), base_id, run["snapshot"])
        if self.drift:
            line["drift"] = drift_figures(self.uri(index))
        return line


@dataclass(frozen=True)
class Change:
    """A change of the documents of an index: what it holds then, and the documents that were changed."""

    documents: Documents
    changed: Documents


def main() -> None:
    arguments = _arguments()
    settings = {key: json.loads(value) for key, value in (one.split("=", 1) for one in arguments.set)}
    documents = read_corpus(arguments.corpus, arguments.documents, arguments.copies)
    labels = {"corpus": arguments.corpus.parent.name, "copies": arguments.copies, "builtin": arguments.builtin} | (
        {"set": settings} if settings else {}
    )
    with (
        configured(settings, arguments.builtin) as config,
        tempfile.TemporaryDirectory(dir=arguments.folder, ignore_cleanup_errors=True) as work,
    ):
        bench = Bench(config, Path(work), arguments.drift, labels)
        for line in steps(bench, documents, arguments.only):
            print(json.dumps(line), flush=True)


def steps(bench: Bench, documents: Documents, only: Sequence[str] | None) -> Iterator[dict[str, Any]]:
    """Yield a line for the base and each change of it."""
    n_tenth = max(len(documents) // 10, 1)
    base = dict(list(documents.items())[:-n_tenth])
    held = dict(list(documents.items())[-n_tenth:])
    run = bench.build("base", base)
    base_id = run["snapshot"]
    yield bench.line("base", "base", None, run["tokens_by_stage"][EXTRACTION], run)
    for name, change in changes(base, held).items():
        if only and name not in only:
            continue
        bench.copy("base", name)
        extraction = bench.extraction(change.changed) if change.changed else 0
        run = bench.build(name, change.documents)
        yield bench.line(name, name, base_id, extraction, run)
        if name == "+1":
            yield bench.line("+1, -1", name, run["snapshot"], extraction, bench.build(name, base))
        if name == "+10 %":
            yield bench.line("+10 %, refresh", name, run["snapshot"], extraction, bench.refresh(name))
        shutil.rmtree(bench.uri(name))


def changes(base: Documents, held: Documents) -> dict[str, Change]:
    """Return the changes by name.

    Args:
        base: documents that are indexed.
        held: documents that may be added.
    """
    one, of_base = of_median_length(held), of_median_length(base)
    added = {one: held[one]} | dict(held)  # the one of median length first
    n_hundredth = len(base) // 100
    found = {"nothing": Change(base, {})}
    for name, count in {"+1": 1, "+1 %": n_hundredth if n_hundredth > 1 else 0, "+10 %": len(held)}.items():
        if count:
            new = dict(list(added.items())[:count])
            found[name] = Change({**base, **new}, new)
    found["a sentence"] = Change({**base, of_base: with_new_sentence(base[of_base])}, {of_base: base[of_base]})
    old = {of_base: base[of_base]} | dict(base)
    for name, count in {"-1": 1, "-10 %": len(held)}.items():
        gone = dict(list(old.items())[:count])
        found[name] = Change({own: text for own, text in base.items() if own not in gone}, gone)
    return found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.updates",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--corpus", type=Path, required=True, help="JSON lines with a field `text`")
    parser.add_argument("--documents", type=int, help="only the first documents of the corpus")
    parser.add_argument("--copies", type=int, default=1, help="how many times the corpus is taken")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="changes, such as +1 or 'a sentence'")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="keys of the configuration")
    parser.add_argument("--builtin", action="store_true", help="models in this process, whose CPU counts then")
    parser.add_argument("--folder", type=Path, help="where indexes are kept while this runs")
    parser.add_argument("--no-drift", dest="drift", action="store_false", help="do not measure the drift")
    return parser.parse_args()


if __name__ == "__main__":
    main()
