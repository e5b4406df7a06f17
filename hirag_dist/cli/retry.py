"""`hirag-dist retry`: dead letters asked again, or given up by decision; then a new snapshot."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from hirag_dist.cli._build import BuildOptions, build, conclude, summary
from hirag_dist.cli._build_records import BuildArguments, last_build
from hirag_dist.cli._drop import LetterSelection, drop_letters
from hirag_dist.cli._options import (
    BatchOption,
    ConfigOption,
    ExecutorOption,
    IndexOption,
    JsonOption,
    MakeCurrentOption,
    MaxTokensOption,
    MaxUsdOption,
    SetOption,
    WaitOption,
    WorkersOption,
    configuration,
    running,
)
from hirag_dist.cli._output import emit, err, out, use_json
from hirag_dist.config.model import Config, ReadingConfig
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.core.text.tokens import counter
from hirag_dist.errors import ConfigError, InputError, SnapshotNotFound
from hirag_dist.indexing.pipeline import Build, BuildResult
from hirag_dist.interop.importers import read_working_folder
from hirag_dist.storage.lock import BuildLock
from hirag_dist.storage.snapshot.reader import current_id
from hirag_dist.storage.store import Store


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("retry")(retry)


def retry(
    index: IndexOption,
    config: ConfigOption = None,
    settings: SetOption = None,
    executor: ExecutorOption = None,
    workers: WorkersOption = None,
    max_usd: MaxUsdOption = None,
    max_tokens: MaxTokensOption = None,
    batch: BatchOption = False,
    require_complete: Annotated[bool, typer.Option(help="Publish nothing while there are dead letters.")] = False,
    drop: Annotated[bool, typer.Option("--drop", help="Accept the loss instead; no model is asked.")] = False,
    stage: Annotated[str | None, typer.Option(help="With --drop: only letters of this stage.")] = None,
    unit: Annotated[list[str] | None, typer.Option(help="With --drop: only this unit; may be repeated.")] = None,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="With --drop: why, for the record.")] = "",
    wait: WaitOption = 0.0,
    make_current: MakeCurrentOption = False,
    json: JsonOption = False,
) -> None:
    """Ask again about the dead letters of the last build, go on with it, and publish a new snapshot.

    It reads the INPUT of that build and wants its configuration: give the same --config and --set. Replies that were
    good are not paid again. With --drop the loss is accepted: such letters count no longer, and are not asked again.
    """
    use_json(json)
    started = time.perf_counter()
    if not drop and (stage or unit or reason):
        raise ConfigError("--stage, --unit and --reason say what is dropped: give --drop with them")
    store = Store(index)
    record = last_build(store)
    if record is None and (not drop or current_id(store) is None):
        raise SnapshotNotFound(
            f"{store.uri} holds no record of a build to retry; `hirag-dist index INPUT --index {store.uri}` builds one"
        )
    if drop:
        _drop(store, LetterSelection(stage, tuple(unit or ()), reason), wait, json)
        return
    assert record is not None
    loaded = configuration(config, settings, running(executor, workers, batch)).config
    given = _given(record, store)
    loaded = loaded.model_copy(update={"reading": ReadingConfig.model_validate(given.reading)})
    order = BuildOptions("retry", given, max_usd, max_tokens, retry=True, wait_s=wait, forward=make_current)
    work = _work(given, loaded, require_complete)

    def same(made: Build) -> None:
        if before := record.get("decisive"):  # else its models could not be asked: there is nothing yet to differ from
            _check_same(before, made.decisive(), store.uri)

    result, sent = build(loaded, store, order, work, bars=not json, check=same)
    conclude(summary(store, result, sent, time.perf_counter() - started), json)


def _given(record: Mapping[str, Any], store: Store) -> BuildArguments:
    found = record.get("given")
    if found is None:
        raise InputError(
            f"the last build of {store.uri} did not note its INPUT; run `hirag-dist index INPUT --index {store.uri}` "
            "once more"
        )
    left_out = tuple((what, why) for what, why in found["left_out"])
    inputs, communities = tuple(found["inputs"]), found.get("communities", "new")
    return BuildArguments(found["command"], inputs, found["folder"], found["reading"], left_out, communities)


def _work(given: BuildArguments, config: Config, require_complete: bool) -> Callable[[Build], BuildResult]:
    if given.command == "index":
        return lambda made: made.index(given.inputs, require_complete)
    graph = read_working_folder(given.folder, counter(config.tokenizer), given.communities == "keep")
    return lambda made: made.index_graph(graph)


def _check_same(before: Mapping[str, Any], now: Mapping[str, Any], uri: str) -> None:
    """Refuse another configuration: what it asks is another build's, and has no dead letters yet.

    Raises:
        ConfigError: something that decides the content is not as it was; says what.
    """
    old, new = _flat(before), _flat(now)
    if not (old.get("kernels") and new.get("kernels")):  # not known until a worker with a GPU says it
        new["kernels"] = old.get("kernels", "")
    changes = [
        f"{key}: {old.get(key, 'not there')} → {new.get(key, 'not there')}"
        for key in sorted(old | new)
        if old.get(key) != new.get(key) and key != "config.max_reject_ratio"
    ]
    if changes:
        more = f" and {len(changes) - 5} more" if len(changes) > 5 else ""
        raise ConfigError(
            f"this is not the configuration of the last build of {uri}: {'; '.join(changes[:5])}{more}. `hirag-dist "
            "retry` asks again what that build asked: give the --config and --set of that build; `hirag-dist index` "
            "builds with another configuration"
        )


def _flat(values: Any, prefix: str = "") -> dict[str, str]:
    if isinstance(values, Mapping):
        found: dict[str, str] = {}
        for key, value in values.items():
            found |= _flat(value, f"{prefix}.{key}" if prefix else str(key))
        return found
    return {prefix: ", ".join(map(str, values)) if isinstance(values, (list, tuple)) else str(values)}


def _drop(store: Store, choice: LetterSelection, wait_s: float, json: bool) -> None:
    with BuildLock(store, wait_s) as lock:
        dropped = drop_letters(store, lock, choice)
    manifest = dropped.manifest
    report = {
        "index": store.uri,
        "dropped": [{key: letter[key] for key in ("stage", "unit_id", "reason")} for letter in dropped.letters],
        "dead_letters": dropped.n_open,
        "snapshot": manifest and manifest.snapshot_id,
        "current": dropped.current,
        "complete": manifest is not None and manifest.complete,
    }
    if json:
        emit(report)
    else:
        out.print(f"Dropped {count_noun(len(dropped.letters), 'dead letter')}; {dropped.n_open:,} left.")
        if manifest is not None:
            is_live = dropped.current == manifest.snapshot_id
            served = "" if is_live else f" It is not served: `current` names {dropped.current}, which stays."
            out.print(
                f"Snapshot [bold]{manifest.snapshot_id}[/bold] {'published' if is_live else 'written'}: nothing else "
                f"in it has changed.{served}"
            )
    if manifest is None:
        err.print("The last build did not finish: run it again with `hirag-dist index`, or with `hirag-dist retry`.")
    elif not manifest.complete:
        raise typer.Exit(3)
