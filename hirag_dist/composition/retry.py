"""Repetition of the last build of an index: refused units get new attempts, everything else is reused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hirag_dist.composition.build_records import BuildArguments, last_build, no_build
from hirag_dist.composition.indexing import BuildOptions, IndexResult, execute_build, read_import
from hirag_dist.config.model import Config, ReadingConfig
from hirag_dist.errors import ConfigError, InputError
from hirag_dist.indexing.pipeline import Build, BuildResult
from hirag_dist.protocols import EventListener
from hirag_dist.storage.store import Store

_MAX_CHANGES_SHOWN = 5


def run_retry(
    index_uri: str, config: Config, options: BuildOptions | None = None, listeners: Sequence[EventListener] = ()
) -> IndexResult:
    """Send the dead letters of the last build to the models again, complete the build, and publish a new snapshot.

    Args:
        config: the configuration of that build; its reading options are taken from the record.
        index_uri, options, listeners: see `composition.indexing.run_build`.

    Raises:
        SnapshotNotFound: there is no record of a build.
        ConfigError: the configuration is not that of the last build.
        HiragError: see `composition.indexing.run_build`.
    """
    options = options or BuildOptions()
    store = Store(index_uri)
    record = last_build(store)
    if record is None:
        raise no_build(store)
    arguments = _arguments(record, store)
    config = config.model_copy(update={"reading": ReadingConfig.model_validate(arguments.reading)})
    previous = record.get("decisive")  # empty if its models could not be probed: then there is nothing to differ from

    def work(build: Build) -> BuildResult:
        if arguments.command == "index":
            return build.index(arguments.inputs, options.require_complete)
        return build.index_graph(read_import(arguments.folder, config, arguments.communities == "keep"))

    def check(build: Build) -> None:
        if previous:
            check_same_configuration(previous, build.decisive(), store.uri)

    return execute_build(config, store, "retry", arguments, options, work, listeners, check)


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
    old, new = _flatten(before), _flatten(now)
    if not (old.get("kernels") and new.get("kernels")):  # unknown until a worker with a GPU names them
        new["kernels"] = old.get("kernels", "")
    changes = [
        f"{key}: {old.get(key, 'not there')} → {new.get(key, 'not there')}"
        for key in sorted(old | new)
        if old.get(key) != new.get(key) and key != "config.max_reject_ratio"
    ]
    n_hidden = len(changes) - _MAX_CHANGES_SHOWN
    more = f" and {n_hidden} more" if n_hidden > 0 else ""
    return "; ".join(changes[:_MAX_CHANGES_SHOWN]) + more


def _arguments(record: Mapping[str, Any], store: Store) -> BuildArguments:
    given = record.get("given")
    if given is None:
        raise InputError(
            f"the last build of {store.uri} did not note its INPUT; run `hirag-dist index INPUT --index {store.uri}` "
            "once more"
        )
    left_out = tuple((unit, reason) for unit, reason in given["left_out"])
    inputs, communities = tuple(given["inputs"]), given.get("communities", "new")
    return BuildArguments(given["command"], inputs, given["folder"], given["reading"], left_out, communities)


def _flatten(values: Any, prefix: str = "") -> dict[str, str]:
    if isinstance(values, Mapping):
        flat: dict[str, str] = {}
        for key, value in values.items():
            flat |= _flatten(value, f"{prefix}.{key}" if prefix else str(key))
        return flat
    return {prefix: ", ".join(map(str, values)) if isinstance(values, (list, tuple)) else str(values)}
