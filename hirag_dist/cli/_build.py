"""Printed summary of a build, shared by index, retry and import."""

from __future__ import annotations

from typing import Any

import typer

from hirag_dist.cli._bill import bill_table, ratio_line, sent_line, update_lines
from hirag_dist.cli._output import emit, out, table
from hirag_dist.cli._update_state import missing_line
from hirag_dist.composition.index_result import IndexResult
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.indexing.content_remarks import remark_lines


def conclude(result: IndexResult, json: bool, headline: str = "") -> None:
    """Print a build's summary, or a headline in its place; exit with 3 if there are dead letters."""
    report = result.to_dict()
    if json:
        emit(report)
    else:
        show(report, headline)
    if not result.complete:
        raise typer.Exit(3)


def show(report: dict[str, Any], headline: str = "") -> None:
    """Print a build's summary for a person."""
    counts = report["counts"]
    if report["rebuilt_because"]:
        out.print("[yellow]The index was built from nothing, not updated:[/yellow]", end=" ")
        out.print(f"{report['rebuilt_because']}.", markup=False)
    if report["fallback"]:
        out.print("[yellow]Another snapshot was used in place of the current one:[/yellow]", end=" ")
        out.print(f"{report['fallback']}.", markup=False)
    if report["repaired"]:
        out.print(f"[yellow]{count_noun(len(report['repaired']), 'damaged work file')} made again.[/yellow]")
    if headline:
        out.print(headline, markup=False)
    elif report["up_to_date"]:
        out.print(
            f"Nothing changed: the documents are those of snapshot {report['snapshot']} ({report['seconds']:.1f} s)."
        )
    elif report["update"] is not None and report["update"]["returned"]:
        out.print(
            f"The documents are those of snapshot {report['snapshot']} again, which this index was updated from: it is "
            f"current, and nothing had to be written ({report['seconds']:.1f} s)."
        )
    elif not report["stages_run"]:
        out.print(f"Nothing to do: snapshot {report['snapshot']} is up to date ({report['seconds']:.1f} s).")
    else:
        out.print(
            f"Snapshot [bold]{report['snapshot']}[/bold] {'published' if report['changed'] else 'is unchanged'} after "
            f"{report['seconds']:.1f} s: {count_noun(counts['documents'], 'document')}, "
            f"{count_noun(counts['chunks'], 'chunk')}, "
            f"{count_noun(counts['entities'], 'entity', 'entities')}, {count_noun(counts['relations'], 'relation')}, "
            f"{count_noun(counts['reports'], 'report')}."
        )
        if report["update"] is not None:
            for line in update_lines(report["update"]):
                out.print(line)
        for line in remark_lines(report["content"]):
            out.print(line)
        out.print(layer_table(report["layers"]))
        levels = ", ".join(f"{n:,} at level {level}" for level, n in report["communities_by_level"].items())
        out.print(f"Communities: {levels}.")
        if report["missing_reports"]:
            out.print(missing_line(report["missing_reports"]))
        out.print(bill_table(report["usage"], "" if report["update"] is None else "Bill of the update"))
        if report["tokens_per_corpus_token"] is not None and report["update"] is None:
            out.print(ratio_line(report["tokens_per_corpus_token"]))
    out.print(f"This run {sent_line(report['this_run'])}.")
    where = report["index"]
    if report["stays_current"]:
        out.print(
            f"[yellow]{report['stays_current']} stays current:[/yellow] `current` was set back to it from "
            f"{report['snapshot']}. To go forward again add --make-current, or write that id into {where}/current."
        )
    if report["dropped"]:
        gone = count_noun(report["dropped"], "dead letter was", "dead letters were")
        out.print(f"{gone} dropped before, and accepted as lost.")
    if not report["complete"]:
        out.print(
            f"[yellow]Incomplete: {count_noun(report['dead_letters'], 'dead letter')}.[/yellow] `hirag-dist "
            "status --index "
            f"{where} --letters` shows all, `hirag-dist retry --index {where}` asks again."
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
