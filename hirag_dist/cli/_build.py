"""Printed summary of a build, shared by index, retry and import."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import typer

from hirag_dist.application.index_result import READING, IndexResult
from hirag_dist.cli._bill import debt_line, missing_line, sent_line, update_lines
from hirag_dist.cli._output import duration_text, emit, out, table
from hirag_dist.core.text.normalize import count_noun, count_plural, one_line
from hirag_dist.indexing.content_remarks import remark_lines
from hirag_dist.llm.usage import dollars

_SHOWN_REASONS = 5  # of dead letters


def conclude(result: IndexResult, json: bool) -> None:
    """Print a build's summary; exit with 3 if the index lacks something.

    That is, if it has open dead letters, or half of its documents have no entity.
    """
    report = result.to_dict()
    if json:
        emit(report)
    else:
        show(report)
    if result.exit_code:
        raise typer.Exit(result.exit_code)


def show(report: dict[str, Any]) -> None:
    """Print a build's summary for a person."""
    counts = report["counts"]
    if report["rebuilt_because"]:
        out.print("[yellow]The index was built from nothing, not updated:[/yellow]", end=" ")
        out.print(f"{report['rebuilt_because']}.", markup=False)
    if report["fallback"]:
        out.print(
            "[yellow]The current snapshot was damaged or gone, and another one was used in its place:[/yellow]", end=" "
        )
        out.print(f"{report['fallback']}.", markup=False)
    if report["repaired"]:
        out.print(f"[yellow]{count_noun(len(report['repaired']), 'damaged work file')} made again.[/yellow]")
    if line := unwritten_line(report):
        out.print(line)
        if any(part["units"] for part in report["debt"].values()):
            out.print(debt_line(report))
    else:
        is_again = report["fallback"] and report["stays_current"] is None
        done = "published" if report["changed"] else "was written again" if is_again else "is unchanged"
        out.print(f"Snapshot [bold]{report['snapshot']}[/bold] {done}: {_counts_text(counts, len(report['layers']))}.")
        if not report["stages_run"]:
            out.print("No stage had to run: earlier runs had finished all of them. This run made the snapshot current.")
        if report["update"] is not None:
            for line in update_lines(report["update"]):
                out.print(line)
        for line in remark_lines(report["content"]):
            out.print(line)
        if report["missing_reports"]:
            out.print(missing_line(report["missing_reports"]))
        paid = dollars(report["total_usd"])
        if paid != dollars(report["this_run"]["usd"]):
            out.print(f"The replies that it used cost {paid}, whenever they were paid.")
    if report["unread_files"]:
        out.print(f"{count_noun(report['unread_files'], 'file')} unchanged, not read.")
    out.print(f"This run {sent_line(report['this_run'])}, in {duration_text(report['seconds'])}.")
    where = report["index"]
    if report["stays_current"]:
        out.print(
            f"[yellow]{report['stays_current']} stays current:[/yellow] `current` was set back to it from "
            f"{report['snapshot']}. To go forward again add --make-current, or write that id into {where}/current."
        )
    if report["dropped"]:
        gone = count_noun(report["dropped"], "dead letter was", "dead letters were")
        out.print(f"{gone} dropped before, and accepted as lost.")
    bare = report["content"]["without_entities"]
    if bare:
        out.print(_without_entities_line(bare, counts["documents"], report["first_without_entities"]), markup=False)
        if report["complete"] and 2 * bare >= counts["documents"]:
            said = "" if report["dropped"] else "No reply was refused. "
            out.print(f"{said}If entities are missed, set another model in llm.roles.extract.")
    if not report["complete"]:
        out.print(f"[yellow]Incomplete: {count_noun(report['dead_letters'], 'dead letter')}.[/yellow]")
        groups = report["letters_by_reason"]
        for group in groups[:_SHOWN_REASONS]:
            out.print(f"  {group_line(group)}", markup=False)
        if hidden := groups[_SHOWN_REASONS:]:
            n_letters = sum(group["count"] for group in hidden)
            more = f"and {n_letters:,} more, for {count_noun(len(hidden), 'other reason')}"
            out.print(f"  {more}; `hirag-dist status --index {shlex.quote(where)}` lists all.", markup=False)
        out.print(_letters_hint(where, {stage for group in groups for stage in group["stages"]}))


