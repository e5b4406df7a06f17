"""`hirag-dist init`: a commented configuration file to start from."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from hirag_dist.cli._options import JsonOption
from hirag_dist.cli._output import emit, out
from hirag_dist.errors import ConfigError


def init(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="Folder for hirag.yaml.")] = ".",
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing hirag.yaml.")] = False,
    json: JsonOption = False,
) -> None:
    """Write a commented hirag.yaml."""
    target = Path(folder) / "hirag.yaml"
    if target.exists() and not force:
        raise ConfigError(f"{target} exists; --force overwrites it")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(template(), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {target}: {error.strerror}") from error
    if json:
        emit({"written": str(target)})
    else:
        out.print(f"Wrote {target}. It works as it is, with the built-in model; set llm.endpoints for a real one.")
        out.print(f"Next: hirag-dist plan INPUT --config {target}")


def template() -> str:
    """Return the commented configuration."""
    return resources.files("hirag_dist.config").joinpath("hirag.yaml").read_text(encoding="utf-8")
