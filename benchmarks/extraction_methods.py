"""Cost of each method of extraction, and the loss of retrieval by it.

    python -m benchmarks.extraction_methods FOLDER… [--methods llm verify …] [--embedder hashing|minilm] [--index DIR]
        [--set KEY=VALUE …]
    python -m benchmarks.extraction_methods --corpus INPUT… [--methods …] [--endpoint URL] [--set KEY=VALUE …]

FOLDER is a set of questions with evidence, as of `source_ranking.py`; a recorded extraction in it (OpenIE triples) is
replayed where the extract model is asked for chunks as method llm asks. The set is indexed by each method, one chunk a
passage, and every question is asked in mode `hirag`. A JSON line a set and method: entities and relations of layer 0,
chat tokens of the extraction, recall of gold passages, and the paired difference to method llm with a bootstrap
interval. Method verify has no recording: the built-in model checks. With --set (VALUE is JSON) each method is built
with its defaults and with the settings, and the difference is that of the settings.

With --corpus no question is asked: a line for each method has calls and tokens of every stage, and their ratio to
method llm; with --set all of them have the settings. The built-in model answers in this process, or behind an endpoint
that speaks the OpenAI API, such as `hirag-dist simulate-llm`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.frugality import bill
from benchmarks.settings import HASHING
from benchmarks.source_ranking import (
    FIGURES,
    Case,
    Figures,
    built,
    configured,
    figures_of,
    interval,
    passages_of_chunks,
    read_passages,
    read_questions,
)
from hirag_dist.composition.indexing import run_build
from hirag_dist.composition.query import make_engine
from hirag_dist.config.extraction import METHODS
from hirag_dist.config.loader import load_config
from hirag_dist.config.model import Config
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.llm.endpoints.factory import make_embedder
from hirag_dist.storage.snapshot.reader import Snapshot, open_snapshot
from hirag_dist.storage.store import Store
from hirag_dist.types import Query

BASE = "llm"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER")
    parser.add_argument("--corpus", nargs="+", metavar="INPUT")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--embedder", choices=("hashing", "minilm"), default="hashing")
    parser.add_argument("--index", type=Path, help="keep the indexes here")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="settings of the build")
    parser.add_argument("--endpoint", metavar="URL", help="of a model, with /v1")
    arguments = parser.parse_args()
    settings = {key: json.loads(value) for key, value in (one.split("=", 1) for one in arguments.set)}
    with tempfile.TemporaryDirectory() as temporary:
        indexes = arguments.index or Path(temporary)
        for folder in arguments.folders:
            base: Figures | None = None
            for method in arguments.methods:
                if settings:
                    base = recall(folder, method, arguments.embedder, indexes)[1]
                case, figures = recall(folder, method, arguments.embedder, indexes, settings)
                tell(case, {"method": method, "embedder": arguments.embedder, **settings}, figures, base)
                base = figures if method == BASE else base
        if arguments.corpus:
            tell_costs(arguments.corpus, arguments.methods, arguments.endpoint, Path(temporary), settings)


def by_method(config: Config, method: str) -> Config:
    """Return the configuration with a method of extraction."""
    extraction = config.extraction.model_copy(update={"method": method})
    return config.model_copy(update={"extraction": extraction})


def recall(
    folder: Path, method: str, embedder: str, indexes: Path, settings: Mapping[str, Any] | None = None
) -> tuple[Case, Figures]:
    """Return a set indexed by a method, and the figures of its questions in mode `hirag`."""
    config = by_method(configured(folder, embedder, settings), method)
    passages = list(read_passages(folder))
    name = "-".join([folder.name, embedder, method, *(f"{key}={value}" for key, value in (settings or {}).items())])
    snapshot = built(config, passages, indexes / name, indexes)
    case = Case(folder.name, config, passages, snapshot, read_questions(folder))
    return case, asyncio.run(_asked(case))


async def _asked(case: Case) -> Figures:
    passage = passages_of_chunks(case.snapshot, case.passages)
    engine = make_engine(case.config, case.snapshot, Prompts())
    vectors = await make_embedder(case.config).embed([question.text for question in case.questions])
    rows = []
    for question, vector in zip(case.questions, vectors, strict=True):
        sources = (await engine.retrieve(Query(question.text, "hirag", vector=vector))).sources
        rows.append(figures_of([passage[source.chunk_id] for source in sources], question.gold))
    await engine.close()
    return np.array(rows)


def tell(case: Case, settings: Mapping[str, Any], figures: Figures, base: Figures | None) -> None:
    """Print the lines of a set, with the differences to `base`."""
    for name, _, chosen in case.kinds():
        line: dict[str, Any] = {"benchmark": "extraction_methods", "set": name, **settings}
        line |= {"questions": int(chosen.sum()), **layer_0(case.snapshot)}
        line |= {"extraction_tokens": bill(case.snapshot)["tokens_by_stage"]["extract"]}
        line |= dict(zip(FIGURES, figures[chosen].mean(axis=0).round(3).tolist(), strict=True))
        if base is not None:
            gains = (figures - base)[chosen]
            line["more than " + ("by default" if len(settings) > 2 else BASE)] = {
                figure: interval(gains[:, at]) for at, figure in enumerate(FIGURES)
            }
        print(json.dumps(line), flush=True)


def layer_0(snapshot: Snapshot) -> dict[str, int]:
    """Return the numbers of entities and relations of layer 0."""
    n_entities = snapshot.table("layers").to_pylist()[0]["n_entities"]
    kinds = snapshot.table("relations", ["kind"])["kind"].to_pylist()
    return {"entities": n_entities, "relations": kinds.count("extracted")}


def tell_costs(
    inputs: list[str], methods: list[str], endpoint: str | None, work: Path, settings: Mapping[str, Any]
) -> None:
    """Print a line for each method about the calls and tokens of a corpus."""
    overrides: dict[str, Any] = {"execution.executor": "inline", **HASHING}
    if endpoint:
        chat = {"base_url": endpoint, "model": "simulated", "api_key": "none", "max_concurrent": 32}
        overrides["llm.endpoints.chat"] = chat
        overrides |= {f"llm.roles.{role}": "chat" for role in ("extract", "summarise", "report")}
        overrides["llm.roles.embed"] = "builtin-embedder"
    config = load_config(None, {}, overrides | dict(settings)).config
    base: dict[str, Any] | None = None
    for method in methods:
        started, cpu = time.perf_counter(), time.process_time()
        index = work / method
        result = run_build(inputs, str(index), by_method(config, method))
        snapshot = open_snapshot(Store(str(index)), result.manifest.snapshot_id)
        found = bill(snapshot)
        line = {"benchmark": "extraction_methods", "method": method, **settings, **found, **layer_0(snapshot)}
        base = found if method == BASE else base
        if base is not None:
            extraction = found["tokens_by_stage"]["extract"] / base["tokens_by_stage"]["extract"]
            line |= {"of_llm": {"extraction": round(extraction, 3), "all": round(found["tokens"] / base["tokens"], 3)}}
        line |= {"cpu_s": round(time.process_time() - cpu, 1), "wall_s": round(time.perf_counter() - started, 1)}
        print(json.dumps(line | {"dead_letters": result.dead_letters}), flush=True)


if __name__ == "__main__":
    main()
