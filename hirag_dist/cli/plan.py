"""`hirag-dist plan`: what an index would cost."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from hirag_dist.cli.options import ConfigOption, JsonOption, SetOption, configuration
from hirag_dist.cli.output import dollars, emit, out, table, use_json
from hirag_dist.config_file import load_prompts
from hirag_dist.planning import Plan, make_plan


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("plan")(plan)


def plan(
    inputs: Annotated[list[str], typer.Argument(metavar="INPUT…", help="Files, folders, globs, s3://… .")],
    config: ConfigOption = None,
    settings: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Estimate calls, tokens, cost and time of an index. Makes no call."""
    use_json(json)
    loaded = configuration(config, settings).config
    made = make_plan(inputs, loaded, load_prompts(loaded.prompts))
    if json:
        emit(asdict(made))
        return
    _show(made)


def _show(made: Plan) -> None:
    out.print(
        f"{made.documents:,} documents ({made.duplicates:,} copies left out, {len(made.unreadable):,} unreadable), "
        f"{made.chunks:,} chunks, {made.tokens:,} tokens."
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
            f"{stage.seconds / 60:,.1f} min" if stage.seconds else "no limit set",
        )
        for stage in made.stages
    ]
    total = [sum(getattr(s, name) for s in made.stages) for name in ("calls", "input_tokens", "output_tokens")]
    cost = sum(stage.cost_usd for stage in made.stages)
    rows.append(("total", "", *total, dollars(cost), f"{sum(s.seconds for s in made.stages) / 60:,.1f} min"))
    columns = ["stage", "endpoint", "calls", "tokens in", "tokens out", "cost", "time at the limits"]
    out.print(table("Estimate (about a factor of two either way)", columns, rows, right=(2, 3, 4, 5, 6)))
