"""Savings of a build: what found replies, packing, prompt caches and reports that were left out did not cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hirag_dist.composition.build_records import last_build
from hirag_dist.config.model import Config
from hirag_dist.core.prompts.templates import Prompts, report_request, summary_request
from hirag_dist.core.reports.choice import missing_reports
from hirag_dist.core.text.tokens import counter
from hirag_dist.indexing.report_estimate import REPORT_IN_PER_ENTITY, REPORT_OUT
from hirag_dist.llm.usage import usage_rows
from hirag_dist.storage.snapshot.reader import Snapshot

_FULL_PROMPT = 0.85  # of the limit of a report's prompt that a large community fills


@dataclass(frozen=True, slots=True)
class BillSavings:
    """Calls and tokens that were not paid, of the build or update that made a snapshot; None where it is not known.

    Attributes:
        found_calls, found_tokens: of replies that were in the ledger before: paid by an earlier build, or by a reply
            to the same request.
        packed_calls, packed_tokens: calls that units sharing others' calls would have taken, and their instructions.
        cached_tokens: of the input, paid at the provider's price for cached tokens.
        cached_usd: dollars below the price of uncached tokens; None without the price.
        missing_reports, missing_tokens: reports left out, and what writing them would take, about.
    """

    found_calls: int
    found_tokens: int | None
    packed_calls: int | None
    packed_tokens: int | None
    cached_tokens: int
    cached_usd: float | None
    missing_reports: int
    missing_tokens: int


def bill_savings(snapshot: Snapshot, config: Config | None = None) -> BillSavings:
    """Return the savings of the build or update that made a snapshot.

    Args:
        config: with the prices of the endpoints; None where they are not known.
    """
    usage = usage_rows(snapshot.table("usage"))
    found_calls = sum(row["ledger_hits"] for row in usage)
    packed = _packed(snapshot, usage)
    missing, missing_tokens = _missing(snapshot)
    return BillSavings(
        found_calls,
        _found_tokens(snapshot, usage, found_calls),
        None if packed is None else packed[0],
        None if packed is None else packed[1],
        sum(row["cached_tokens"] for row in usage),
        None if config is None else _cached_usd(usage, config),
        missing,
        missing_tokens,
    )


def _found_tokens(snapshot: Snapshot, usage: Sequence[Mapping[str, Any]], found_calls: int) -> int | None:
    if not found_calls:
        return 0
    record = last_build(snapshot.store)
    if record is None or record.get("snapshot") != snapshot.manifest.snapshot_id or not record.get("sent"):
        return None
    paid: int = sum(row["input_tokens"] + row["output_tokens"] for row in usage)
    return max(paid - int(record["sent"]["tokens"]), 0)


def _packed(snapshot: Snapshot, usage: Sequence[Mapping[str, Any]]) -> tuple[int, int] | None:
    """Return (calls, tokens) that packing saved in a build from nothing; None for an update, whose units are unknown.

    A call more would have carried the instructions once more.
    """
    note = snapshot.manifest.notes.get("update")
    if note is None or int(note.get("number", 0)):
        return None
    config = snapshot.manifest.build.get("config", {})
    count = counter(config.get("tokenizer", "cl100k_base"))
    prompts = Prompts()
    requests = {
        "summarise": summary_request([], prompts, tuple(note.get("meta_types", ())), None),
        "reports": report_request([], [], [], prompts, None),
    }
    units = {
        "summarise": _from_model(snapshot.table("summaries", ["origin"])),
        "reports": _from_model(snapshot.table("reports", ["origin"])),
    }
    calls = tokens = 0
    for stage, request in requests.items():
        made = sum(row["calls"] - row["rejected"] for row in usage if row["stage"].startswith(stage))
        saved = max(units[stage] - made, 0)
        calls, tokens = calls + saved, tokens + saved * count(request.messages[0].content)
    return calls, tokens


def _from_model(table: pa.Table) -> int:
    return int(pc.sum(pc.equal(table["origin"], "model")).as_py() or 0)


def _cached_usd(usage: Sequence[Mapping[str, Any]], config: Config) -> float | None:
    total = 0.0
    for row in usage:
        if not row["cached_tokens"]:
            continue
        endpoint = config.llm.endpoints.get(row["endpoint"])
        if endpoint is None or endpoint.prices is None:
            return None
        total += row["cached_tokens"] * (endpoint.prices[0] - endpoint.prices[1]) / 1e6
    return total


def _missing(snapshot: Snapshot) -> tuple[int, int]:
    """Return the reports left out, and the tokens of writing them: of their material, and a mean reply."""
    if not snapshot.manifest.missing_reports:
        return 0, 0
    communities = snapshot.manifest.build.get("config", {}).get("communities", {})
    table = snapshot.table("communities", ["community_id", "n_entities"])
    rejects = snapshot.table("rejects", ["unit_id"])["unit_id"]
    known = [*snapshot.table("reports", ["community_id"])["community_id"].chunks, *rejects.chunks]
    missing = missing_reports(table, pa.chunked_array(known, pa.string()), communities.get("report_min_entities", 1))
    note = snapshot.manifest.notes.get("update") or {}
    reply = float((note.get("reply_tokens") or (0, REPORT_OUT))[1])
    limit = _FULL_PROMPT * communities.get("report_tokens", 4000)
    sizes = table["n_entities"].to_numpy()[missing]
    shown = np.minimum(sizes * REPORT_IN_PER_ENTITY, limit)
    return int(missing.sum()), int((shown + reply).sum())
