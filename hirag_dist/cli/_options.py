"""Options that several commands share, and the configuration they make."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from hirag_dist.config.loader import LoadedConfig, load_config
from hirag_dist.errors import ConfigError

ConfigOption = Annotated[
    str | None, typer.Option("--config", "-c", metavar="FILE", help="Configuration; ./hirag.yaml where there is one.")
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change one key, as in --set retrieval.top_n=30.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object, and nothing else, on stdout.")]
IndexOption = Annotated[str, typer.Option("--index", "-i", metavar="URI", help="Index folder, or s3://… .")]
ExecutorOption = Annotated[str | None, typer.Option(help="ray or inline.")]
WorkersOption = Annotated[int | None, typer.Option(help="Workers of Ray; one a core by default.")]
MaxUsdOption = Annotated[float | None, typer.Option(min=0, help="Stop before this run spends more.")]
MaxTokensOption = Annotated[int | None, typer.Option(min=0, help="Stop before this run uses more tokens.")]
BatchOption = Annotated[
    bool, typer.Option("--batch", help="Ask models in batches: half the price, up to a day each. As llm.batch: true.")
]
WaitOption = Annotated[float, typer.Option(min=0, help="Seconds to wait for another build of this index to end.")]
MakeCurrentOption = Annotated[
    bool, typer.Option("--make-current", help="Serve the snapshot also where `current` was set back from it by hand.")
]
SnapshotOption = Annotated[
    str | None, typer.Option("--snapshot", metavar="ID", help="Another snapshot than the current one.")
]


def running(executor: str | None, workers: int | None, batch: bool) -> dict[str, Any]:
    """Return what --executor, --workers and --batch say, as `configuration` takes it."""
    return {"execution.executor": executor, "execution.workers": workers, "llm.batch": batch or None}


def configuration(
    path: str | None, settings: list[str] | None, options: Mapping[str, Any] | None = None
) -> LoadedConfig:
    """Return the effective configuration: defaults, file, environment, --set, options.

    Raises:
        ConfigError: as `config_file.load_config`, or a --set without "=".
    """
    chosen = path or ("hirag.yaml" if Path("hirag.yaml").is_file() else None)
    overrides: dict[str, Any] = {}
    for setting in settings or []:
        key, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError(f"--set takes KEY=VALUE, not {setting!r}")
        try:
            overrides[key.strip()] = yaml.safe_load(value)
        except yaml.YAMLError:
            overrides[key.strip()] = value
    overrides |= {key: value for key, value in (options or {}).items() if value is not None}
    return load_config(chosen, os.environ, overrides)
