"""Dead letters of the last build: asked again, with what that would cost, or dropped. The rest is reused."""

from __future__ import annotations

import getpass
import shlex
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from hirag_dist.application.build import BuildOptions, execute_build, read_import
from hirag_dist.application.index_result import IndexResult
from hirag_dist.composition.build_records import (
    IN_SHORT,
    BuildArguments,
    dead_letters,
    last_build,
    no_build,
    published,
    repeated,
)
from hirag_dist.config.model import Config
from hirag_dist.errors import ConfigError, InputError, SnapshotCorrupt, SnapshotError, SnapshotNotFound
from hirag_dist.execution.stage_results import DroppedLetter, Drops, add_drops, load_drops
from hirag_dist.indexing.base import differences, in_short
from hirag_dist.indexing.changed_documents import DocumentSelection
from hirag_dist.indexing.pipeline import Build, BuildResult
from hirag_dist.indexing.publish import republish
from hirag_dist.protocols import EventListener
from hirag_dist.readers import check_inputs
from hirag_dist.storage.layout import BUILD, DROPPED, MANIFEST, snapshot_path
from hirag_dist.storage.lock import BuildLock
from hirag_dist.storage.snapshot.manifest import Manifest, parse_manifest
from hirag_dist.storage.snapshot.reader import Snapshot, current_id, open_snapshot, read_current
from hirag_dist.storage.snapshot.writer import make_current
from hirag_dist.storage.store import Store


def run_retry(
    index_uri: str, config: Config, options: BuildOptions | None = None, listeners: Sequence[EventListener] = ()
) -> IndexResult:
    """Send the dead letters of the last build to the models again, complete the build, and publish a new snapshot.

    Args:
        config: the configuration of that build; the fields of records are taken from the record of it.

    Raises:
        SnapshotNotFound: there is no record of a build.
        ConfigError: the configuration is not that of the last build.
    """
    store = Store(index_uri)
    record = last_build(store)
    if record is None:
        raise no_build(store)
    repeats = repeated(record)
    arguments = _arguments(repeats["given"], store)
    check_inputs(arguments.inputs)
    # fields and encoding of that build, unless an encoding is named now; limits of now, which may be higher
    reading: dict[str, Any] = {name: value for name, value in arguments.reading.items() if name.endswith("_field")}
    reading["encoding"] = config.reading.encoding or arguments.reading.get("encoding")
    config = config.model_copy(update={"reading": config.reading.model_copy(update=reading)})
    previous = record.get("decisive")  # empty if its models could not be probed: then there is nothing to differ from
    fields = record.get("config", {}).get("metadata")  # None where a former version wrote the record

    def work(build: Build) -> BuildResult:
        if record["state"] == "done" and _is_complete(store, record["snapshot"]):
            return build.unchanged()
        match arguments.command:
            case "index":
                return build.index(arguments.inputs)
            case "add":
                return build.add(arguments.inputs)
            case "remove":
                return build.remove(DocumentSelection(arguments.removed, arguments.sources))
            case "refresh":
                return build.refresh(all_reports=arguments.all_reports)
            case "reembed":
                return build.reembed()
        return build.index_graph(read_import(arguments.folder, config, arguments.communities == "keep"))

    def check(build: Build) -> None:
        if previous:
            # Metadata fields are not in `Build.decisive`: an update takes other ones without a build from nothing.
            now = config.metadata.model_dump(mode="json") if fields is not None else None
            check_same_configuration({**previous, "metadata": fields}, build.decisive() | {"metadata": now}, store.uri)

    base_id = _present(store, repeats["base"])
    return execute_build(config, store, "retry", arguments, options, work, listeners, check, base_id)


def _is_complete(store: Store, snapshot_id: str) -> bool:
    """Return whether a snapshot is the current one, whole, and has no dead letter, accepted ones included."""
    if current_id(store) != snapshot_id:
        return False
    try:
        counts = open_snapshot(store, full_check=store.local is not None).manifest.counts
    except SnapshotError:
        return False
    return not counts["rejects"] and not counts.get(DROPPED)


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
    if changes := in_short(differences(before, now)):
        raise ConfigError(
            f"this is not the configuration of the last build of {uri}: {changes}. `hirag-dist retry` asks again what "
            "that build asked: give the --config and --set of that build; `hirag-dist index` builds with another "
            "configuration"
        )


def _arguments(given: Mapping[str, Any] | None, store: Store) -> BuildArguments:
    if given is None:
        raise InputError(
            f"the last build of {store.uri} did not note its INPUT; run `hirag-dist index INPUT --index "
            f"{store.quoted}` once more"
        )
    lists = {
        "left_out": tuple((unit, reason) for unit, reason in given["left_out"]),
        "inputs": tuple(given["inputs"]),
        "removed": tuple(given.get("removed", ())),
        "sources": tuple(given.get("sources", ())),
    }
    return BuildArguments(**{**given, **lists})


_LETTERS = ("rejects", DROPPED)  # tables


@dataclass(frozen=True, slots=True)
class LetterSelection:
    """Selection of dead letters to drop.

    Attributes:
        stage: of this stage only; None for all.
        units: these only; empty for all.
    """

    stage: str | None = None
    units: tuple[str, ...] = ()
    why: str = ""

    def __contains__(self, letter: Mapping[str, Any]) -> bool:
        of_stage = self.stage is None or letter["stage"] == self.stage
        return of_stage and (not self.units or letter["unit_id"] in self.units)


