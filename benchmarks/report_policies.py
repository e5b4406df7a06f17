"""Calls and tokens of an index by the policy of reports, and what retrieval has in place of missing ones.

Builds a corpus against `simulate-llm` at zero latency in another process, once up to the communities, then with the
reports of each policy on a copy, so that every bill is that of a build of its own. Asks the questions of a file in mode
hirag without any call of a chat model, and prints a JSON line for each policy. Where a policy uses hits, those of every
second question choose the reports, and the other questions are asked.

    python -m benchmarks.report_policies corpus.jsonl queries.jsonl
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.build import CONFIG, start_simulator
from benchmarks.jsonl import rows_of
from benchmarks.settings import HASHING
from hirag_dist.composition.indexing import BuildOptions, run_build
from hirag_dist.composition.query import make_engine
from hirag_dist.config.loader import load_config
from hirag_dist.config.model import Config
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.core.text.tokens import counter
from hirag_dist.retrieval.engine import QueryEngine
from hirag_dist.storage.report_hits import add_hits
from hirag_dist.storage.snapshot.reader import open_snapshot
from hirag_dist.storage.store import Store
from hirag_dist.types import Query, Retrieval

POLICIES: dict[str, dict[str, Any]] = {
    "on_demand": {"policy": "on_demand"},
    "top 0.1": {"policy": "top", "share": 0.1},
    "top 0.2": {"policy": "top", "share": 0.2},
    "top 0.2, hits": {"policy": "top", "share": 0.2, "hits": True},
    "top 0.5": {"policy": "top", "share": 0.5},
    "all": {"policy": "all"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus")
    parser.add_argument("questions", type=Path)
    parser.add_argument("--only", nargs="+", choices=list(POLICIES), default=list(POLICIES), metavar="POLICY")
    arguments = parser.parse_args()
    questions = [row["query"] for row in rows_of(arguments.questions)]
    simulator, url = start_simulator()
    try:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "hirag.yaml").write_text(CONFIG.format(url=url), encoding="utf-8")
            run_build([arguments.corpus], str(root / "base"), configured(root, {"policy": "on_demand"}))
            hits = root / "hits.jsonl"
            add_hits(hits, asyncio.run(reached(root, questions[::2])))
            for name in arguments.only:
                print(json.dumps(measure(name, root, arguments.corpus, questions, hits)), flush=True)
    finally:
        simulator.terminate()
        simulator.wait()


def configured(root: Path, reports: dict[str, Any]) -> Config:
    fixed = {"execution.executor": "inline", "vectors.backend": "memory", **HASHING}
    own = {f"communities.reports.{key}": value for key, value in reports.items()}
    return load_config(str(root / "hirag.yaml"), {}, fixed | own).config


def measure(name: str, root: Path, corpus: str, questions: list[str], hits: Path) -> dict[str, Any]:
    """Build with one policy on a copy of the index without reports; return its bill and what questions find."""
    policy = dict(POLICIES[name])
    if policy.get("hits"):
        policy["hits"], questions = str(hits), questions[1::2]
    config = configured(root, policy)
    index = shutil.copytree(root / "base", root / "copy")
    result = run_build([corpus], str(index), config, BuildOptions(rebuild=True))
    found = asyncio.run(ask(index, config, questions))
    shutil.rmtree(index)
    chat = [row for row in result.usage if row["role"] != "embed"]
    reports = [row for row in chat if row["role"] == "report"]
    return {
        "benchmark": "report_policies",
        "policy": name,
        "calls": sum(row["calls"] for row in chat),
        "tokens": tokens_of(chat),
        "report_calls": sum(row["calls"] for row in reports),
        "report_tokens": tokens_of(reports),
        "communities": result.manifest.counts["communities"],
        "reports": result.manifest.counts["reports"],
        "missing": result.manifest.missing_reports,
        "questions": len(questions),
    } | found


def tokens_of(usage: list[Any]) -> int:
    return sum(row["input_tokens"] + row["output_tokens"] for row in usage)


async def ask(index: Path, config: Config, questions: list[str]) -> dict[str, Any]:
    """Return the shares of missing reports in the results and contexts of all questions together."""
    engine = open_engine(index, config)
    count = counter(config.tokenizer)
    sums: Counter[str] = Counter()
    wanted: set[str] = set()
    for question in questions:
        found = await engine.retrieve(Query(question))
        missing = set(found.missing_reports)
        wanted |= missing
        shown = {ref: own for ref, own in found.context_refs.items() if ref.startswith("C")}
        members = sum(own in missing for own in shown.values())
        sums.update(communities=len(found.communities), missing=len(missing), shown=len(shown), members=members)
        sums.update(context=found.context_tokens, member_tokens=member_tokens(found, missing, count))
        sums["whole"] += not missing
    await engine.close()
    return {
        "missing_of_retrieved": round(sums["missing"] / sums["communities"], 4),
        "missing_of_shown": round(sums["members"] / max(sums["shown"], 1), 4),
        "members_share_of_context": round(sums["member_tokens"] / sums["context"], 4),
        "questions_without_missing": sums["whole"],
        "distinct_missing_reached": len(wanted),
        "context_tokens": round(sums["context"] / len(questions)),
    }


def member_tokens(found: Retrieval, missing: set[str], count: Any) -> int:
    """Return the tokens of members that a context has in the place of reports."""
    records = found.context.split("\n[")
    refs = {ref for ref, own in found.context_refs.items() if own in missing}
    return sum(count(record) for record in records if record.partition("]")[0] in refs)


async def reached(root: Path, questions: list[str]) -> dict[str, int]:
    """Return how often questions reach each community."""
    engine = open_engine(root / "base", configured(root, {"policy": "on_demand"}))
    hits: Counter[str] = Counter()
    for question in questions:
        hits.update(item.community_id for item in (await engine.retrieve(Query(question))).communities)
    await engine.close()
    return dict(hits)


def open_engine(index: Path, config: Config) -> QueryEngine:
    return make_engine(config, open_snapshot(Store(str(index))), Prompts())


if __name__ == "__main__":
    main()
