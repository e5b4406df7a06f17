"""Outcome of a build, for commands, Python callers and notebooks, with its dead letters by reason and place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hirag_dist.core.prompts.reply_validation import by_reason, remedy_of
from hirag_dist.core.retrieval.places import METADATA
from hirag_dist.errors import SnapshotError, StoreError
from hirag_dist.execution.dataset import read_part
from hirag_dist.execution.stage_results import stage_results
from hirag_dist.execution.task import output_path
from hirag_dist.indexing.budget import UpdateSummary
from hirag_dist.indexing.content_remarks import content_counts, first_without_entities, is_sparse
from hirag_dist.indexing.stages.read import ChunkDocuments, ReadDocuments, UniqueDocuments
from hirag_dist.llm.usage import UsageMeter, total_cost
from hirag_dist.storage.layout import WORK
from hirag_dist.storage.snapshot.manifest import Manifest
from hirag_dist.storage.snapshot.reader import open_snapshot
from hirag_dist.storage.store import Store

_SPANS = ("chunk_id", "document_id", "position", "start", "end")
_NAMES = ("document_id", "uri", "record", "title")
READING = (ReadDocuments.name, METADATA)  # stages whose dead letters are about files, not replies
_CORRECT_FILE = "correct the file, or the option that the reason names, and run the same command again"
_STAGES = {"chunks": ChunkDocuments.name, "documents": UniqueDocuments.name}  # table → stage that makes it


@dataclass(frozen=True)
class LetterGroup:
    """Dead letters with one reason.

    Attributes:
        reason: reason of the first letter; those of the others differ by names and numbers only.
        stages: stage → number of letters.
        remedy: change of the configuration, or of a file that cannot be read, that helps; empty where none does.
    """

    reason: str
    count: int
    stages: Mapping[str, int]
    remedy: str

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return asdict(self)


def letter_groups(
    stages: Sequence[str], reasons: Sequence[str], usage: Sequence[Mapping[str, Any]]
) -> list[LetterGroup]:
    """Return the groups of dead letters, the largest first; USAGE of the build tells the endpoints that were asked."""
    groups = []
    for reason, positions in by_reason(reasons).items():
        counts = Counter(stages[position] for position in positions)
        stage = counts.most_common(1)[0][0]
        endpoint = _endpoint_of(stage, usage)
        remedy = _CORRECT_FILE if stage in READING else remedy_of(reason, endpoint) if endpoint else ""
        groups.append(LetterGroup(reason, len(positions), dict(counts), remedy))
    return groups


def letter_places(
    store: Store, record: Mapping[str, Any] | None, snapshot_id: str | None, unit_ids: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Return the place of each unit that is a chunk: document_id, uri, record, title, position of chunk, start, end.

    Args:
        record: record of the last build; the work folders that it names have the chunks of an unfinished one.
        snapshot_id: a snapshot that may have the chunks; None for none.
    """
    wanted = pa.array(sorted(set(unit_ids)), pa.string())
    chunks: dict[str, dict[str, Any]] = {}
    for table in _tables(store, record, snapshot_id, "chunks", _SPANS):
        rows = table.filter(pc.is_in(table["chunk_id"], value_set=wanted)).to_pylist()
        chunks.update((row.pop("chunk_id"), row) for row in rows)
    names: dict[str, dict[str, Any]] = {}
    documents = pa.array(sorted({chunk["document_id"] for chunk in chunks.values()}), pa.string())
    if chunks:
        for table in _tables(store, record, snapshot_id, "documents", _NAMES):
            rows = table.filter(pc.is_in(table["document_id"], value_set=documents)).to_pylist()
            names.update((row["document_id"], row) for row in rows)
    return {
        unit: names.get(chunk["document_id"], {"uri": "", "record": 0, "title": ""}) | chunk
        for unit, chunk in chunks.items()
    }


def _tables(
    store: Store, record: Mapping[str, Any] | None, snapshot_id: str | None, name: str, columns: Sequence[str]
) -> Iterator[pa.Table]:
    """Yield a table of a snapshot, and the like outputs of the stages of a build; what is damaged is left out."""
    if snapshot_id is not None:
        with suppress(SnapshotError):
            yield open_snapshot(store, snapshot_id).table(name, columns)
    for stage in () if record is None else record.get("stages", ()):
        folder = stage.get("folder", "")
        if not folder.startswith(f"{WORK}/{_STAGES[name]}/"):
            continue
        for result in stage_results(store, folder).results.values():
            if result.outputs[name].rows:
                with suppress(StoreError):
                    yield read_part(store, output_path(folder, name, result), result.outputs[name].sha256, columns)