@dataclass(frozen=True, slots=True)
class DropResult:
    """Outcome of dropping dead letters.

    Attributes:
        letters: that were dropped now: rows with the columns `IN_SHORT`.
        n_open: dead letters that are left.
        manifest: of the last build's snapshot with all drops; None where that build has published none.
        current: the snapshot that is served now.
    """

    letters: tuple[Mapping[str, Any], ...]
    n_open: int
    manifest: Manifest | None
    current: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON-ready values, a part of the output of `hirag-dist retry --drop --json`."""
        return {
            "dropped": [{key: letter[key] for key in ("stage", "unit_id", "reason")} for letter in self.letters],
            "dead_letters": self.n_open,
            "snapshot": self.manifest and self.manifest.snapshot_id,
            "current": self.current,
            "complete": self.manifest is not None and self.manifest.complete,
        }


def run_drop(index_uri: str, selection: LetterSelection, wait_s: float = 0.0) -> DropResult:
    """Accept the loss of dead letters of the last build, under the build lock; no model is called."""
    store = Store(index_uri)
    if last_build(store) is None and current_id(store) is None:
        raise no_build(store)
    with BuildLock(store, wait_s) as lock:
        return drop_letters(store, lock, selection)


def drop_letters(store: Store, lock: BuildLock, selection: LetterSelection) -> DropResult:
    """Accept the loss of the chosen letters of the last build, and publish its snapshot with all accepted losses.

    Where nothing is left to choose, but the snapshot lacks losses that were accepted, it is still published: a command
    that was killed in between is made good by giving it again.

    Args:
        lock: held by the caller.

    Raises:
        InputError: nothing is chosen and nothing is to be published, or a unit is no dead letter: a mistyped id must
            not pass for a decision.
    """
    record = last_build(store)
    letters = dead_letters(store, record, load_drops(store), IN_SHORT)
    still_open = [letter for letter in letters if letter["dropped"] is None]
    chosen = tuple(letter for letter in still_open if letter in selection)
    unknown = set(selection.units) - {letter["unit_id"] for letter in letters if letter in selection}
    if unknown:
        raise InputError(_no_match(f"unit {', '.join(sorted(unknown))}", still_open, store.uri))
    if chosen:
        by, at = f"{_user()}@{socket.gethostname()}", datetime.now(UTC).isoformat(timespec="seconds")
        with lock.fenced():
            add_drops(store, (DroppedLetter(one["stage"], one["unit_id"], by, at, selection.why) for one in chosen))
    manifest, changed = _publish(store, lock, record)
    if not chosen and not changed:
        if still_open:
            units = ", ".join(sorted(selection.units))
            selected = f"unit {units}" if units else f"stage {selection.stage!r}"
            raise InputError(_no_match(selected, still_open, store.uri))
        raise InputError(f"{store.uri} has no dead letters to drop")
    return DropResult(chosen, len(still_open) - len(chosen), manifest, current_id(store))


def _publish(store: Store, lock: BuildLock, record: Mapping[str, Any] | None) -> tuple[Manifest | None, bool]:
    """Publish the last build's snapshot with the accepted losses; return its manifest, and whether anything changed.

    It goes live where what is served is this snapshot, or this one but for its letters: then an earlier command was
    killed before it could note in the record what it had published. Another current snapshot stays: it was set by hand.
    """
    snapshot_id = published(store, record)
    if snapshot_id is None:
        return None, False
    before = read_current(store)
    served = before.snapshot_id
    is_live = served is not None and _same_but_for_letters(store, served, snapshot_id)
    snapshot = open_snapshot(store, served if is_live else snapshot_id)
    drops = load_drops(store)
    manifest = snapshot.manifest if _agrees(snapshot, drops) else republish(store, snapshot.manifest.snapshot_id, drops)
    changed = False
    with lock.fenced():
        if is_live and served != manifest.snapshot_id:
            make_current(store, manifest.snapshot_id, before)
            changed = True
        if record is not None and snapshot_id != manifest.snapshot_id:
            store.write_json(BUILD, store.read_json(BUILD) | {"snapshot": manifest.snapshot_id})
            changed = True
    return manifest, changed


def _same_but_for_letters(store: Store, one: str, other: str) -> bool:
    contents = []
    for snapshot_id in (one, other):
        path = f"{snapshot_path(snapshot_id)}/{MANIFEST}"
        if not store.exists(path):
            return False
        manifest = parse_manifest(store.read_bytes(path), path)
        content = {name: digest for name, digest in manifest.content.items() if name not in _LETTERS}
        contents.append((content, manifest.embedder, manifest.dim))
    return contents[0] == contents[1]


def _agrees(snapshot: Snapshot, drops: Drops) -> bool:
    """Return whether a snapshot has as dropped what is dropped, and nothing else."""
    for name in _LETTERS:
        letters = snapshot.table(name, ["stage", "unit_id"]).to_pylist()
        if any(((row["stage"], row["unit_id"]) in drops) != (name == DROPPED) for row in letters):
            return False
    return True


def _no_match(selected: str, still_open: list[dict[str, Any]], uri: str) -> str:
    stages = ", ".join(sorted({letter["stage"] for letter in still_open})) or "no stage"
    return (
        f"no open dead letter is of {selected}; there are {len(still_open)}, of: {stages}; "
        f"`hirag-dist status --index {shlex.quote(uri)} --letters` shows them"
    )


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run under a number without a name
        return "unknown"
