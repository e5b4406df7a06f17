"""Repetition of the last build of an index: refused units get new attempts, everything else is reused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hirag_dist.application.index_result import IndexResult
from hirag_dist.application.indexing import BuildOptions, execute_build, read_import
from hirag_dist.composition.build_records import (
    BuildArguments,
    build_usage,
    dead_letters,
    last_build,
    no_build,
    repeated,
)
from hirag_dist.config.model import Config
from hirag_dist.config.reading import ReadingConfig
from hirag_dist.errors import ConfigError, InputError, SnapshotCorrupt, SnapshotNotFound
from hirag_dist.execution.dead_letters import load_drops
from hirag_dist.indexing.estimate import RetryEstimate, retry_works, stages_of
from hirag_dist.indexing.pipeline import Build, BuildResult
from hirag_dist.indexing.update.base import differences, in_short
from hirag_dist.indexing.update.documents import DocumentSelection
from hirag_dist.protocols import EventListener
from hirag_dist.storage.snapshot.reader import open_snapshot
from hirag_dist.storage.store import Store


def run_retry(
    index_uri: str, config: Config, options: BuildOptions | None = None, listeners: Sequence[EventListener] = ()
) -> IndexResult:
    """Send the dead letters of the last build to the models again, complete the build, and publish a new snapshot.

    Args:
        config: the configuration of that build; the fields of records are taken from the record of it.
        index_uri, options, listeners: see `application.indexing.run_build`.

    Raises:
        SnapshotNotFound: there is no record of a build.
        ConfigError: the configuration is not that of the last build.
        HiragError: see `application.indexing.run_build`.
    """
    options = options or BuildOptions()
    store = Store(index_uri)
    record = last_build(store)
    if record is None:
        raise no_build(store)
    repeats = repeated(record)
    arguments = _arguments(repeats["given"], store)
    config = config.model_copy(update={"reading": _reading(arguments, config)})
    previous = record.get("decisive")  # empty if its models could not be probed: then there is nothing to differ from

    def work(build: Build) -> BuildResult:
        match arguments.command:
            case "index":
                return build.index(arguments.inputs)
            case "add":
                return build.add(arguments.inputs)
            case "remove":
                return build.remove(DocumentSelection(arguments.removed, arguments.sources))
            case "refresh":
                return build.refresh(all_reports=arguments.all_reports)
        return build.index_graph(read_import(arguments.folder, config, arguments.communities == "keep"))

    def check(build: Build) -> None:
        if previous:
            check_same_configuration(previous, build.decisive(), store.uri)

    base_id = _present(store, repeats["base"])
    return execute_build(config, store, "retry", arguments, options, work, listeners, check, base_id)


def estimate_retry(index_uri: str, config: Config, latency_s: float | None = None) -> RetryEstimate:
    """Return the estimate of `run_retry`, from the dead letters and the bill of the last build. Makes no call.

    Args:
        config: with the endpoints, their prices and limits.
        latency_s: see `estimate_build`.

    Raises:
        SnapshotNotFound: there is no record of a build.
    """
    store = Store(index_uri)
    record = last_build(store)
    if record is None:
        raise no_build(store)
    rows = dead_letters(store, record, load_drops(store), ("stage", "unit_id", "request"))
    requests: dict[str, list[str]] = {}
    for row in rows:
        if row["dropped"] is None:
            requests.setdefault(row["stage"], []).append(row["request"])
    counts = {stage: len(asked) for stage, asked in requests.items()}
    letters, later = retry_works(requests, build_usage(record), config)
    stages, seconds = stages_of(letters, config, latency_s)
    more, more_seconds = stages_of(later, config, latency_s)
    dropped = len(rows) - sum(counts.values())
    return RetryEstimate(counts, dropped, record["state"] == "done", stages, more, seconds + more_seconds)


def _reading(arguments: BuildArguments, config: Config) -> ReadingConfig:
    """Return the reading options of a retry: the fields of the last build, the limits of now, which may be higher."""
    fields = {name: value for name, value in arguments.reading.items() if name.endswith("_field")}
    return config.reading.model_copy(update=fields)


def _present(store: Store, base_id: str | None) -> str | None:
    """Return the base of a build; empty, for the current snapshot, if it was pruned or forgotten since, or damaged."""
    if not base_id:
        return base_id
    try:
        open_snapshot(store, base_id)
    except (SnapshotCorrupt, SnapshotNotFound):
        return ""
    return base_id


def check_same_configuration(before: Mapping[str, Any], now: Mapping[str, Any], uri: str) -> None:
    """Compare what decides the content of two builds (`Build.decisive`): another configuration has no dead letters yet.

    Raises:
        ConfigError: they differ; the message lists the differences.
    """
    if changes := configuration_changes(before, now):
        raise ConfigError(
            f"this is not the configuration of the last build of {uri}: {changes}. `hirag-dist retry` asks again what "
            "that build asked: give the --config and --set of that build; `hirag-dist index` builds with another "
            "configuration"
        )


def configuration_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return the differences of what decides the content of two builds, the first few, for a message; "" for none."""
    return in_short(differences(before, now))


def _arguments(given: Mapping[str, Any] | None, store: Store) -> BuildArguments:
    if given is None:
        raise InputError(
            f"the last build of {store.uri} did not note its INPUT; run `hirag-dist index INPUT --index {store.uri}` "
            "once more"
        )
    lists = {
        "left_out": tuple((unit, reason) for unit, reason in given["left_out"]),
        "inputs": tuple(given["inputs"]),
        "removed": tuple(given.get("removed", ())),
        "sources": tuple(given.get("sources", ())),
    }
    return BuildArguments(**{**given, **lists})