def _endpoint_of(stage: str, usage: Sequence[Mapping[str, Any]]) -> str:
    """Return the endpoint with the most refused and failed calls of a stage; empty if the stage asked no model."""
    label = stage.partition(".")[0].replace("_", " ")
    of_stage = [row for row in usage if row["stage"].startswith(label)]
    worst = max(of_stage, key=lambda row: row["rejected"] + row["failed"], default=None)
    return "" if worst is None else str(worst["endpoint"])


@dataclass(frozen=True, repr=False)
class IndexResult:
    """Outcome of a build.

    Attributes:
        changed: whether `current` names another snapshot than before.
        kept_current_id: the snapshot that stays current because `current` was set back to it; None otherwise.
        stages_run: stages that were executed; 0 if the index was up to date.
        dead_letters: open dead letters in the snapshot.
        dropped: dead letters whose loss was accepted.
        layers: rows of LAYERS, from layer 0 upwards.
        communities_by_level: Leiden level → number of communities.
        usage: rows of USAGE: the cost of the replies that the snapshot rests on, whenever they were paid.
        tokens_per_corpus_token: see `storage.snapshot.documents`.
        sent: calls that this run itself sent to models.
        seconds: wall-clock time of the run.
        update: what was done, if the build was an update of the index.
        rebuilt_because: why an existing index was built from nothing, if it was.
        up_to_date: whether the documents were those of the index, so that there was nothing to update.
        fallback: why the current snapshot could not be read, if another one was the base of the update.
        repaired: damaged files of the work folder that were found and made again.
        letter_groups: the open dead letters of the snapshot by reason, the largest group first.
        unread_files: files of INPUT that had not changed since the last build and were not opened.
    """

    index_uri: str
    manifest: Manifest
    changed: bool
    kept_current_id: str | None
    stages_run: int
    dead_letters: int
    dropped: int
    layers: tuple[Mapping[str, Any], ...]
    communities_by_level: Mapping[int, int]
    usage: tuple[Mapping[str, Any], ...]
    tokens_per_corpus_token: Mapping[str, Any] | None
    sent: UsageMeter
    seconds: float
    update: UpdateSummary | None = None
    rebuilt_because: str = ""
    up_to_date: bool = False
    fallback: str = ""
    repaired: tuple[str, ...] = ()
    letter_groups: tuple[LetterGroup, ...] = ()
    unread_files: int = 0

    @property
    def snapshot_id(self) -> str:
        """Id of the snapshot."""
        return self.manifest.snapshot_id

    @property
    def content_counts(self) -> dict[str, int]:
        """Copies of documents, entities and relations with cut descriptions, and vectors of zeros in the snapshot."""
        return content_counts(self.manifest)

    @property
    def debt(self) -> dict[str, dict[str, int]]:
        """Units and tokens that updates have put off, by kind of text."""
        note = self.manifest.update
        return {} if note is None else {kind: part.model_dump() for kind, part in note.debt.items()}

    @property
    def complete(self) -> bool:
        """True if the snapshot has no open dead letters."""
        return self.manifest.complete

    @property
    def exit_code(self) -> int:
        """Exit code of a command: 3 if there are open dead letters, or half of the documents have no entity."""
        return 0 if self.complete and not is_sparse(self.manifest) else 3

    def __repr__(self) -> str:
        counts = ", ".join(f"{self.manifest.counts[name]:,} {name}" for name in ("documents", "entities", "reports"))
        state = "complete" if self.complete else f"{self.dead_letters:,} dead letters"
        return f"<IndexResult {self.index_uri!r} snapshot {self.snapshot_id}: {counts}, {state}, {self.seconds:.1f} s>"

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON-ready values, the output of `hirag-dist index --json`."""
        return {
            "snapshot": self.snapshot_id,
            "changed": self.changed,
            "stays_current": self.kept_current_id,
            "complete": self.complete,
            "stages_run": self.stages_run,
            "seconds": round(self.seconds, 2),
            "counts": dict(self.manifest.counts),
            "missing_reports": self.manifest.missing_reports,
            "content": self.content_counts,
            "layers": list(self.layers),
            "communities_by_level": self.communities_by_level,
            "usage": list(self.usage),
            "total_usd": total_cost(row["cost_usd"] for row in self.usage),
            "tokens_per_corpus_token": self.tokens_per_corpus_token,
            "this_run": self.sent.sent_sums(),
            "dead_letters": self.dead_letters,
            "dropped": self.dropped,
            "index": self.index_uri,
            "update": None if self.update is None else self.update.to_dict(),
            "debt": self.debt,
            "rebuilt_because": self.rebuilt_because,
            "up_to_date": self.up_to_date,
            "unread_files": self.unread_files,
            "fallback": self.fallback or None,
            "repaired": list(self.repaired),
            "letters_by_reason": [group.to_dict() for group in self.letter_groups],
            "first_without_entities": first_without_entities(self.manifest),
        }
