"""Cost of clustering the claims of an answer.

Usage: `python benchmarks/claim_clusters.py [--claims N …]`

Claims of 20 words drawn from 400: all pairs by ROUGE-L, then complete linkage at four distances. A JSON line a size.
"""

from __future__ import annotations

import argparse
import json
import random
import time

from hirag_dist.evaluation.metrics.claims import cluster_counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--claims", type=int, nargs="+", default=[30, 300, 1000, 3000])
    sizes = parser.parse_args().claims
    cluster_counts(made(2))  # compiled, or loaded
    for n_claims in sizes:
        claims = made(n_claims)
        started = time.process_time()
        counts = cluster_counts(claims)
        seconds = time.process_time() - started
        line = {"benchmark": "claim_clusters", "claims": n_claims, "cpu_s": round(seconds, 4), "clusters": counts}
        print(json.dumps(line), flush=True)


def made(n_claims: int) -> list[str]:
    """Return claims, the same for the same number."""
    draw = random.Random(0)
    return [" ".join(f"w{draw.randrange(400)}" for _ in range(20)) for _ in range(n_claims)]


if __name__ == "__main__":
    main()
