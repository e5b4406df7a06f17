"""Dead letters for people: grouped by reason with what to change, and with the document and place of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hirag_dist.core.prompts.refusal_reasons import by_reason, remedy_of
from hirag_dist.errors import SnapshotError, StoreError
from hirag_dist.execution.part_files import read_part
from hirag_dist.execution.stage_results import stage_results
from hirag_dist.execution.task import output_path
from hirag_dist.indexing.stages.chunk import ChunkDocuments
from hirag_dist.indexing.stages.read import UniqueDocuments
from hirag_dist.storage.layout import WORK
from hirag_dist.storage.snapshot.reader import open_snapshot
from hirag_dist.storage.store import Store

_SPANS = ("chunk_id", "document_id", "position", "start", "end")
_NAMES = ("document_id", "uri", "title")
_STAGES = {"chunks": ChunkDocuments.name, "documents": UniqueDocuments.name}  # table → stage that makes it


@dataclass(frozen=True)
class LetterGroup:
    """Dead letters with one reason.

    Attributes:
        reason: of the first one; others differ by names and numbers only.
        count: number of letters.
        stages: stage → number of letters.
        remedy: what to change in the configuration; empty if nothing there helps.
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
    """Return the groups of dead letters, the largest first.

    Args:
        stages, reasons: of each letter.
        usage: rows of USAGE of the build, for the endpoints that were asked.
    """
    groups = []
    for reason, positions in by_reason(reasons).items():
        counts = Counter(stages[position] for position in positions)
        endpoint = _endpoint_of(counts.most_common(1)[0][0], usage)
        groups.append(
            LetterGroup(reason, len(positions), dict(counts), remedy_of(reason, endpoint) if endpoint else "")
        )
    return groups


def letter_places(
    store: Store, record: Mapping[str, Any] | None, snapshot_id: str | None, unit_ids: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Return the place of each unit that is a chunk: document_id, uri, title, position of the chunk, start and end.

    Args:
        record: of the build, whose work folders have the chunks of an unfinished build.
        snapshot_id: a snapshot that may have the chunks; None for none.
        unit_ids: of dead letters.
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
    return {unit: names.get(chunk["document_id"], {"uri": "", "title": ""}) | chunk for unit, chunk in chunks.items()}


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
