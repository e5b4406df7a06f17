"""Records of builds, with their arguments, stages and usage: build.json of the last one, and those of earlier ones."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from hirag_dist.config.model import Config
from hirag_dist.errors import BudgetReached, HiragError, SnapshotError, SnapshotNotFound, StoreError
from hirag_dist.execution.events import (
    CallsProgress,
    KernelsResolved,
    StageFailedEvent,
    StageFinished,
    StageStarted,
    TaskFinished,
    UsageBill,
    UsageRecorded,
)
from hirag_dist.execution.stage_results import Drops, letter_rows, split_letters, stage_letters
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.schemas import REJECTS
from hirag_dist.storage.layout import BUILD, BUILDS, DROPPED, MANIFEST, snapshot_path
from hirag_dist.storage.lock import BuildLock
from hirag_dist.storage.snapshot.fallback import open_current
from hirag_dist.storage.snapshot.reader import current_id, open_snapshot
from hirag_dist.storage.store import Store

logger = logging.getLogger(__name__)
KEPT = 20  # records of earlier builds
IN_SHORT = ("stage", "unit_id", "reason", "attempts")  # columns of REJECTS
_WRITE_EVERY_S = 1.0
_LEAST_TOKENS = 100  # of replies, below which a speed means nothing


@dataclass(frozen=True)
class BuildArguments:
    """Arguments of a build, with which `retry` repeats it.

    Attributes:
        command: index, add, remove, refresh, reembed or import.
        inputs: INPUT arguments that mean the same from any folder, without credentials.
        folder: what was imported; empty for none.
        reading: the reading options in force.
        left_out: (what, why) of what an import could not take over.
        communities: new, or keep where an import took those of its folder over.
        removed, sources: ids and glob patterns of documents to remove.
        rebuild: whether an index that existed was built from nothing.
        all_reports: of a refresh: write reports too that `communities.report_share` leaves out.
    """

    command: str
    inputs: tuple[str, ...]
    folder: str
    reading: Mapping[str, Any]
    left_out: tuple[tuple[str, str], ...] = ()
    communities: str = "new"
    removed: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    rebuild: bool = False
    all_reports: bool = False

    @classmethod
    def of(
        cls, command: str, config: Config, inputs: Sequence[str] = (), folder: str = "", **others: Any
    ) -> BuildArguments:
        """Return the arguments of a command, with INPUT or the imported folder as they were given."""
        from hirag_dist.indexing.inputs import portable_uri  # builds only: a question imports nothing of them

        imported = portable_uri(folder) if folder else ""
        return cls(command, tuple(map(portable_uri, inputs)), imported, config.reading.model_dump(), **others)


class BuildRecord:
    """Event listener that writes build.json; `status` reads it during the build and after it."""

    def __init__(
        self,
        store: Store,
        action: str,
        given: BuildArguments,
        config: Config,
        decisive: Mapping[str, Any],
        limits: Mapping[str, float | None],
        clock: Callable[[], float] = time.monotonic,
        fence: Callable[[], AbstractContextManager[None]] = nullcontext,
        base: str | None = "",
        begun: datetime | None = None,
        bill: UsageBill | None = None,
    ) -> None:
        """Begin a record; the one of the build before moves to builds/.

        Args:
            decisive: all that decides the content (`Build.decisive`).
            fence: entered around every write; raises where another build has the index.
            base: the snapshot that an update starts from; None for none; empty: the current one.
            begun: when the run began; None: now.
            bill: Bill of the index, with the rows that earlier runs paid; None: these are not known.
        """
        self._store = store
        self._fence = fence
        self._clock = clock
        self._stages: dict[str, dict[str, Any]] = {}
        self._meters: dict[str, UsageMeter] = {}
        self._outside: dict[str, UsageMeter] = {}
        self._sent = UsageMeter()
        self._bill = bill or UsageBill()
        begun = begun or datetime.now(UTC)
        self._record: dict[str, Any] = {
            "id": begun.strftime("%Y%m%dT%H%M%S.%fZ"),
            "state": "running",
            "started_at": begun.isoformat(timespec="seconds"),
            "action": action,
            "given": asdict(given),
            "base": current_id(store) if base == "" else base,
            "config": config.model_dump(mode="json"),  # secrets are masked
            "decisive": dict(decisive),
            "limits": dict(limits),
        }
        with suppress(StoreError):  # a damaged record must not keep anybody from building
            if store.exists(BUILD):
                before = store.read_json(BUILD)
                store.write_json(f"{BUILDS}/{_id_of(before)}.json", before)
            for name in store.names(BUILDS)[:-KEPT]:
                store.delete(f"{BUILDS}/{name}")
        self._write()

    def __call__(self, event: object) -> None:
        """Note what happened."""
        if isinstance(event, StageStarted):
            self._meters[event.label] = UsageMeter()
            self._stages[event.label] = {
                "stage": event.label,
                "state": "running",
                "kept": False,
                "folder": event.folder,
                "rows": event.n_rows,
                "rows_done": event.n_rows_done,
                "rejects": 0,
                "seconds": 0.0,
            }
        elif isinstance(event, TaskFinished):
            stage = self._stages[event.label]
            stage["rows_done"] += event.n_rows
            stage["rejects"] += event.rejects
            self._spent(event.label, event.usage)
        elif isinstance(event, CallsProgress):
            if stage_now := self._stages.get(event.label):  # a killed build reports no usage of its unfinished tasks
                stage_now["calls"] = {"answered": event.calls.answered, "tokens": event.calls.tokens}
        elif isinstance(event, UsageRecorded):
            self._sent.add(event.usage)
            self._outside.setdefault(event.label, UsageMeter()).add(event.usage)
        elif isinstance(event, KernelsResolved):
            self._record["decisive"]["kernels"] = event.name
        elif isinstance(event, StageFailedEvent):
            self._stages[event.label]["state"] = "stopped"
            self._stages[event.label].pop("calls", None)  # the usage has them
            self._spent(event.label, event.usage)
        elif isinstance(event, StageFinished):
            self._meters[event.label] = event.usage
            self._stages[event.label] = {
                "stage": event.label,
                "state": "kept" if event.reused else "done",
                "kept": event.reused,
                "folder": event.folder,
                "rows": event.n_rows,
                "rows_done": event.n_rows,
                "rejects": event.rejects,
                "dropped": event.dropped,
                "seconds": round(event.seconds, 3),
            }
        if self._clock() - self._written >= _WRITE_EVERY_S:
            self._write()

    def close(self, state: str, **facts: Any) -> None:
        """Write the end of the build: done, failed, stopped (by a spending limit) or interrupted."""
        self._record |= {"state": state, "ended_at": datetime.now(UTC).isoformat(timespec="seconds")} | facts
        self._write()

    def close_published(self, snapshot_id: str) -> None:
        """Write the end of a build that published a snapshot, or left that of the build before as it was.

        Then the record takes over the stages of that build, whose dead letters are still there, and what a retry
        repeats.
        """
        before = self._build_of(snapshot_id) if snapshot_id == self._record["base"] else None
        if before is not None:
            self._record["repeats"] = repeated(before)
            kept = {stage["stage"]: stage | {"state": "kept", "kept": True} for stage in before["stages"]}
            meters = {label: UsageMeter.from_rows(stage.pop("usage")) for label, stage in kept.items()}
            self._stages, self._meters = kept | self._stages, meters | self._meters
        self.close("done", snapshot=snapshot_id)

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Write the end of the build if the block raises."""
        try:
            yield
        except BaseException as error:
            state, outcome = _ending(error)
            with suppress(StoreError):  # a full disk is what the failure itself tells
                self.close(state, **outcome)
            raise

    def _build_of(self, snapshot_id: str) -> dict[str, Any] | None:
        """Return the record of the last build before this one that published a snapshot."""
        for name in reversed(self._store.names(BUILDS)):
            with suppress(StoreError):  # a damaged record is none
                record: dict[str, Any] = self._store.read_json(f"{BUILDS}/{name}")
                if record.get("snapshot") == snapshot_id and record.get("given"):
                    return record
        return None

    def _spent(self, label: str, usage: UsageMeter) -> None:
        self._meters[label].add(usage)
        self._sent.add(usage)

    def _write(self) -> None:
        stages = [stage | {"usage": self._meters[label].rows()} for label, stage in self._stages.items()]
        outside = [{"stage": label} | row for label, meter in self._outside.items() for row in meter.rows()]
        with self._fence():
            self._store.write_json(
                BUILD,
                self._record
                | {"stages": stages, "outside": outside, "sent": self._sent.sent_sums(), "bill": self._bill.paid()},
            )
        self._written = self._clock()


