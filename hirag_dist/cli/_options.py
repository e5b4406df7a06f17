"""Options that several commands share, groups of them, and the configuration from them."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from hirag_dist.config.loader import LoadedConfig, load_config
from hirag_dist.config.model import Config
from hirag_dist.errors import ConfigError

ConfigOption = Annotated[
    str | None,
    typer.Option("--config", "-c", metavar="FILE", help="Configuration file \\[default: ./hirag.yaml if it exists]."),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set one configuration key, such as retrieval.top_n=30."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout, and nothing else.")]
_INDEX = typer.Option("--index", "-i", metavar="URI", help="Folder of the index: a path, or s3://…")
IndexOption = Annotated[str, _INDEX]
OptionalIndexOption = Annotated[str | None, _INDEX]
ServerOption = Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Ask a running service instead.")]
InputsArgument = Annotated[list[str], typer.Argument(metavar="INPUT…", help="Files, folders, globs, s3://… .")]
OptionalInputsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="INPUT…", help="Files, folders, globs, s3://… ; none with --reembed."),
]
ReembedOption = Annotated[
    bool, typer.Option("--reembed", help="Only new vectors, by the configured embedder: all else stays. No INPUT.")
]
SourceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--source",
        metavar="GLOB",
        help="Documents whose path matches, such as 'reports/2019/*', or one record: 'rows.csv, record 2'.",
    ),
]
LISTEN = typer.Option("--listen", metavar="HOST:PORT", help="Address to listen on; port 0 takes a free one.")
HttpOption = Annotated[
    str | None,
    typer.Option("--http", metavar="HOST:PORT", help="Address to serve HTTP on; port 0 takes a free one."),
]
MaxUsdOption = Annotated[
    float | None, typer.Option(min=0, metavar="USD", help="Maximum US dollars that this run may spend.")
]
MaxTokensOption = Annotated[
    int | None,
    typer.Option(min=0, metavar="N", help="Maximum tokens that this run may use; built-in models are free."),
]
WaitOption = Annotated[
    float, typer.Option(min=0, metavar="SECONDS", help="Seconds to wait while another build holds the index.")
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


@dataclass(frozen=True)
class ConfigOptions:
    """Options of a command that reads a configuration."""

    config: ConfigOption = None
    settings: SetOption = None
    json: JsonOption = False

    def load(self, overrides: Mapping[str, Any] | None = None) -> Config:
        """Return the effective configuration, with dotted keys that other options set to something other than None."""
        return configuration(self.config, self.settings, overrides).config


@dataclass(frozen=True)
class ExecutorOptions(ConfigOptions):
    """Options of a command that may start workers."""

    executor: Annotated[
        str | None, typer.Option(help="Engine of the build: ray, inline (this process), or auto (by size).")
    ] = None
    workers: Annotated[int | None, typer.Option(help="Number of Ray workers \\[default: one for each core].")] = None

    def load(self, overrides: Mapping[str, Any] | None = None) -> Config:
        chosen = {"execution.executor": self.executor, "execution.workers": self.workers}
        return super().load(chosen | dict(overrides or {}))


@dataclass(frozen=True)
class WriteOptions(ExecutorOptions):
    """Options of a command that publishes a snapshot."""

    max_usd: MaxUsdOption = None
    max_tokens: MaxTokensOption = None
    require_complete: Annotated[
        bool, typer.Option("--require-complete", help="Publish nothing while there are dead letters.")
    ] = False
    wait: WaitOption = 0.0
    make_current: Annotated[
        bool,
        typer.Option(
            "--make-current", help="Make the new snapshot current even if an older one was made current by hand."
        ),
    ] = False

    @property
    def limits(self) -> dict[str, Any]:
        """The limits of the run and its rules of publishing, as keyword arguments of a build."""
        return {
            "max_usd": self.max_usd,
            "max_tokens": self.max_tokens,
            "require_complete": self.require_complete,
            "wait_s": self.wait,
            "make_current": self.make_current,
        }


@dataclass(frozen=True)
class FieldOptions:
    """Options that name the fields of records in INPUT, and its encoding."""

    text_field: Annotated[
        str | None, typer.Option(help="Name of the field with the text of JSON, CSV and Parquet records.")
    ] = None
    title_field: Annotated[str | None, typer.Option(help="Name of the field with the title of a record.")] = None
    label_field: Annotated[
        str | None,
        typer.Option(help="Name of the field with the access labels of a record."),
    ] = None
    id_field: Annotated[
        str | None, typer.Option(help="Name of the field with your id of a record, for `eval` and `remove`.")
    ] = None
    encoding: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Character encoding of files and records that are not UTF-8 and declare none; else guessed.",
        ),
    ] = None

    @property
    def keys(self) -> dict[str, Any]:
        """The keys of the configuration that they set."""
        return {f"reading.{field.name}": getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True)
class ConnectionOptions:
    """Options of a connection to a running service."""

    token_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="File with the bearer token for the service.")
    ] = None
    ca: Annotated[
        str | None,
        typer.Option(metavar="PEM", help="PEM file with the authority that signed the service's certificate."),
    ] = None
    cert: Annotated[
        str | None, typer.Option(metavar="PEM", help="PEM file with a client certificate, if the service requires one.")
    ] = None
    key: Annotated[str | None, typer.Option(metavar="PEM", help="PEM file with the private key of --cert.")] = None
    server_name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name in the service's certificate, if it is not the host.")
    ] = None
    tls: Annotated[
        bool, typer.Option("--tls", help="Use TLS with the system's authorities; --ca and --cert imply it.")
    ] = False

    @property
    def arguments(self) -> dict[str, Any]:
        """The same as keyword arguments of a client."""
        return {
            "token_file": self.token_file,
            "root_certificates": self.ca,
            "certificate": self.cert,
            "key": self.key,
            "server_name": self.server_name,
            "tls": self.tls,
        }


def by_option(group: FieldOptions | ConnectionOptions) -> dict[str, Any]:
    """Return the values of a group of options by their names on the command line."""
    return {f"--{field.name.replace('_', '-')}": getattr(group, field.name) for field in fields(group)}


def refuse_idle(given: Mapping[str, Any], other: str, why: str) -> None:
    """Refuse options that would have no effect."""
    idle = [name for name, value in given.items() if value]
    if idle:
        raise ConfigError(f"{', '.join(idle)} cannot go with {other}: {why}; leave them out")


def label_reach(as_labels: list[str] | None) -> frozenset[str] | None:
    """Return the labels that --as-label gives, an empty one being none; None where the option is not given."""
    return None if as_labels is None else frozenset(filter(None, as_labels))


def required_inputs(inputs: list[str] | None, reembed: bool) -> list[str]:
    """Return INPUT, which a command needs unless it only makes new vectors; empty then.

    Raises:
        ConfigError: INPUT is missing, or given with --reembed.
    """
    if reembed and inputs:
        raise ConfigError("--reembed keeps the documents of the index: leave INPUT out, and give it to a later `index`")
    if not reembed and not inputs:
        raise ConfigError("give INPUT: files, folders, globs or s3://… to read")
    return inputs or []


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
