"""Measure how many concepts lead to their file by name: `git ls-files hirag_dist | grep -iE WORD` for each.

The words of a concept are those that a newcomer types. A word is a hit when at most `MAX_MATCHES` names match and one
of them is where the concept is implemented. A concept is found when all its words are hits; "a|b" counts as one word.

With --floor N the exit status is 1 when fewer than N concepts are found.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
MAX_MATCHES = 16  # a longer list is not read


class Concept(NamedTuple):
    name: str
    words: tuple[str, ...]  # regular expressions
    places: tuple[str, ...]  # beginnings of paths below hirag_dist/ that implement it


CONCEPTS = (
    Concept("cluster sparsity, Eq. 17", ("sparsity",), ("core/clustering/sparsity",)),
    Concept("gRPC servicer", ("servicer",), ("service/servicer",)),
    Concept("chunker", ("chunk",), ("core/text/chunking", "indexing/stages/chunk")),
    Concept("Leiden", ("leiden",), ("core/graph/leiden",)),
    Concept("Milvus collection", ("milvus", "collection"), ("retrieval/vector_index/milvus/",)),
    Concept("snapshot manifest", ("manifest", "snapshot"), ("storage/snapshot/",)),
    Concept("build lock", ("lock",), ("storage/lock", "storage/build_lock")),
    Concept("meta types", ("meta_?types",), ("indexing/stages/meta_types",)),
    Concept("community report prompt", ("prompt", "report"), ("core/prompts/", "core/reports/")),
    Concept(
        "win rate of an LLM judge", ("win_?rate", "judg"), ("evaluation/metrics/win_rates", "evaluation/kinds/judg")
    ),
    Concept("embeddings", ("embed",), ("llm/embedding", "indexing/stages/embed")),
    Concept("entity merge", ("merg",), ("core/entities/merging",)),
    Concept("entity resolution", ("resolution",), ("core/entities/resolution/", "indexing/entity_resolution")),
    Concept("map-reduce global search", ("map_?reduce",), ("retrieval/map_reduce",)),
    Concept("claims (covariates)", ("claim|covariate",), ("core/entities/claim", "indexing/stages/claims")),
    Concept("Gaussian mixture, number of clusters", ("gmm|gaussian", "cluster_?count"), ("core/clustering/",)),
    Concept("exact match and F1", ("f1", "exact"), ("evaluation/metrics/",)),
    Concept("Algorithm 1: loop and stop rule", ("hierarchy", "stop"), ("indexing/hierarchy", "core/clustering/")),
    Concept("bridge paths, Eq. 15-16", ("bridge", "path"), ("core/retrieval/", "core/graph/", "retrieval/")),
    Concept("dead letters (rejects)", ("dead_?letter|reject",), ("execution/dead_letters",)),
    Concept("Ray actors", ("ray/", "actor"), ("execution/ray/",)),
    Concept("reply cache (ledger)", ("cache", "ledger"), ("llm/",)),
    Concept("retries, backoff, failover", ("retry", "backoff|failover"), ("llm/",)),
    Concept("rate limiter, token bucket", ("rate_?limit", "bucket"), ("llm/",)),
    Concept("spending limit", ("spend|budget",), ("llm/", "execution/")),
    Concept("hot swap (reload)", ("hot_?swap|reload",), ("service/hot_swap",)),
    Concept("label filter (ACL)", ("access|acl", "label"), ("core/access/", "storage/access/")),
    Concept("personalised PageRank", ("pagerank",), ("core/graph/pagerank",)),
    Concept("request micro-batching", ("micro_?batch",), ("retrieval/micro_batcher",)),
    Concept("cost estimate before a build", ("estimate", "cost"), ("indexing/cost_estimate",)),
    # ten further
    Concept("load shedding", ("shed|overload",), ("service/load_shedding",)),
    Concept("authentication", ("auth",), ("service/auth/",)),
    Concept("metrics for Prometheus", ("metrics|prometheus",), ("service/metrics",)),
    Concept("traces (OpenTelemetry)", ("traces?\\b|tracing|telemetry",), ("service/tracing",)),
    Concept("configuration model", ("config",), ("config/",)),
    Concept("GPU kernels", ("gpu", "kernel"), ("compute/",)),
    Concept("citations of an answer", ("citation",), ("core/retrieval/citations",)),
    Concept("circuit breaker", ("circuit|breaker",), ("llm/circuit_breaker",)),
    Concept("entity extraction", ("extract",), ("indexing/stages/extract", "core/prompts/extraction")),
    Concept("LLM simulator", ("simulat",), ("testing/simulator/",)),
)


def names() -> list[str]:
    """Return the tracked files of the package, relative to it."""
    command = ["git", "ls-files", "hirag_dist"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [path.removeprefix("hirag_dist/") for path in listed]


def shown(files: list[str], word: str) -> list[str]:
    """Return the matches, with one entry for a folder whose own name matches.

    >>> shown(["ray/a.py", "ray/b.py", "core/x.py"], "ray")
    ['ray/']
    """
    pattern = re.compile(word, re.IGNORECASE)
    result: dict[str, None] = {}
    for path in files:
        if match := pattern.search(path):
            end = path.find("/", max(match.start(), match.end() - 1))
            result[path if end < 0 else path[: end + 1]] = None
    return list(result)


def hits(concept: Concept, files: list[str]) -> dict[str, tuple[bool, list[str]]]:
    """Return, for each word of a concept, whether it leads there, and the matches."""
    result = {}
    for word in concept.words:
        matches = shown(files, word)
        there = [path for path in matches if path.startswith(concept.places)]
        result[word] = (bool(there) and len(matches) <= MAX_MATCHES, there or matches)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure how many concepts lead to their file by name.")
    parser.add_argument("--floor", type=int, default=0, help="fail when fewer concepts are found")
    floor = parser.parse_args().floor
    files = names()
    verdicts = []
    for number, concept in enumerate(CONCEPTS, 1):
        result = hits(concept, files)
        n_hits = sum(hit for hit, _ in result.values())
        verdicts.append("yes" if n_hits == len(result) else "partly" if n_hits else "no")
        words = "; ".join(
            f"{word} -> {', '.join(matches[:2]) if hit else 'MISS' + (f' ({matches[0]})' if matches else '')}"
            for word, (hit, matches) in result.items()
        )
        print(f"{number:2d}  {verdicts[-1]:6s}  {concept.name:33s}  {words}")
    found = verdicts.count("yes")
    print(f"{found} of {len(CONCEPTS)} found, {verdicts.count('partly')} partly, {verdicts.count('no')} not")
    return int(found < floor)


if __name__ == "__main__":
    sys.exit(main())
