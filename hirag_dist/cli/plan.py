"""`hirag-dist plan`: estimate of the cost of an index."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from hirag_dist.api.build import plan_build
from hirag_dist.cli._options import BatchOption, ConfigOption, JsonOption, SetOption, configuration
from hirag_dist.cli._output import dollars, emit, out, table, use_json
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.indexing.cost_estimate import BATCH, FIRST_TOKEN_S, S_PER_TOKEN, CostEstimate


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("plan")(plan)


def plan(
    inputs: Annotated[list[str], typer.Argument(metavar="INPUT…", help="Files, folders, globs, s3://… .")],
    config: ConfigOption = None,
    settings: SetOption = None,
    text_field: Annotated[
        str | None, typer.Option(help="Field with the text in JSON, CSV and Parquet records.")
    ] = None,
    batch: BatchOption = False,
    latency_s: Annotated[float | None, typer.Option(min=0, help="Assumed seconds per chat call.")] = None,
    json: JsonOption = False,
) -> None:
    """Estimate calls, tokens, cost and time of an index. Makes no call."""
    use_json(json)
    loaded = configuration(config, settings, {"reading.text_field": text_field, "llm.batch": batch or None}).config
    made = plan_build(inputs, config=loaded, latency_s=latency_s)
    if json:
        emit(asdict(made))
        return
    _show(made, latency_s)


def _show(made: CostEstimate, latency_s: float | None) -> None:
    out.print(
        f"{count_noun(made.documents, 'document')} ({count_noun(made.duplicates, 'copy', 'copies')} left out, "
        f"{len(made.unreadable):,} unreadable), {count_noun(made.chunks, 'chunk')}, {count_noun(made.tokens, 'token')}."
    )
    for name, reason in made.unreadable[:20]:
        out.print(f"  [yellow]cannot read[/yellow] {name}: {reason}")
    rows = [
        (
            stage.stage,
            stage.endpoint,
            stage.calls,
            stage.input_tokens,
            stage.output_tokens,
            dollars(stage.cost_usd),
            _minutes(stage.seconds) if stage.bound not in ("", BATCH) else None,
            stage.bound or "built in",
        )
        for stage in made.stages
    ]
    total = [sum(getattr(s, name) for s in made.stages) for name in ("calls", "input_tokens", "output_tokens")]
    cost = sum(stage.cost_usd for stage in made.stages)
    rows.append(("total", "", *total, dollars(cost), _minutes(made.seconds), ""))
    columns = ["stage", "endpoint", "calls", "in", "out", "cost", "at least", "bound by"]
    out.print(table("Estimate (about a factor of two either way)", columns, rows, right=(2, 3, 4, 5, 6), spare=(7, 1)))
    said = (
        f"{latency_s:g} s"
        if latency_s is not None
        else f"{FIRST_TOKEN_S:g} s and 1 s more for {1 / S_PER_TOKEN:g} tokens"
    )
    out.print(
        f"[dim]A call is assumed to take {said}; --latency-s sets it. Replies that an index already holds in its "
        "ledger are not known here and cost nothing again.[/dim]"
    )


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:,.1f} min"
