"""`hirag-dist init` and `config show|validate|schema|prompt`."""

from __future__ import annotations

import json as jsonlib
import shlex
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import typer

from hirag_dist.cli._command_line import flattened
from hirag_dist.cli._options import ConfigOption, ConfigOptions, JsonOption, SetOption, configuration
from hirag_dist.cli._output import emit, out, table
from hirag_dist.config.model import Config
from hirag_dist.core.prompts.templates import INSTRUCTIONS
from hirag_dist.errors import ConfigError
from hirag_dist.llm.prompt_files import load_prompts


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
        out.print(f"Next: hirag-dist plan INPUT --config {shlex.quote(str(target))}")


def template() -> str:
    """Return the commented configuration."""
    return resources.files("hirag_dist.config").joinpath("hirag.yaml").read_text(encoding="utf-8")


def show(options: ConfigOptions) -> None:
    """Print the effective configuration with the origin of each value; secrets are masked."""
    loaded = configuration(options.config, options.settings)
    values = loaded.config.model_dump(mode="json")
    if options.json:
        emit({"config": values, "origins": dict(loaded.origins)})
        return
    rows = []
    for key, value in _flat(values):
        origins = (origin for known, origin in loaded.origins.items() if f"{key}.".startswith(f"{known}."))
        shown = value if isinstance(value, str) else jsonlib.dumps(value, ensure_ascii=False)
        rows.append((key, shown, next(origins, "default")))
    found = table("", ["key", "value", "origin"], rows)
    found.columns[0].no_wrap = True  # a key is searched for, and copied
    out.print(found)


def validate(options: ConfigOptions) -> None:
    """Validate the configuration and the prompts that it names."""
    load_prompts(options.load().prompts)
    if options.json:
        emit({"valid": True})
    else:
        out.print("The configuration is valid.")


def schema() -> None:
    """Print the JSON Schema of the configuration."""
    print(jsonlib.dumps(Config.model_json_schema(), indent=1, ensure_ascii=False))


def prompt(
    name: Annotated[str, typer.Argument(help="Name of the prompt; without one the names are printed.")] = "",
    config: ConfigOption = None,
    settings: SetOption = None,
) -> None:
    """Print a prompt in force: the built-in text, or that of the folder that `prompts` names."""
    prompts = load_prompts(configuration(config, settings).config.prompts)
    if not name:
        print("\n".join(INSTRUCTIONS))
        return
    if name not in INSTRUCTIONS:
        raise ConfigError(f"no prompt is called {name!r}; there are: {', '.join(INSTRUCTIONS)}")
    print(prompts.instructions.get(name, INSTRUCTIONS[name]))


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in values.items():
        if isinstance(value, dict) and value:
            found.extend(_flat(value, f"{prefix}{key}."))
        else:
            found.append((f"{prefix}{key}", value))
    return found


config = typer.Typer(
    help="Show or validate the configuration; print its JSON Schema or a prompt.", no_args_is_help=True
)
for each in (show, validate, schema, prompt):
    config.command(each.__name__)(flattened(each))
