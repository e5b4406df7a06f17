"""`hirag-dist tune`: types, examples and language for a domain, proposed from a sample, as files to edit."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from hirag_dist.cli._options import (
    ConfigOption,
    JsonOption,
    LabelFieldOption,
    MaxTokensOption,
    MaxUsdOption,
    SetOption,
    TextFieldOption,
    TitleFieldOption,
    configuration,
    reading,
)
from hirag_dist.cli._output import emit, err, out, table, use_json
from hirag_dist.cli.plan import stage_row
from hirag_dist.composition.tuning import TuningProposal, TuningSample, plan_tuning, run_tuning, take_sample
from hirag_dist.composition.tuning_files import check_target, write_files
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.indexing.cost_estimate import StageEstimate
from hirag_dist.llm.prompt_files import load_prompts
from hirag_dist.llm.usage import dollars, total_cost


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("tune")(tune)


def tune(
    inputs: Annotated[list[str], typer.Argument(metavar="INPUT…", help="Files, folders, globs, s3://… .")],
    to: Annotated[str, typer.Option("--out", metavar="DIR", help="Folder for the files.")] = "tuned",
    config: ConfigOption = None,
    settings: SetOption = None,
    text_field: TextFieldOption = None,
    title_field: TitleFieldOption = None,
    label_field: LabelFieldOption = None,
    excerpts: Annotated[int, typer.Option(min=3, max=100, help="Excerpts that the types are proposed from.")] = 24,
    examples: Annotated[int, typer.Option(min=0, max=10, help="Examples of extraction, a call each.")] = 3,
    plan: Annotated[bool, typer.Option("--plan", help="Show the calls and their cost, and make none.")] = False,
    max_usd: MaxUsdOption = None,
    max_tokens: MaxTokensOption = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files of an earlier proposal.")] = False,
    json: JsonOption = False,
) -> None:
    """Propose entity types, meta types, examples of extraction and the language for the domain of INPUT.

    A sample of INPUT is shown to the models of the roles extract and summarise, in two calls and one for each example.
    What they propose is written as files to edit: a fragment of hirag.yaml, and examples for the prompt of extraction.
    Replies are kept in DIR, and a repeated run pays for none twice. Without an endpoint the built-in model proposes
    types that it finds by rules.
    """
    use_json(json)
    loaded = configuration(config, settings, reading(text_field, title_field, label_field, None)).config
    prompts = load_prompts(loaded.prompts)
    if not plan:
        check_target(to, force=force)
    sample = take_sample(inputs, loaded, excerpts, examples)
    stages = plan_tuning(sample, loaded, prompts)
    if plan:
        if json:
            emit({"sample": asdict(sample), "stages": [asdict(stage) for stage in stages]})
        else:
            _show_plan(sample, stages, loaded.llm.attempts)
        return
    if not json:
        calls, cost = sum(stage.calls for stage in stages), dollars(total_cost(stage.cost_usd for stage in stages))
        err.print(f"{_sampled(sample)} {count_noun(calls, 'call')}, about {cost} (--plan shows them, and makes none).")
    proposal = run_tuning(sample, loaded, prompts, to, max_usd, max_tokens)
    written = write_files(sample, proposal, to)
    if json:
        kept = ("by_llm", "models", "entity_types", "meta_types", "task", "examples", "rejected")
        emit(
            {name: getattr(proposal, name) for name in kept}
            | {"languages": sample.languages, "this_run": proposal.sent.sent_sums(), "files": [*map(str, written)]}
        )
        return
    _show(sample, proposal, written)


def _sampled(sample: TuningSample) -> str:
    unreadable = f", {count_noun(sample.unreadable, 'file')} unreadable" if sample.unreadable else ""
    return f"{count_noun(len(sample.excerpts), 'excerpt')} of {count_noun(sample.documents, 'document')}{unreadable}:"


def _show_plan(sample: TuningSample, stages: tuple[StageEstimate, ...], attempts: int) -> None:
    out.print(_sampled(sample))
    columns = ["call", "endpoint", "calls", "in", "out", "cost", "at least", "bound by"]
    out.print(table("Estimate", columns, [stage_row(stage) for stage in stages], right=(2, 3, 4, 5, 6), spare=(7, 1)))
    out.print(f"[dim]A reply that cannot be used is asked for again, at most {attempts:,} times in all.[/dim]")


def _show(sample: TuningSample, proposal: TuningProposal, written: list[Path]) -> None:
    if not proposal.by_llm:
        out.print(
            "[yellow]Proposed by the built-in model, not by a language model:[/yellow] it knows seven types and gives "
            "no examples."
        )
    languages = ", ".join(f"{name} {share:.0%}" for name, share in sample.languages)
    for name, text in (
        ("Entity types", ", ".join(proposal.entity_types)),
        ("Meta types", ", ".join(proposal.meta_types)),
        ("Examples", f"{len(proposal.examples)} for {proposal.task}"),
        ("Language", languages),
    ):
        out.print(f"{name}: {text}", markup=False)
    for what, why in proposal.rejected:
        out.print(f"No reply could be used for {what}: {why}", markup=False)
    sent = proposal.sent.sent_sums()
    out.print(f"This run sent {count_noun(sent['calls'], 'call')}, {sent['tokens']:,} tokens: {dollars(sent['usd'])}.")
    out.print(f"Wrote {', '.join(map(str, written))}. Edit them, then: hirag-dist plan INPUT --config {written[-1]}")
