"""Hierarchies of real graphs: layers, cluster sparsity, coverage, path lengths, clustering coefficients.

Builds the hierarchy with the built-in model over a corpus and over graphs that language models extracted, under both
stop rules, and inspects each index. Prints a JSON line for each; two Markdown tables of all of them follow on stderr,
or go to a file.

    python benchmarks/graphs.py DATA [--only NAME …] [--stop compression paper] [--table FILE]

DATA holds the corpus and the working folders of other tools, by the names in GRAPHS; those that are missing are
skipped and named on stderr.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.settings import HASHING
from hirag_dist.cli.inspect import inspect_snapshot
from hirag_dist.composition.indexing import read_import, run_build, run_import
from hirag_dist.config.loader import load_config
from hirag_dist.config.model import Config
from hirag_dist.inspection import Inspection
from hirag_dist.inspection.model import GraphSummary
from hirag_dist.storage.snapshot.reader import open_snapshot
from hirag_dist.storage.store import Store

GRAPHS = {  # name → where below DATA it is; a file is a corpus to be extracted, a folder another tool's graph
    "Mix, built-in extraction": "qfs_mix/corpus.jsonl",
    "Mix, gemini-2.0-flash": "qfs_mix_recorded_graph",
    "A Christmas Carol, gpt-3.5-turbo": "nano_index_christmas_carol",
    "two blockchain papers, gpt-3.5-turbo": "nano_index_web3",
    "ARK white paper, gpt-3.5-turbo": "nano_index_ark_whitepaper",
    "Bitcoin white paper, gpt-3.5-turbo": "nano_index_bitcoin",
    "Operation Dulce, 2024": "graphrag_recorded/operation_dulce_2024",
    "Operation Dulce": "graphrag_recorded/operation_dulce",
    "drug leaflet (Russian)": "hirag_index_drug_leaflet_ru",
}
LAYER_HEADS = (
    "graph",
    "stop",
    "entities by layer",
    "CS by layer",
    "with a summary above, by layer (of these attached afterwards)",
    "ended by",
)
MEASURE_HEADS = (
    "graph",
    "stop",
    "pairs with a path",
    "mean hops, pairs that layer 0 joins",
    "mean hops, all pairs with a path",
    "clustering coefficient (Eq. 18)",
    "mean local coefficient",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument("--only", nargs="+", choices=list(GRAPHS), default=list(GRAPHS), metavar="NAME")
    parser.add_argument("--stop", nargs="+", choices=("compression", "paper"), default=["compression", "paper"])
    parser.add_argument("--table", type=Path, metavar="FILE", help="where the tables go; stderr without it")
    arguments = parser.parse_args()
    lines = []
    for name in arguments.only:
        path = arguments.data / GRAPHS[name]
        if not path.exists():
            print(f"left out: {path} is not there", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory() as folder:  # one index for both rules: they share its lower layers
            for stop in arguments.stop:
                lines.append(measure(name, path, stop, folder))
                print(json.dumps(lines[-1], ensure_ascii=False), flush=True)
    text = table(lines)
    if arguments.table:
        arguments.table.write_text(text, encoding="utf-8")
    else:
        print(text, end="", file=sys.stderr)


def measure(name: str, path: Path, stop: str, folder: str) -> dict[str, Any]:
    """Build one index under one rule; return what is in it."""
    config = load_config(None, {}, {"execution.executor": "inline", "stop": stop, **HASHING}).config
    started = time.process_time()
    inspection = inspect_index(path, config, Store(folder))
    return {
        "benchmark": "graphs",
        "graph": name,
        "stop": stop,
        "cpu_s": round(time.process_time() - started, 1),
        "layers": [
            {
                "entities": layer.entities,
                "clusters": layer.clusters,
                "median_cluster": layer.median_cluster,
                "sparsity": layer.sparsity,
                "change_rate": layer.change_rate,
                "covered": layer.covered,
                "attached_afterwards": layer.attached / layer.entities if layer.summaries else None,
            }
            for layer in inspection.layers
        ],
        "ended_by": inspection.layers[-1].decision,
        "flat": _shape(inspection.base_graph),
        "all_layers": _shape(inspection.graph),
        "paths": inspection.to_dict()["paths"],
    }


def inspect_index(path: Path, config: Config, store: Store) -> Inspection:
    """Index a corpus or import a graph; return the snapshot in numbers."""
    if path.is_dir():
        result = run_import(read_import(str(path), config), str(path), store.uri, config)
    else:
        result = run_build([str(path)], store.uri, config)
    return inspect_snapshot(open_snapshot(store, result.manifest.snapshot_id))


def _shape(graph: GraphSummary) -> dict[str, Any]:
    return {
        "entities": graph.entities,
        "pairs_related": graph.edges,
        "components": graph.components,
        "isolated": graph.isolated,
        "clustering_coefficient": graph.clustering.transitivity,
        "mean_local_coefficient": graph.clustering.average_local,
    }


def table(lines: Sequence[dict[str, Any]]) -> str:
    """Return the lines as two Markdown tables: the layers, and the measures of layer 0 → of all layers."""
    return f"{_markdown(LAYER_HEADS, map(_layers, lines))}\n{_markdown(MEASURE_HEADS, map(_measures, lines))}"


def _markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in (heads, ["---"] * len(heads), *rows))


def _layers(line: dict[str, Any]) -> tuple[str, ...]:
    layers = line["layers"]
    covered = [
        f"{layer['covered']:.0%} ({layer['attached_afterwards'] or 0:.0%})"
        for layer in layers
        if layer["covered"] is not None
    ]
    return (
        line["graph"],
        line["stop"],
        " · ".join(f"{layer['entities']:,}" for layer in layers),
        " · ".join(f"{layer['sparsity']:.4f}" for layer in layers if layer["sparsity"] is not None) or "–",
        " · ".join(covered) or "–",
        line["ended_by"],
    )


def _measures(line: dict[str, Any]) -> tuple[str, ...]:
    flat, whole, paths = line["flat"], line["all_layers"], line["paths"]
    pairs = max(paths["pairs"], 1)
    return (
        line["graph"] if paths["exact"] else f"{line['graph']} (paths: a sample)",
        line["stop"],
        f"{1 - paths['flat_unreachable'] / pairs:.1%} → {1 - paths['unreachable'] / pairs:.1%}",
        f"{_hops(paths['flat_mean'])} → {_hops(paths['mean_of_flat'])}",
        f"{_hops(paths['flat_mean'])} → {_hops(paths['mean'])}",
        f"{flat['clustering_coefficient']:.4f} → {whole['clustering_coefficient']:.4f}",
        f"{flat['mean_local_coefficient']:.4f} → {whole['mean_local_coefficient']:.4f}",
    )


def _hops(mean: float | None) -> str:
    return "–" if mean is None else f"{mean:.2f}"


if __name__ == "__main__":
    main()
