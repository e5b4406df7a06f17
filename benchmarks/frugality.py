"""Savings and losses of each cost-related setting.

Builds a corpus in variants of the configuration, in this process with the built-in model, and prints a JSON line for
each: chat calls and tokens by stage, and what is in the index. A table of all follows on stderr. The built-in model
reads every unit of a pack as if it were alone, so these figures say nothing about what a language model loses there.

    python benchmarks/frugality.py INPUT … [--only NAME …]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.settings import HASHING
from hirag_dist.composition.indexing import run_build
from hirag_dist.config.loader import load_config
from hirag_dist.storage.snapshot.reader import Snapshot, open_snapshot
from hirag_dist.storage.store import Store

TWO_STEP = {"extraction": "two_step"}
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "no packing": {"pack_units": 1},
    "packs doubled": {
        "clustering.summary_pack_tokens": 20000,
        "communities.report_pack_tokens": 24000,
        "pack_units": 16,
    },
    "one gleaning round": {"gleaning_rounds": 1},
    "two_step": TWO_STEP,
    "two_step, one gleaning round": TWO_STEP | {"gleaning_rounds": 1},
    "clusters of 10": {"clustering.target_size": 10, "clustering.max_size": 20},
    "clusters of 40": {"clustering.target_size": 40, "clustering.max_size": 80},
    "no summary layers": {"max_layers": 0},
    "reports from 2 entities": {"communities.report_min_entities": 2},
    "reports from 8 entities": {"communities.report_min_entities": 8},
    "reports from 16 entities": {"communities.report_min_entities": 16},
    "communities up to 300": {"communities.max_size": 300},
    "report prompts of 2,000 tokens": {"communities.report_tokens": 2000},
}
STAGES = ("extract", "describe", "summarise", "reports")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("inputs", nargs="+", metavar="INPUT")
    parser.add_argument("--only", nargs="+", choices=list(VARIANTS), default=list(VARIANTS), metavar="NAME")
    arguments = parser.parse_args()
    lines = []
    for name in arguments.only:
        lines.append(measure(name, arguments.inputs))
        print(json.dumps(lines[-1]), flush=True)
    Console(stderr=True, width=180).print(table(lines))


def measure(name: str, inputs: list[str]) -> dict[str, Any]:
    """Build one variant in a folder of its own; return its figures."""
    overrides = {"execution.executor": "inline", **HASHING, **VARIANTS[name]}
    config = load_config(None, {}, overrides).config
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        before = time.process_time()
        result = run_build(inputs, folder, config)
        cpu_s = time.process_time() - before
        snapshot = open_snapshot(store, result.manifest.snapshot_id)
        return {
            "benchmark": "frugality",
            "variant": name,
            "settings": VARIANTS[name],
            "cpu_s": round(cpu_s, 1),
            **bill(snapshot),
            **contents(snapshot),
            "dead_letters": result.dead_letters,
        }


def bill(snapshot: Snapshot) -> dict[str, Any]:
    """Return chat calls and tokens, by stage and together."""
    calls: Counter[str] = Counter()
    tokens: Counter[str] = Counter()
    for row in snapshot.table("usage").to_pylist():
        if row["role"] != "embed":
            stage = row["stage"].split()[0]
            calls[stage] += row["calls"]
            tokens[stage] += row["input_tokens"] + row["output_tokens"]
    return {
        "calls": calls.total(),
        "tokens": tokens.total(),
        "calls_by_stage": {stage: calls[stage] for stage in STAGES},
        "tokens_by_stage": {stage: tokens[stage] for stage in STAGES},
    }


def contents(snapshot: Snapshot) -> dict[str, Any]:
    """Return the counts of the index. Covered: entities in a community whose report the model wrote."""
    communities = snapshot.table("communities").select(["community_id", "entity_ids", "is_leaf"]).to_pylist()
    reports = snapshot.table("reports").select(["community_id", "origin"]).to_pylist()
    written = {row["community_id"] for row in reports if row["origin"] == "model"}
    n_entities = snapshot.table("entities").num_rows
    by_any = {key for row in communities if row["community_id"] in written for key in row["entity_ids"]}
    leaves = [row for row in communities if row["is_leaf"]]
    by_leaf = {key for row in leaves if row["community_id"] in written for key in row["entity_ids"]}
    return {
        "entities": n_entities,
        "relations": snapshot.table("relations").num_rows,
        "layers": [row["n_entities"] for row in snapshot.table("layers").to_pylist()],
        "communities": len(communities),
        "reports_written": len(written),
        "reports_of_members": len(reports) - len(written),
        "covered": round(len(by_any) / n_entities, 4),
        "covered_by_leaf": round(len(by_leaf) / n_entities, 4),
    }


def table(lines: list[dict[str, Any]]) -> Table:
    """Return all variants side by side."""
    shown = Table(box=None, header_style="dim")
    for column in ("variant", "calls", *STAGES, "M tokens", "entities", "relations", "layers", "communities"):
        shown.add_column(column, justify="left" if column in ("variant", "layers") else "right")
    for column in ("reports", "covered", "by a leaf"):
        shown.add_column(column, justify="right")
    for line in lines:
        shown.add_row(
            line["variant"],
            f"{line['calls']:,}",
            *(f"{line['calls_by_stage'][stage]:,}" for stage in STAGES),
            f"{line['tokens'] / 1e6:.2f}",
            f"{line['entities']:,}",
            f"{line['relations']:,}",
            " ".join(f"{size:,}" for size in line["layers"]),
            str(line["communities"]),
            str(line["reports_written"]),
            f"{line['covered']:.1%}",
            f"{line['covered_by_leaf']:.1%}",
        )
    return shown


if __name__ == "__main__":
    main()
