"""Indexes of documents with metadata, and with labels where a test wants them (`leaky_builds`)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hirag_dist.storage.snapshot.reader import Snapshot, open_snapshot
from tests.leaky_builds import HIDDEN, Documents, script
from tests.toy_builds import Bench

METADATA: Mapping[str, Any] = {
    "as_of_field": "published",
    "fields": {
        "number": "number",
        "kind": "string",
        "published": "date",
        "tags": {"type": "string", "list": True},
        "even": "bool",
    },
}


def records(documents: Documents, *, labelled: bool = False) -> list[dict[str, Any]]:
    """Return documents as records: their number, kind (open, or hidden), a day of their number, tags and a flag."""
    return [
        {
            "text": text,
            "title": f"document {number}",
            "number": number,
            "kind": "hidden" if HIDDEN in text else "open",
            "published": f"2024-01-{1 + number % 31:02}",
            "tags": [f"by{divisor}" for divisor in (2, 3, 5) if number % divisor == 0],
            "even": number % 2 == 0,
        }
        | ({"labels": labels} if labelled else {})
        for number, (text, labels) in enumerate(documents)
    ]


def build_records(bench: Bench, given: Sequence[Mapping[str, Any]], **keys: Any) -> Snapshot:
    """Build or update an index of records."""
    bench.folder.mkdir(exist_ok=True)
    path = bench.folder / "corpus.jsonl"
    path.write_text("\n".join(map(json.dumps, given)))
    bench.result = bench.run_on([str(path)], script, **({"metadata": METADATA} | keys))
    return open_snapshot(bench.store, bench.result.manifest.snapshot_id, full_check=True)
