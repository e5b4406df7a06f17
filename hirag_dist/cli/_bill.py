"""The bill: cost of the replies, and their tokens in relation to the corpus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hirag_dist.cli._output import short, table
from hirag_dist.cli._update_state import debt_line, update_line
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.llm.usage import dollars, total_cost

if TYPE_CHECKING:  # questions are asked without the packages of builds
    from hirag_dist.indexing.reembed import ReembeddingEstimate


def sent_line(sent: Mapping[str, Any]) -> str:
    """Return the calls, tokens and cost of a run, as the rest of a sentence."""
    said = f"sent {count_noun(sent['calls'], 'call')}, {count_noun(sent['tokens'], 'token')}: {dollars(sent['usd'])}"
    words = {"rate_limited": ("time 429", "times 429"), "failed": ("failed call", "failed calls")}
    again = [count_noun(sent[key], *what) for key, what in words.items() if sent[key]]
    return f"{said} ({', '.join(again)}, all retried)" if again else said


def reembedding_line(made: ReembeddingEstimate) -> str:
    """Return the number of texts that are embedded anew, their tokens and their cost, as sentences."""
    if not made.texts:
        return f"Nothing to embed: the embedder is that of snapshot {made.base}."
    cost = "price not known" if made.cost_usd is None else dollars(made.cost_usd)
    return (
        f"{count_noun(made.texts, 'text')} to embed, about {short(made.tokens)} tokens: about {cost}. Vectors that the "
        "ledger of the index holds cost nothing again."
    )


LAST_UPDATE = "Bill of the last update; what was paid before is not known"


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
    rows.append(("total", "", "", "", *total, dollars(total_cost(row["cost_usd"] for row in usage))))
    columns = ["stage", "role", "endpoint", "model", "calls", "ledger", "in", "cached", "out", "429", "refused", "cost"]
    title = title or "Bill: what these replies cost, whenever they were paid"
    return table(title, columns, rows, right=(4, 5, 6, 7, 8, 9, 10, 11), spare=(3, 10, 1, 7, 9, 5, 2), width=width)


def ratio_line(ratio: Mapping[str, Any]) -> str:
    """Return `tokens_per_corpus_token` for a person."""
    return f"{ratio['total']:,.1f} tokens per token of the corpus."


def update_lines(update: Mapping[str, Any]) -> list[str]:
    """Return the lines of an update: its documents, its texts, its cost and its debt.

    Args:
        update: `UpdateSummary.to_dict`.
    """
    texts = " ".join(_texts_line(name, update[name]) for name in ("summaries", "reports"))
    return [
        update_line(update["number"], update["documents"], update["other_changes"]),
        texts,
        _cost_line(update),
        debt_line(update),
    ]


def _texts_line(name: str, counts: Mapping[str, int]) -> str:
    """Return how many texts of a kind were written, kept and put off.

    >>> _texts_line("reports", {"written": 2, "kept": 1, "deferred": 3, "stand_ins": 1})
    'Reports: 2 written, 1 kept, 3 put off (1 of them a stand-in).'
    """
    line = f"{name.capitalize()}: {counts['written']:,} written, {counts['kept']:,} kept"
    if counts["deferred"]:
        line += f", {counts['deferred']:,} put off"
    if counts["stand_ins"]:
        what = "a stand-in" if counts["stand_ins"] == 1 else "stand-ins"
        line += f" ({counts['stand_ins']:,} of them {what})"
    return f"{line}."


def _cost_line(update: Mapping[str, Any]) -> str:
    """Return the tokens of an update, and the ratio that its budget is about.

    >>> _cost_line({"extraction_tokens": 1000, "spent_tokens": 2500, "budget_tokens": 3000})
    'Tokens: 2,500, which is 2.5 times the extraction of the changed documents (1,000); the budget was 3,000.'
    """
    spent, extraction, budget = (update[f"{name}_tokens"] for name in ("spent", "extraction", "budget"))
    line = f"Tokens: {spent:,}"
    if extraction:
        line += f", which is {spent / extraction:.1f} times the extraction of the changed documents ({extraction:,})"
    return f"{line}; {'no budget' if budget is None else f'the budget was {budget:,}'}."
