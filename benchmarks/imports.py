"""Completeness of imported indexes of other tools, and retrieval from them in every mode.

For each folder, and for new communities as well as kept ones where the folder has some: the counts of its files and
those of layer 0 of the snapshot; how the difference is accounted for (rows that became one with
another, ends of relations that were added, dead letters); what was paid in addition; and each mode's answer to one
question.

    python benchmarks/imports.py FOLDER… [--index DIR] [--communities new|keep|both] [--embedder hashing|minilm]
                                 [--corpus FILE]

One JSON line a folder and choice. `unaccounted` must be empty and every mode `answered`, otherwise the exit code is 1.
--index keeps the indexes, and does not build again what is there. --corpus is added to folders whose documents have
no text (doc_id and text a line).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import networkx as nx
import pyarrow.parquet as pq

from benchmarks.jsonl import rows_of
from hirag_dist.composition.indexing import run_import
from hirag_dist.composition.query import make_engine
from hirag_dist.config.loader import load_config
from hirag_dist.config.model import Config
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.core.text.tokens import counter
from hirag_dist.errors import HiragError
from hirag_dist.interop.importers import ImportedGraph, read_working_folder
from hirag_dist.retrieval.map_reduce import MAP_REDUCE
from hirag_dist.retrieval.search import MODES
from hirag_dist.storage.snapshot.reader import Snapshot, open_snapshot
from hirag_dist.storage.store import Store
from hirag_dist.types import Query

TABLES = ("documents", "chunks", "entities", "relations", "claims", "communities", "reports")
GRAPHRAG = dict(
    zip(
        TABLES,
        ("documents", "text_units", "entities", "relationships", "covariates", "communities", "community_reports"),
        strict=True,
    )
)
JSONL = {name: name for name in TABLES} | {"communities": "community_reports", "reports": "community_reports"}
SINGULAR = {name: name.removesuffix("s") for name in TABLES} | {"entities": "entity", "communities": "community"}
REASONS_SHOWN = 5
NAMES_TRIED = 50
MIN_CHARS = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--index", type=Path, help="keep the indexes here")
    parser.add_argument("--communities", choices=("new", "keep", "both"), default="both")
    parser.add_argument("--embedder", choices=("hashing", "minilm"), default="hashing")
    parser.add_argument("--corpus", type=Path)
    arguments = parser.parse_args()
    config = configured(arguments.embedder)
    good = True
    with tempfile.TemporaryDirectory() as temporary:
        for number, given in enumerate(arguments.folders):
            folder = with_corpus(given, arguments.corpus, Path(temporary) / f"folder{number}")
            held = counted(folder)
            choices = ["new", "keep"] if arguments.communities == "both" else [arguments.communities]
            for choice in choices if held["communities"] else ["new"]:
                index = (arguments.index or Path(temporary)) / f"{given.name}-{choice}-{arguments.embedder}"
                line = measured(config, folder, held, index, choice)
                print(json.dumps({"benchmark": "imports", "folder": given.name} | line, ensure_ascii=False), flush=True)
                good &= not line["unaccounted"] and all(one["answered"] for one in line["modes"].values())
    sys.exit(0 if good else 1)


def configured(embedder: str) -> Config:
    """Return the configuration of imports: built-in models, in this process."""
    overrides = {
        "execution.executor": "inline",
        "vectors.backend": "memory",
        "llm.endpoints.vectors": {"kind": embedder},
        "llm.roles.embed": "vectors",
        "max_reject_ratio": 1,
    }
    return load_config(None, {}, overrides).config


def with_corpus(folder: Path, corpus: Path | None, place: Path) -> Path:
    """Return the folder, or one with the same files and the texts of its documents in addition."""
    documents = folder / "documents.jsonl"
    if corpus is None or not documents.is_file() or any("text" in row for row in rows_of(documents)):
        return folder
    place.mkdir()
    for name, path in ({path.name: path for path in folder.iterdir()} | {"corpus.jsonl": corpus}).items():
        (place / name).symlink_to(path.resolve())
    return place


def counted(folder: Path) -> dict[str, int]:
    """Return how many rows of each sort a folder's files hold, by other means than the importer's."""
    graphml = folder / "graph_chunk_entity_relation.graphml"
    if graphml.is_file():
        graph = nx.read_graphml(graphml)
        stores = {"documents": "full_docs", "chunks": "text_chunks", "communities": "community_reports"}
        found = {name: _n_keys(folder / f"kv_store_{store}.json") for name, store in stores.items()}
        found |= {"entities": graph.number_of_nodes(), "relations": graph.number_of_edges(), "claims": 0}
        return found | {"reports": found["communities"]}
    if (folder / "entities.jsonl").is_file():
        paths = {name: folder / f"{own}.jsonl" for name, own in JSONL.items()}
        return {name: sum(1 for _ in rows_of(path)) if path.is_file() else 0 for name, path in paths.items()}
    prefix = "" if (folder / "entities.parquet").is_file() else "create_final_"
    paths = {name: folder / f"{prefix}{own}.parquet" for name, own in GRAPHRAG.items()}
    return {name: pq.read_metadata(path).num_rows if path.is_file() else 0 for name, path in paths.items()}


def _n_keys(path: Path) -> int:
    return len(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else 0


def measured(config: Config, folder: Path, held: Mapping[str, int], index: Path, choice: str) -> dict[str, Any]:
    """Import a folder where that was not done, ask it, and return what there is to tell."""
    started = time.perf_counter()
    graph = read_working_folder(str(folder), counter(config.tokenizer), choice == "keep")
    read_s = time.perf_counter() - started
    store = Store(str(index))
    result = run_import(graph, str(folder), store.uri, config)
    seconds = time.perf_counter() - started
    snapshot = open_snapshot(store, result.manifest.snapshot_id)
    kept = kept_counts(snapshot)
    expected = dict(held) if choice == "keep" else dict(held) | {"communities": None, "reports": None}
    letters = snapshot.table("rejects", ["stage", "unit_id", "reason"]).to_pylist()
    reasons = Counter(re.sub(r"-?\d+", "N", letter["reason"].partition(":")[0]) for letter in letters)
    usage = snapshot.table("usage", ["stage", "model", "calls"]).to_pylist()
    return {
        "kind": graph.kind,
        "communities": choice,
        "expected": {name: count for name, count in expected.items() if count is not None},
        "kept": kept,
        "merged": {"entities": graph.n_merged, "relations": graph.n_merged_relations},
        "added_ends": graph.n_added,
        "unaccounted": unaccounted(graph, expected, kept),
        "dead_letters": len(letters),
        "reasons": dict(reasons.most_common(REASONS_SHOWN)),
        "layers": [row["n_entities"] for row in snapshot.table("layers", ["n_entities"]).to_pylist()],
        "communities_by_level": snapshot.info().communities_by_level,
        "paid": {f"{row['stage']} ({row['model']})": row["calls"] for row in usage},
        "modes": asyncio.run(asked(config, snapshot)),
        "read_s": round(read_s, 2),
        "import_s": round(seconds, 2),
    }


def kept_counts(snapshot: Snapshot) -> dict[str, int]:
    """Return the rows of layer 0: what came from the folder."""
    kept = {name: snapshot.table(name).num_rows for name in TABLES}
    kept["entities"] = snapshot.table("entities", ["layer"])["layer"].to_pylist().count(0)
    kept["relations"] = snapshot.table("relations", ["kind"])["kind"].to_pylist().count("extracted")
    return kept


def unaccounted(graph: ImportedGraph, expected: Mapping[str, int | None], kept: Mapping[str, int]) -> dict[str, int]:
    """Return, by table, the rows whose absence nothing explains; more than there should be count below zero."""
    explained = Counter({"entities": graph.n_merged - graph.n_added, "relations": graph.n_merged_relations})
    for what, reason in graph.left_out:
        for name in TABLES:
            if tells_of_a_row(what, reason, name):
                explained[name] += 1
    missing = {name: count - kept[name] - explained[name] for name, count in expected.items() if count is not None}
    return {name: count for name, count in missing.items() if count}


def tells_of_a_row(what: str, reason: str, table: str) -> bool:
    """Return whether a dead letter is of a row of a table, and not of a part of one."""
    if table == "chunks" and reason.startswith("not in the folder"):  # a source that was named, and never there
        return False
    return what.startswith((f"{SINGULAR[table]} ", f"{table}.jsonl line ", f"{JSONL[table]}.jsonl line "))


def question_of(snapshot: Snapshot) -> str:
    """Return a question that any index can answer: the name that its text holds most often, of the first by mentions.

    Models also name what no text holds: they copy their prompt's examples.
    """
    entities = snapshot.table("entities", ["name", "layer", "n_mentions"]).to_pylist()
    first = sorted((row for row in entities if row["layer"] == 0), key=lambda row: (-row["n_mentions"], row["name"]))
    text = "\n".join(snapshot.table("chunks", ["text"])["text"].to_pylist()).casefold()
    names = [row["name"] for row in first if len(row["name"]) >= MIN_CHARS][:NAMES_TRIED]
    best = max(names, key=lambda name: len(re.findall(rf"\b{re.escape(name.casefold())}\b", text)))
    return f"{best}?"


async def asked(config: Config, snapshot: Snapshot) -> dict[str, dict[str, Any]]:
    """Return, by mode, whether the question is answered, and what from."""
    question = question_of(snapshot)
    engine = make_engine(config, snapshot, Prompts())
    found: dict[str, dict[str, Any]] = {}
    try:
        for mode in (*MODES, *MAP_REDUCE):
            started = time.perf_counter()
            try:
                answer = await engine.answer(Query(question, mode))
            except HiragError as error:
                found[mode] = {"answered": False, "why": str(error)}
                continue
            found[mode] = {
                "answered": bool(answer.text and answer.citations),
                "items": len(answer.retrieval.context_refs),
                "cited": len(answer.citations),
                "ms": round(1000 * (time.perf_counter() - started)),
            }
    finally:
        await engine.close()
    return found


if __name__ == "__main__":
    main()
