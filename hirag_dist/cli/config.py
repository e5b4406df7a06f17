"""`hirag-dist config show|validate|schema|prompt`."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from hirag_dist.cli._options import ConfigOption, JsonOption, SetOption, configuration
from hirag_dist.cli._output import emit, out, table, use_json
from hirag_dist.config.model import Config
from hirag_dist.core.prompts.templates import INSTRUCTIONS
from hirag_dist.errors import ConfigError
from hirag_dist.llm.prompt_files import load_prompts


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(
        help="Show or validate the configuration; print its JSON Schema or a prompt.",
        no_args_is_help=True,
    )
    group.command("show")(show)
    group.command("validate")(validate)
    group.command("schema")(schema)
    group.command("prompt")(prompt)
    app.add_typer(group, name="config")


def show(config: ConfigOption = None, settings: SetOption = None, json: JsonOption = False) -> None:
    """Print the effective configuration with the origin of each value; secrets are masked."""
    use_json(json)
    loaded = configuration(config, settings)
    values = loaded.config.model_dump(mode="json")
    if json:
        emit({"config": values, "origins": dict(loaded.origins)})
        return
    rows = [(key, _shown(value), _origin(key, loaded.origins)) for key, value in _flat(values)]
    out.print(table("", ["key", "value", "origin"], rows))


def validate(config: ConfigOption = None, settings: SetOption = None, json: JsonOption = False) -> None:
    """Validate the configuration and the prompts that it names."""
    use_json(json)
    loaded = configuration(config, settings)
    load_prompts(loaded.config.prompts)
    if json:
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


def _origin(key: str, origins: Mapping[str, str]) -> str:
    for known, origin in origins.items():
        if key == known or key.startswith(f"{known}."):
            return origin
    return "default"


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else jsonlib.dumps(value, ensure_ascii=False)
