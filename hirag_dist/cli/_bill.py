"""Lines about the bill of an index, and about the update that made a snapshot and its debt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hirag_dist.cli._output import short, table
from hirag_dist.core.text.normalize import count_noun, count_plural
from hirag_dist.llm.usage import dollars, total_cost

if TYPE_CHECKING:
    from hirag_dist.indexing.reembed import ReembeddingEstimate


def update_line(number: int, documents: Mapping[str, int], others: Sequence[str] = ()) -> str:
    """Return the number of the update and how many documents it changed, as a sentence.

    Args:
        others: names of what else changed, where no document was added, changed or removed.

    >>> update_line(3, {"added": 2, "changed": 0, "removed": 1})
    'Update 3 since the index was built from nothing: 2 documents added, 1 removed.'
    >>> update_line(4, {"added": 0, "changed": 0, "removed": 0}, ["places", "metadata"])
    'Update 4 since the index was built from nothing: places and metadata of documents changed, their texts did not.'
    """
    if not number:
        return "The index was built from nothing; no update was made since."
    parts = [f"{count:,} {what}" for what, count in documents.items() if count]
    if parts:
        first, rest = parts[0].split(" ", 1)
        parts[0] = f"{first} {'document' if first == '1' else 'documents'} {rest}"
    rest = f"{' and '.join(others)} of documents changed, their texts did not" if others else "no document changed"
    said = ", ".join(parts) or rest
    return f"Update {number} since the index was built from nothing: {said}."


def clustered_line(note: Mapping[str, Any]) -> str:
    """Return the embedder that the hierarchy was made with, where the vectors are another's, as a sentence; else "".

    Args:
        note: of the manifest about an update, or a part of it with `clustered_with`.
    """
    name = note.get("clustered_with")
    if not name:
        return ""
    return (
        f"The vectors were made anew; clusters and summaries were made with those of {name}: updates and "
        "`hirag-dist refresh` make again what has become loose, `index --rebuild` all."
    )


def missing_line(missing: int) -> str:
    """Return the number of reports that are not written, as a sentence.

    >>> missing_line(1)
    'Reports: 1 is left out (communities.report_share); `hirag-dist refresh --reports` writes it.'
    """
    verb, them = ("is", "it") if missing == 1 else ("are", "them")
    return (
        f"Reports: {missing:,} {verb} left out (communities.report_share); "
        f"`hirag-dist refresh --reports` writes {them}."
    )


def debt_line(note: Mapping[str, Any]) -> str:
    """Return the debt of a snapshot as a sentence.

    Args:
        note: with the units and tokens by kind under `debt`.

    >>> debt_line({"debt": {"summaries": {"units": 2, "tokens": 5300}, "reports": {"units": 0, "tokens": 0}}})
    'Debt: 2 summaries are due, about 5.3k tokens and those of texts above that change; `hirag-dist refresh` pays it.'
    >>> debt_line({"debt": {}})
    'Debt: none.'
    """
    open_parts = {kind: part for kind, part in note.get("debt", {}).items() if part["units"]}
    if not open_parts:
        return "Debt: none."
    parts = [count_plural(part["units"], kind) for kind, part in open_parts.items()]
    units = " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
    verb = "is" if sum(part["units"] for part in open_parts.values()) == 1 else "are"
    tokens = short(sum(part["tokens"] for part in open_parts.values()))
    more = "" if open_parts.keys() == {"reports"} else " and those of texts above that change"
    return f"Debt: {units} {verb} due, about {tokens} tokens{more}; `hirag-dist refresh` pays it."


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


BILL_SO_FAR = "Bill so far of the unfinished run: what these replies cost, whenever they were paid"
BILL_SINCE_BUILT = "Bill since the index was built from nothing: what these replies cost, whenever they were paid"
LAST_UPDATE = "Bill of the last update; what was paid before is not known"


def bill_table(usage: Sequence[Mapping[str, Any]], title: str = "") -> Any:
    """Return the bill, rows of USAGE, as a table: one row per stage, role, model and endpoint."""
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
    return table(title, columns, rows, right=(4, 5, 6, 7, 8, 9, 10, 11), spare=(3, 10, 1, 7, 9, 5, 2))


def ratio_line(ratio: Mapping[str, Any]) -> str:
    """Return `tokens_per_corpus_token` for a person."""
    return f"{ratio['total']:,.1f} tokens per token of the corpus."


def update_lines(update: Mapping[str, Any]) -> list[str]:
    """Return the lines of an update (`UpdateSummary.to_dict`): its documents, its texts, its cost and its debt."""
    names = (*(("descriptions",) if any(update["descriptions"].values()) else ()), "summaries", "reports")
    texts = " ".join(_texts_line(name, update[name]) for name in names)
    return [
        update_line(update["number"], update["documents"], update["other_changes"]),
        texts,
        _cost_line(update),
        debt_line(update),
    ]


def _texts_line(name: str, counts: Mapping[str, int]) -> str:
    """Return how many texts of a kind were written, kept and put off.

    >>> _texts_line("reports", {"written": 2, "kept": 1, "lists": 4, "deferred": 3, "stand_ins": 1})
    'Reports: 2 written, 1 kept, 3 put off (1 of them a stand-in); 4 small communities have theirs by rules.'
    """
    line = f"{name.capitalize()}: {counts['written']:,} written, {counts['kept']:,} kept"
    if counts["deferred"]:
        line += f", {counts['deferred']:,} put off"
    if counts["stand_ins"]:
        what = "a stand-in" if counts["stand_ins"] == 1 else "stand-ins"
        line += f" ({counts['stand_ins']:,} of them {what})"
    if counts["lists"]:
        have = "community has its report" if counts["lists"] == 1 else "communities have theirs"
        line += f"; {counts['lists']:,} small {have} by rules"
    return f"{line}."


def _cost_line(update: Mapping[str, Any]) -> str:
    """Return the tokens of an update, and the ratio that its budget is about.

    >>> _cost_line({"extraction_tokens": 1000, "spent_tokens": 2500, "budget_tokens": 3000})
    'Tokens: 2,500, 2.5 times the extraction of the documents that came, changed or went (1,000); the budget was 3,000.'
    """
    spent, extraction, budget = (update[f"{name}_tokens"] for name in ("spent", "extraction", "budget"))
    line = f"Tokens: {spent:,}"
    if extraction:
        ratio = spent / extraction
        line += f", {ratio:.1f} times the extraction of the documents that came, changed or went ({extraction:,})"
    return f"{line}; {'no budget' if budget is None else f'the budget was {budget:,}'}."
