"""Builds of documents with labels, with a model that finds what their lines list."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from hirag_dist.core.prompts.templates import DONE
from hirag_dist.storage.snapshot.reader import Snapshot, open_snapshot
from hirag_dist.types import ChatRequest
from tests.toy_builds import Bench, Script, between, task_of


def reply(request: ChatRequest) -> str | None:
    """Entities and relations as the text lists them: "Name/type: what", "Name + Name: what strength"."""
    if task_of(request) != "extract-graph":
        return None
    lines = []
    for line in between(request, "text").splitlines():
        head, told = line.split(": ", 1)
        if " + " in head:
            said, strength = re.fullmatch(r"(.*) (\d+)", told).groups()  # type: ignore[union-attr]
            lines.append("relation<|>{}<|>{}<|>{}<|>{}".format(*head.split(" + "), said, strength))
        else:
            lines.append("entity<|>{}<|>{}<|>{}".format(*head.split("/"), told))
    return "\n".join([*lines, DONE])


def build(
    bench: Bench, documents: Sequence[tuple[str, Sequence[str]]], script: Script = reply, **keys: Any
) -> Snapshot:
    """Build an index of texts with labels."""
    bench.folder.mkdir(exist_ok=True)
    path = bench.folder / "corpus.jsonl"
    path.write_text(
        "\n".join(json.dumps({"text": text, "title": text[:20], "labels": labels}) for text, labels in documents)
    )
    bench.result = bench.run_on([str(path)], script, **keys)
    return open_snapshot(bench.store, bench.result.manifest.snapshot_id, full_check=True)
