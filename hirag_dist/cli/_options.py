"""Options that several commands share, and the configuration from them."""

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
    str | None,
    typer.Option("--config", "-c", metavar="FILE", help="Configuration file [default: ./hirag.yaml if it exists]."),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set one configuration key, such as retrieval.top_n=30."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout, and nothing else.")]
IndexOption = Annotated[
    str, typer.Option("--index", "-i", metavar="URI", help="Folder of the index: a path, or s3://…")
]
ExecutorOption = Annotated[
    str | None, typer.Option(help="Engine of the build: ray, inline (this process), or auto (by size).")
]
WorkersOption = Annotated[int | None, typer.Option(help="Number of Ray workers [default: one for each core].")]
MaxUsdOption = Annotated[float | None, typer.Option(min=0, help="Maximum US dollars that this run may spend.")]
MaxTokensOption = Annotated[int | None, typer.Option(min=0, help="Maximum tokens that this run may use.")]
WaitOption = Annotated[float, typer.Option(min=0, help="Seconds to wait while another build holds the index.")]
MakeCurrentOption = Annotated[
    bool,
    typer.Option("--make-current", help="Make the new snapshot current even if an older one was made current by hand."),
]
RequireCompleteOption = Annotated[bool, typer.Option(help="Publish nothing while there are dead letters.")]
TextFieldOption = Annotated[
    str | None, typer.Option(help="Name of the field with the text of JSON, CSV and Parquet records.")
]
TitleFieldOption = Annotated[str | None, typer.Option(help="Name of the field with the title of a record.")]
LabelFieldOption = Annotated[str | None, typer.Option(help="Name of the field with the access labels of a record.")]
IdFieldOption = Annotated[
    str | None, typer.Option(help="Name of the field with your id of a record, for `eval` and `remove`.")
]
FreshOption = Annotated[
    bool, typer.Option("--fresh", help="Do finished work again, from nothing; replies that were paid are kept.")
]
LabelOption = Annotated[
    list[str] | None,
    typer.Option("--label", help="Search only documents with this label; repeat it for documents with all of several."),
]
AsLabelOption = Annotated[
    list[str] | None,
    typer.Option("--as-label", help="Search as a caller who holds this label (repeatable); '' for no label."),
]
SnapshotOption = Annotated[
    str | None, typer.Option("--snapshot", metavar="ID", help="Use this snapshot instead of the current one.")
]

TokenFileOption = Annotated[
    str | None, typer.Option(metavar="FILE", help="File with the bearer token for the service.")
]
CaOption = Annotated[
    str | None, typer.Option(metavar="PEM", help="PEM file with the authority that signed the service's certificate.")
]
CertOption = Annotated[
    str | None, typer.Option(metavar="PEM", help="PEM file with a client certificate, if the service requires one.")
]
KeyOption = Annotated[str | None, typer.Option(metavar="PEM", help="PEM file with the private key of --cert.")]
ServerNameOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Name in the service's certificate, if it is not the host.")
]
TlsOption = Annotated[
    bool, typer.Option("--tls", help="Use TLS with the system's authorities; --ca and --cert imply it.")
]


def running(executor: str | None, workers: int | None) -> dict[str, Any]:
    """Return the configuration keys of --executor and --workers."""
    return {"execution.executor": executor, "execution.workers": workers}


def reading(text: str | None, title: str | None, label: str | None, own_id: str | None) -> dict[str, Any]:
    """Return the configuration keys of --text-field, --title-field, --label-field and --id-field."""
    names = {"text_field": text, "title_field": title, "label_field": label, "id_field": own_id}
    return {f"reading.{key}": value for key, value in names.items()}


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
            raise ConfigError(f"Expected --set KEY=VALUE, got {setting!r}")
        try:
            overrides[key.strip()] = yaml.safe_load(value)
        except yaml.YAMLError:
            overrides[key.strip()] = value
    overrides |= {key: value for key, value in (options or {}).items() if value is not None}
    return load_config(chosen, os.environ, overrides)
