"""The bill: cost of the replies, and their tokens in relation to the corpus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hirag_dist.cli._output import dollars, table
from hirag_dist.core.text.normalize import count_noun


def sent_line(sent: Mapping[str, Any]) -> str:
    """Return the calls, tokens and cost of a run, as the rest of a sentence."""
    said = f"sent {count_noun(sent['calls'], 'call')}, {count_noun(sent['tokens'], 'token')}: {dollars(sent['usd'])}"
    words = {"rate_limited": ("time 429", "times 429"), "failed": ("failed call", "failed calls")}
    again = [count_noun(sent[key], *what) for key, what in words.items() if sent[key]]
    return f"{said} ({', '.join(again)}, all retried)" if again else said


def bill_table(usage: Sequence[Mapping[str, Any]], title: str = "", width: int | None = None) -> Any:
    """Return the bill as a table, one row per stage, role, model and endpoint.

    Args:
        usage: rows of USAGE.
        title: above it.
        width: characters there are; None for the terminal's.
    """
    numbers = ("calls", "ledger_hits", "input_tokens", "cached_tokens", "output_tokens", "rate_limited", "rejected")
    rows = [
        (
            row["stage"],
            row["role"],
            row["endpoint"],
            row["model"],
            *(row[name] for name in numbers),
            dollars(row["cost_usd"]),
        )
        for row in usage
    ]
    total = [sum(row[name] for row in usage) for name in numbers]
    rows.append(("total", "", "", "", *total, dollars(sum(row["cost_usd"] for row in usage))))
    columns = ["stage", "role", "endpoint", "model", "calls", "ledger", "in", "cached", "out", "429", "refused", "cost"]
    title = title or "Bill: what these replies cost, whenever they were paid"
    return table(title, columns, rows, right=(4, 5, 6, 7, 8, 9, 10, 11), spare=(3, 10, 1, 7, 9, 5, 2), width=width)


def ratio_line(ratio: Mapping[str, Any]) -> str:
    """Return `tokens_per_corpus_token` for a person."""
    return f"{ratio['total']:,.1f} tokens per token of the corpus."
