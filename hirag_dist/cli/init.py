"""`hirag-dist init`: a commented configuration file to start from, or one for the domain of some documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import typer

from hirag_dist.application.tuning import (
    TuningProposal,
    TuningSample,
    check_target,
    plan_tuning,
    run_tuning,
    take_sample,
    write_files,
)
from hirag_dist.cli._options import ConfigOptions, MaxTokensOption, MaxUsdOption
from hirag_dist.cli._output import emit, err, out
from hirag_dist.cli.plan import estimate_table, stage_row
from hirag_dist.config.model import Config
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.errors import ConfigError
from hirag_dist.indexing.estimate import StageEstimate
from hirag_dist.llm.prompt_files import load_prompts
from hirag_dist.llm.usage import dollars, total_cost


def init(
    options: ConfigOptions,
    folder: Annotated[str, typer.Argument(metavar="DIR", help="Folder for hirag.yaml.")] = ".",
    inputs: Annotated[
        list[str] | None,
        typer.Option("--from", metavar="INPUT", help="Propose types and examples for the domain of these documents."),
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="With --from: show the calls and their cost, and make none.")
    ] = False,
    max_usd: MaxUsdOption = None,
    max_tokens: MaxTokensOption = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing hirag.yaml.")] = False,
) -> None:
    """Write a commented hirag.yaml, or with --from one whose types suit the domain of some documents.

    With --from, a sample of INPUT is shown to the models of the roles extract and summarise, in two calls and one for
    each of three examples. What they propose is written as files to edit: a fragment of hirag.yaml, and examples for
    the prompt of extraction. Without an endpoint the built-in model proposes types that it finds by rules.
    """
    if inputs:
        spending: dict[str, Any] = {"max_usd": max_usd, "max_tokens": max_tokens}
        tune(inputs, folder, options.load(), plan=plan, force=force, json=options.json, **spending)
        return
    target = Path(folder) / "hirag.yaml"
    if target.exists() and not force:
        raise ConfigError(f"{target} exists; --force overwrites it")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(template(), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {target}: {error.strerror}") from error
    if options.json:
        emit({"written": str(target)})
    else:
        out.print(f"Wrote {target}. It works as it is, with the built-in model; set llm.endpoints for a real one.")
        out.print("Next: hirag-dist plan INPUT --config hirag.yaml")


def template() -> str:
    """Return the commented configuration."""
    return resources.files("hirag_dist.config").joinpath("hirag.yaml").read_text(encoding="utf-8")


EXCERPTS, EXAMPLES = 24, 3  # number of excerpts that types are proposed from, and of examples, a call each


def tune(
    inputs: Sequence[str],
    to: str,
    loaded: Config,
    *,
    plan: bool,
    max_usd: float | None,
    max_tokens: int | None,
    force: bool,
    json: bool,
) -> None:
    """Propose entity types, meta types, examples of extraction and the language for the domain of INPUT.

    Args:
        inputs: Files, folders and globs that the sample is taken from.
        to: Folder for the files, and for the replies, so that a repeated run pays for none twice.
        plan: Show the calls and their cost, and make none.
        force: Overwrite files of an earlier proposal.
    """
    prompts = load_prompts(loaded.prompts)
    if not plan:
        check_target(to, force=force)
    sample = take_sample(list(inputs), loaded, EXCERPTS, EXAMPLES)
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
    out.print(estimate_table("Estimate", [stage_row(stage) for stage in stages], "call"))
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