def note_not_begun(
    store: Store,
    action: str,
    given: BuildArguments,
    config: Config,
    limits: Mapping[str, float | None],
    sent: UsageMeter,
    error: BaseException,
    begun: datetime,
    fence: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> None:
    """Put on record a run that ended before any stage: its models could not be asked what they can.

    The record of the build before stays, with the run as its `attempt`: its dead letters can still be asked again or
    dropped.
    """
    before = None
    with suppress(StoreError):  # a damaged record is none
        before = last_build(store)
    state, outcome = _ending(error)
    if before is None:
        record = BuildRecord(store, action, given, config, {}, limits, fence=fence, begun=begun)
        record(UsageRecorded("probes", sent))
        record.close(state, **outcome)
        return
    attempt = {
        "state": state,
        "started_at": begun.isoformat(timespec="seconds"),
        "action": action,
        "given": asdict(given),
        "limits": dict(limits),
        "sent": sent.sent_sums(),
    }
    bill = UsageBill()
    bill.earlier = before.get("bill")
    bill(UsageRecorded("probes", sent))
    with fence():
        store.write_json(BUILD, before | {"attempt": attempt | outcome, "bill": bill.paid()})


def _ending(error: BaseException) -> tuple[str, dict[str, str]]:
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", {}
    if isinstance(error, BudgetReached):
        return "stopped", {"error": str(error)}
    return "failed", {"error": str(error) if isinstance(error, HiragError) else f"{type(error).__name__}: {error}"}


def last_build(store: Store) -> dict[str, Any] | None:
    """Return the record of the last build, None where there is none or it is damaged.

    A killed build has the state `killed`.
    """
    record = read_record(store, BUILD)
    if record is None:
        return None
    if record["state"] == "running" and not BuildLock(store).is_held():
        record["state"] = "killed"
    return record


def recorded_embedder(store: Store) -> str | None:
    """Return the embedder of an index: of its last build, which may be unfinished, else of its current snapshot.

    An unfinished `index --reembed` does not count: the index still has the former embedder.
    """
    with suppress(StoreError):  # a damaged record is none
        record = last_build(store) or {}
        is_open = (record.get("given") or {}).get("command") == "reembed" and record["state"] != "done"
        if not is_open and (name := (record.get("decisive") or {}).get("embedder")):
            return str(name)
    with suppress(SnapshotError):  # of another version, or damaged: a build makes a new one
        if current_id(store) is not None:
            return open_current(store, warn=False).manifest.embedder
    return None


def recorded_label_field(store: Store) -> tuple[str, str | None]:
    """Return the field of labels that the latest builds on record named, and the snapshot that was built without one.

    The field is empty where none was named since a build from nothing; the snapshot is that of this build, None where
    the records do not reach so far.
    """
    last = last_build(store)
    for record in [*([] if last is None else [last]), *earlier_builds(store)]:
        given = record.get("given") or {}
        if record["state"] != "done":
            continue
        if given.get("command") in ("index", "add") and (field := (given.get("reading") or {}).get("label_field")):
            return str(field), None
        if given.get("rebuild") or given.get("command") == "import":
            return "", record.get("snapshot")
    return "", None


def repeated(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return `given` and `base` of the build that a retry repeats: the last one that was not without changes."""
    return record.get("repeats") or {"given": record.get("given"), "base": record.get("base")}


def no_build(store: Store) -> SnapshotNotFound:
    """Return the error for an index without a record of a build."""
    return SnapshotNotFound(
        f"{store.uri} holds no record of a build to retry; `hirag-dist index INPUT --index {store.quoted}` builds one"
    )


def earlier_builds(store: Store) -> list[dict[str, Any]]:
    """Return the records of the builds before the last one, newest first."""
    last = last_build(store)
    records = (read_record(store, f"{BUILDS}/{name}") for name in reversed(store.names(BUILDS)))
    found = [record for record in records if record is not None]
    for record in found:
        if record["state"] == "running":
            record["state"] = "killed"
    return [record for record in found if last is None or _id_of(record) != _id_of(last)]


def last_finished(store: Store) -> dict[str, Any] | None:
    """Return the record of the latest build that published its snapshot, None without one."""
    last = last_build(store)
    builds = [*([] if last is None else [last]), *earlier_builds(store)]
    return next((record for record in builds if record["state"] == "done"), None)


def build_usage(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the bill of a build so far, a row for each stage, role, model and endpoint."""
    of_stages = ({"stage": stage["stage"]} | row for stage in record["stages"] for row in stage["usage"])
    return [*record.get("outside", ()), *of_stages]


def published(store: Store, record: Mapping[str, Any] | None) -> str | None:
    """Return the snapshot that the last build published, None where it has not; without a record, the current one."""
    snapshot_id = current_id(store) if record is None else record.get("snapshot")
    return snapshot_id if snapshot_id is not None and store.exists(f"{snapshot_path(snapshot_id)}/{MANIFEST}") else None


def dead_letters(
    store: Store, record: Mapping[str, Any] | None, drops: Drops, columns: Sequence[str] = REJECTS.names
) -> list[dict[str, Any]]:
    """Return the dead letters of the last build, finished or not: rows of REJECTS, and `dropped`.

    Args:
        columns: of REJECTS, `stage` and `unit_id` among them. `request` and `reply` are all but the whole size of a
            letter: `IN_SHORT` is without them.
    """
    found = None if record is None else _stage_letters(store, record, columns)
    letters = pa.table({}) if found is None else found
    snapshot_id = published(store, record)
    if snapshot_id is not None:
        try:
            snapshot = open_snapshot(store, snapshot_id)
            published_letters = [snapshot.table(name, columns) for name in ("rejects", DROPPED)]
            letters = _with_others(found, pa.concat_tables(published_letters))
        except SnapshotError:
            if found is None:
                raise
    return letter_rows(*split_letters(letters, drops)) if letters.num_columns else []


def _with_others(found: pa.Table | None, letters: pa.Table) -> pa.Table:
    """Return letters of stages, and those that an update took over from its base without asking again."""
    if found is None:
        return letters
    units = set(zip(found["stage"].to_pylist(), found["unit_id"].to_pylist(), strict=True))
    pairs = zip(letters["stage"].to_pylist(), letters["unit_id"].to_pylist(), strict=True)
    others = letters.filter(pa.array([pair not in units for pair in pairs], pa.bool_()))
    return pa.concat_tables([found, others.cast(found.schema)])


def _stage_letters(store: Store, record: Mapping[str, Any], columns: Sequence[str]) -> pa.Table | None:
    """Return the letters that the stages left in work/, None where they are no longer there.

    A snapshot's may be older: it stays as it is while only the tries of its letters change.
    """
    left_out = [
        {"stage": "import", "unit_id": what, "reason": why, "attempts": 1, "request": "", "reply": ""}
        for what, why in record.get("given", {}).get("left_out", ())
    ]
    found = [pa.Table.from_pylist(left_out, REJECTS).select(columns)]
    for stage in record.get("stages", ()):
        finished = stage["state"] in ("done", "kept")
        if stage["rejects"] or stage.get("dropped") or not finished:
            if finished and not store.exists(stage["folder"]):
                return None
            found.append(stage_letters(store, stage["folder"], columns))
    return pa.concat_tables(found)


def _id_of(record: Mapping[str, Any]) -> str:
    return str(record.get("id") or record["started_at"].replace(":", "").replace("-", ""))


def recorded_speeds(store: Store) -> dict[str, float]:
    """Return endpoint → tokens a second of its replies, all calls together, in the latest build that asked it."""
    last = last_build(store)
    found: dict[str, float] = {}
    for record in reversed([*([] if last is None else [last]), *earlier_builds(store)]):
        found |= measured_speeds(record.get("stages", ()))
    return found


def measured_speeds(stages: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return endpoint → tokens a second in the stages of a build whose replies were all asked for by it."""
    tokens: dict[str, int] = {}
    seconds: dict[str, float] = {}
    for stage in stages:
        for row in stage["usage"]:
            if stage.get("kept") or row["ledger_hits"] or not row["output_tokens"]:
                continue
            name = row["endpoint"]
            tokens[name] = tokens.get(name, 0) + row["output_tokens"]
            seconds[name] = seconds.get(name, 0.0) + stage["seconds"]
    return {name: n / seconds[name] for name, n in tokens.items() if n >= _LEAST_TOKENS and seconds[name]}


def read_record(store: Store, path: str) -> dict[str, Any] | None:
    """Return a record, None where there is none or it is damaged.

    Raises:
        StoreError: it cannot be read.
    """
    if not store.exists(path):
        return None
    try:
        record = json.loads(store.read_bytes(path))
        return record if "state" in record and "started_at" in record else None
    except (TypeError, ValueError) as error:
        logger.warning("%s/%s is damaged and counts as not there: %s", store.uri, path, error)
        return None