def unwritten_line(report: Mapping[str, Any]) -> str:
    """Return what a build says that ran no stage or found its snapshot there, as a sentence; "" for any other."""
    snapshot, is_served = report["snapshot"], report["stays_current"] is None
    if report["up_to_date"] and report["changed"]:
        return f"Snapshot {snapshot}, with the same documents, is served now."
    if report["up_to_date"]:
        return f"Nothing changed: the documents are those of snapshot {snapshot}."
    if report["update"] is not None and report["update"]["returned"]:
        served = ", which is served now" if is_served else ""
        return f"The documents are those of snapshot {snapshot} again{served}; nothing had to be written."
    update = report["update"]
    owes = any(part["units"] for part in report["debt"].values())
    if update is not None and update["base"] == snapshot and update["budget_tokens"] is not None and owes:
        budget = count_noun(update["budget_tokens"], "token")
        return f"Snapshot {snapshot} stays as it is: no due text fits into the budget of {budget}."
    if (report["stages_run"] or report["changed"]) and (update is None or update["base"] != snapshot):
        return ""
    if report["fallback"] and is_served:
        return f"Snapshot {snapshot} was written again, and is whole."
    return f"Nothing to do: snapshot {snapshot} is up to date."


def _letters_hint(index: str, stages: Collection[str]) -> str:
    """Return what can be done about dead letters of some stages.

    >>> _letters_hint("i", ["read"])
    '`hirag-dist status --letters --index i` shows each; `hirag-dist retry --drop --index i` accepts the loss.'
    >>> _letters_hint("i 1", ["extract"])[:52]
    "`hirag-dist status --letters --index 'i 1'` shows ea"
    """
    index = shlex.quote(index)
    shows = f"`hirag-dist status --letters --index {index}` shows each"
    if set(stages) <= set(READING):
        return f"{shows}; `hirag-dist retry --drop --index {index}` accepts the loss."
    return f"{shows}, `hirag-dist retry --index {index}` asks again, and with --drop accepts the loss."


def group_line(group: Mapping[str, Any]) -> str:
    """Return how many dead letters have one reason, and what to change.

    Args:
        group: `LetterGroup.to_dict`.

    >>> group_line({"reason": "the reply is empty", "count": 3, "stages": {"extract": 2, "reports": 1}, "remedy": ""})
    '3 × the reply is empty (extract 2, reports 1)'
    """
    stages = ", ".join(f"{stage} {count:,}" for stage, count in group["stages"].items())
    remedy = f". To change: {group['remedy']}" if group["remedy"] else ""
    return f"{group['count']:,} × {one_line(group['reason'])} ({stages}){remedy}"


def _counts_text(counts: Mapping[str, int], n_layers: int) -> str:
    names = ("documents", "chunks", "entities", "relations", "communities", "reports")
    said = {name: count_plural(counts[name], name) for name in names}
    said["entities"] += f" in {count_noun(n_layers, 'layer')}"
    return ", ".join(said.values())


def _without_entities_line(n_bare: int, n_documents: int, first: Sequence[str]) -> str:
    """Return the number of documents without an entity, and their names.

    >>> _without_entities_line(2, 3, ["a.txt", "b.txt"])
    '2 of 3 documents have no entity: a.txt, b.txt. Questions reach their text by its vectors alone.'
    """
    verb, their = ("has", "its") if n_bare == 1 else ("have", "their")
    more = ", …" if n_bare > len(first) else ""
    return (
        f"{n_bare:,} of {count_noun(n_documents, 'document')} {verb} no entity: {', '.join(first)}{more}. Questions "
        f"reach {their} text by its vectors alone."
    )


def layer_table(layers: list[dict[str, Any]]) -> Any:
    """Return the hierarchy as a table, one row a layer."""
    rows = [
        (
            row["layer"],
            row["n_entities"],
            row["n_clusters"] or None,
            row["median_cluster"] or None,
            row["sparsity"],
            row["change_rate"],
            row["decision"],
        )
        for row in layers
    ]
    columns = ["layer", "entities", "clusters", "median", "CS", "change", "then"]
    return table("Hierarchy", columns, rows, right=(0, 1, 2, 3, 4, 5), spare=(5, 3))
