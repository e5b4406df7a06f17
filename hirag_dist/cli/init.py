"""`hirag-dist init`: a commented configuration file to start from."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import typer

from hirag_dist.cli._options import ConfigOptions, MaxTokensOption, MaxUsdOption
from hirag_dist.cli._output import emit, out
from hirag_dist.errors import ConfigError


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
        from hirag_dist.cli._tune import tune

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
