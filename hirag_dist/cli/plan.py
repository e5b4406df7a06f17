"""`hirag-dist plan`: estimate of the cost of an index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.markup import escape

from hirag_dist.api.build import plan_build, plan_reembedding
from hirag_dist.cli._bill import reembedding_line
from hirag_dist.cli._options import (
    ConfigOptions,
    EncodingOption,
    OptionalInputsArgument,
    TextFieldOption,
    refuse_idle,
    required_inputs,
)
from hirag_dist.cli._output import about, emit, err, out, short, table
from hirag_dist.composition.models import lexical_embedding_notice
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.errors import ConfigError
from hirag_dist.indexing.estimate import FIRST_TOKEN_S, S_PER_TOKEN, CostEstimate, StageEstimate
from hirag_dist.llm.usage import dollars, total_cost

_SHOWN = 20  # files that cannot be read


def plan(
    options: ConfigOptions,
    inputs: OptionalInputsArgument = None,
    text_field: TextFieldOption = None,
    encoding: EncodingOption = None,
    tokens_per_s: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            help="Tokens per second of an endpoint's replies, all calls together; default: as the index was built.",
        ),
    ] = None,
    index: Annotated[
        str | None,
        typer.Option("--index", "-i", metavar="URI", help="Index that exists: estimate its update to INPUT."),
    ] = None,
    add: Annotated[
        bool, typer.Option("--add", help="With --index: estimate `add`; the documents of the index stay.")
    ] = False,
    reembed: Annotated[
        bool, typer.Option("--reembed", help="With --index, without INPUT: estimate `index --reembed`.")
    ] = False,
) -> None:
    """Estimate calls, tokens, cost and time of an index, or of the update of one with --index. Calls no model.

    Servers are asked for the context windows of their models, to which chunks and prompts are cut.

    With --index, documents that would be added, changed and removed, and the chunks to extract, are exact; summaries
    and reports are estimated from averages of the index.
    """
    if add and index is None:
        raise ConfigError("--add estimates an addition to an index: give --index URI with it")
    if reembed and index is None:
        raise ConfigError("--reembed estimates new vectors of an index: give --index URI with it")
    documents = required_inputs(inputs, reembed)
    loaded = options.load({"reading.text_field": text_field, "reading.encoding": encoding})
    if notice := lexical_embedding_notice(loaded):
        err.print(f"[yellow]Note:[/yellow] {notice}.")
    if reembed and index is not None:
        refuse_idle({"--add": add}, "--reembed", "the documents stay as they are")
        vectors = plan_reembedding(index, config=loaded)
        if options.json:
            emit(asdict(vectors) | {"cost_usd": vectors.cost_usd})
        else:
            out.print(reembedding_line(vectors))
        return
    made = plan_build(documents, index, config=loaded, tokens_per_s=tokens_per_s, add=add)
    if options.json:
        emit(asdict(made))
    else:
        _show(made, add)


def _show(made: CostEstimate, add: bool) -> None:
    chunks, tokens = count_noun(made.chunks, "chunk"), count_noun(made.tokens, "token")
    documents = count_noun(made.documents, "document")
    if made.rebuilt_because:
        refused = "cannot be updated, and `add` refuses" if add else "would be built from nothing, not updated"
        out.print(f"[yellow]The index {refused}:[/yellow]", end=" ")
        out.print(f"{made.rebuilt_because}.", markup=False)
    if made.base and not made.changes:
        are = "in" if add else "those of"
        out.print(f"Nothing to do: the documents of INPUT are {are} snapshot {made.base}.")
    elif made.base:
        counts = made.changes
        out.print(
            f"{counts.added:,} added, {counts.changed:,} changed, {counts.removed:,} removed of {documents}; {chunks} "
            f"to extract, {tokens}."
        )
        for name, text in (("Summaries", made.summaries), ("Reports", made.reports)):
            fewest, most = text.due_range
            out.print(
                f"{name}: about {text.due:,} of {text.total:,} due ({fewest:,} to {most:,}, by what the texts name); "
                f"about {text.written:,} are written."
            )
        bound = "none for the built-in model" if made.budget_tokens is None else f"{made.budget_tokens:,} tokens"
        out.print(
            f"Bound: {bound}; the extraction of the changed documents is about {made.extraction_tokens:,} tokens."
        )
    else:
        copies = count_noun(made.duplicates, "copy", "copies")
        out.print(f"{documents} ({copies} left out, {len(made.unreadable):,} unreadable), {chunks}, {tokens}.")
    for name, reason in made.unreadable[:_SHOWN]:  # a name or reason may hold brackets: `hirag-dist[documents]`
        out.print(f"  [yellow]cannot read[/yellow] {escape(name)}: {escape(reason)}")
    if not made.stages:
        return
    if line := _window_line(made):
        out.print(line)
    rows = [*map(stage_row, made.stages), total_row("total", made.stages, made.seconds)]
    out.print(estimate_table(rows))
    out.print(
        f"[dim]Times are estimates, not bounds. A call at an endpoint of unknown speed is assumed to take "
        f"{FIRST_TOKEN_S:g} s and 1 s more for {1 / S_PER_TOKEN:g} tokens; --tokens-per-s sets the speed. Replies that "
        "an index already holds in its ledger are not known here and cost nothing again.[/dim]"
    )


def _window_line(made: CostEstimate) -> str:
    """Return a line about the windows and the speed that the estimate rests on; "" where neither is known."""
    windows = [f"{window:,} tokens ({role})" for role, window in made.windows.items()]
    if len(set(made.windows.values())) == 1:
        windows = [f"{next(iter(made.windows.values())):,} tokens"]
    known = [f"window {', '.join(windows)}"] if windows else []
    known += [f"{name} about {short(speed)} tokens a second" for name, speed in made.speeds.items()]
    if not known:
        return ""
    time = f"{count_noun(made.documents, 'document takes', 'documents take')} {about(made.seconds)}"
    line = ", ".join(known) + (f": {time}." if made.speeds else ".")
    return line[0].upper() + line[1:]


def estimate_table(rows: Sequence[tuple[Any, ...]]) -> Any:
    """Return the table of an estimate, of rows by `stage_row` and `total_row`."""
    columns = ["stage", "endpoint", "calls", "in", "out", "cost", "time", "bound by"]
    title = "Estimate (about a factor of two either way)"
    return table(title, columns, rows, right=(2, 3, 4, 5, 6), spare=(7, 1))


def stage_row(stage: StageEstimate) -> tuple[Any, ...]:
    """Return a stage as a row of the table of an estimate."""
    counts = (stage.calls, stage.input_tokens, stage.output_tokens)
    time = _minutes(stage.seconds) if stage.bound else None
    return (stage.stage, stage.endpoint, *counts, dollars(stage.cost_usd), time, stage.bound or "built in")


def total_row(name: str, stages: Sequence[StageEstimate], seconds: float) -> tuple[Any, ...]:
    """Return the sums of stages as a row of the table of an estimate."""
    total = [sum(getattr(stage, column) for stage in stages) for column in ("calls", "input_tokens", "output_tokens")]
    return (name, "", *total, dollars(total_cost(stage.cost_usd for stage in stages)), _minutes(seconds), "")


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:,.1f} min"
