"""The build in order: documents in, a published snapshot out."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hirag_dist.core.retrieval.places import METADATA, unit_name, unit_of
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.errors import SnapshotError, StageFailed, StoreError
from hirag_dist.execution.dataset import Dataset
from hirag_dist.execution.events import Publishing
from hirag_dist.execution.stage_results import split_letters
from hirag_dist.indexing.base import (
    CHANGED_CONFIGURATION,
    NO_STATE,
    UpdateBase,
    check_embedder,
    content_config,
    find_base,
    open_base,
)
from hirag_dist.indexing.budget import UpdateSummary
from hirag_dist.indexing.changed_documents import (
    ChangedDocuments,
    DocumentSelection,
    changed_documents,
    has_others,
    kept_beside,
    kept_places,
    moved_documents,
    new_documents,
    renamed_documents,
    selected_documents,
)
from hirag_dist.indexing.context import BuildContext
from hirag_dist.indexing.documents import ReadInput, added_places, kept_documents, read_input, unique_documents
from hirag_dist.indexing.estimate import announce_calls
from hirag_dist.indexing.former_snapshots import former_snapshot, returning_summary
from hirag_dist.indexing.imported_graph import imported_base_layer, imported_documents
from hirag_dist.indexing.mentions import BaseLayer
from hirag_dist.indexing.metadata import has_same_fields, kept_metadata, warn_of_gone_fields
from hirag_dist.indexing.next_snapshot import UpdateRequest, next_snapshot, other_changes
from hirag_dist.indexing.publish import publish, publish_vectors
from hirag_dist.indexing.read_files import (
    NO_FILES,
    file_table,
    files_beside,
    files_of_kept,
    held_places,
    load_read_files,
    places_of,
)
from hirag_dist.indexing.reembed import embed_again, reembedded_note, reembedded_summary
from hirag_dist.indexing.reports import report_choice
from hirag_dist.indexing.stages.read import ReadDocuments
from hirag_dist.interop.importers import ImportedGraph
from hirag_dist.schemas import DOCUMENTS, REJECTS
from hirag_dist.storage.layout import DROPPED, PLACES, read_files_path
from hirag_dist.storage.snapshot.history import rolled_back_to
from hirag_dist.storage.snapshot.manifest import Manifest
from hirag_dist.storage.snapshot.reader import current_id, open_snapshot, read_current
from hirag_dist.storage.snapshot.writer import make_current, write_whole
from hirag_dist.storage.spill import SpillFile
from hirag_dist.types import IntVector

logger = logging.getLogger(__name__)
_NO_MORE = UpdateRequest()  # nothing besides the documents
_PLACE = ("document_id", "uri", "record")  # columns of DOCUMENTS that are read without the texts


@dataclass(frozen=True)
class BuildResult:
    """Outcome of a build; its fields are among those of `IndexResult`, which users get and which describes them."""

    manifest: Manifest
    changed: bool
    stages_run: int
    dead_letters: int
    dropped: int = 0
    kept_current_id: str | None = None
    update: UpdateSummary | None = None
    rebuilt_because: str = ""
    up_to_date: bool = False
    fallback: str = ""
    unread_files: int = 0


class Build:
    """One build of one index, in the context that it began with."""

    def __init__(
        self,
        context: BuildContext,
        *,
        force_current: bool = False,
        require_complete: bool = False,
        base_id: str | None = "",
        spill: SpillFile | None = None,
    ) -> None:
        """Prepare a build.

        Args:
            force_current: make its snapshot current even if `current` was set back from that very snapshot.
            require_complete: publish nothing while there are dead letters.
        """
        self.context = context
        self._force_current = force_current
        self._require_complete = require_complete
        self._base_id = base_id
        self._spill = spill
        self._required: UpdateBase | None = None

    def index(self, inputs: Sequence[str]) -> BuildResult:
        """Read INPUT, build or update every layer, publish the snapshot, and make it current.

        It is not made current if `current` was set back from it.
        """
        base, reason = self._base()
        found = read_input(self.context, inputs, base)
        if reason:
            logger.warning("the index is built from nothing: %s", reason)
        return replace(self._update(base, self._with_unread(base, found)), rebuilt_because=reason)

    def add(self, inputs: Sequence[str]) -> BuildResult:
        """Add the documents of INPUT to the index; one of the same place replaces the former."""
        base = self._required_base()
        found = read_input(self.context, inputs, base)
        read = set(places_of(found.files.held))
        places = held_places(base)
        at = list(places_of(places))
        pairs = zip(at, has_others(places), strict=True)
        is_in_doubt = [place in found.unread or (others and place in read) for place, others in pairs]
        moved = moved_documents(self.context, base, places, is_in_doubt, found)
        is_gone = [place in found.refused or has_moved for place, has_moved in zip(at, moved, strict=True)]
        kept, renamed = kept_beside(places, read, is_gone)
        letters = self._letters(base, places_of(kept)) + found.rejects
        beside = files_beside(base, found.files, is_whole=has_same_fields(self.context, base))
        others = kept.filter(pc.invert(pc.is_in(kept["name"], value_set=beside.rows["name"].combine_chunks())))
        files = found.files + beside + files_of_kept(others)
        return self._update(base, replace(self._joined(base, kept, renamed, found), rejects=letters, files=files))

    def remove(self, selection: DocumentSelection) -> BuildResult:
        """Remove documents from the index."""
        base = self._required_base()
        documents = base.table("documents", ["document_id", "uri", "record", "source_ids"])
        gone = selected_documents(documents, selection, held_places(base))["document_id"].combine_chunks()
        is_kept = pc.invert(pc.is_in(documents["document_id"], value_set=gone)).to_numpy()
        return self._update(base, self._kept(base, np.flatnonzero(is_kept)))

    def refresh(self, max_tokens: int | None = None, all_reports: bool = False) -> BuildResult:
        """Write the texts that are due, for about `max_tokens` if that is given, without a change of documents."""
        base = self._required_base()
        found = self._kept(base, np.arange(len(base.table("documents", ["document_id"]))))
        return self._update(base, found, UpdateRequest(True, max_tokens, all_reports))

    def unchanged(self) -> BuildResult:
        """Return the current snapshot as the result."""
        return self._unchanged(UpdateBase(open_snapshot(self.context.runner.store)))

    def reembed(self) -> BuildResult:
        """Make the vectors of all texts of the index with the configured embedder; everything else stays."""
        base = self._required_base(any_embedder=True)
        context, models = self.context, self.context.models
        runner = context.runner
        if base.embedder == (models.embedder, models.dim) and not runner.retry:
            return self._unchanged(base)
        vectors = embed_again(context, base)
        self._prepare_publishing(vectors.rejects)
        manifest = publish_vectors(
            runner,
            base.snapshot,
            vectors,
            embedder=models.embedder_name or models.embedder,
            dim=models.dim,
            update=reembedded_note(runner, base, models.embedder, models.dim),
        )
        result = self._go_live(manifest)
        with suppress(StoreError):  # the snapshot is published; what is left goes with the next update
            runner.remove_unused()
        return replace(result, update=reembedded_summary(base))

    def index_graph(self, graph: ImportedGraph) -> BuildResult:
        """Build the hierarchy on a graph that another tool extracted, and publish the snapshot.

        Communities that were imported are kept with their reports, and no report is written; otherwise both are made
        over all layers.
        """
        documents = imported_documents(self.context, graph)
        layer = imported_base_layer(self.context, graph)
        return self._written(UpdateBase(spill=self._spill), new_documents(documents), _NO_MORE, layer)

    def decisive(self) -> dict[str, Any]:
        """Return all that decides the content of the index, except INPUT and the ledger, as JSON."""
        prompts, models = self.context.prompts, self.context.models
        texts = {"instructions": dict(prompts.instructions), "examples": dict(prompts.examples)}
        return _provenance(self.context) | {
            "structured": dict(models.structured),
            "embedder": models.embedder,
            "dim": models.dim,
            "prompts": hashlib.sha256(json.dumps(texts, sort_keys=True).encode()).hexdigest()[:16],
        }

    def check_base(self) -> None:
        """Refuse an update with another embedder than that of the index, before it begins.

        Metadata fields that the update would take from the index are warned of.

        Raises:
            ConfigError: see `indexing.base.check_embedder`.
        """
        store = self.context.runner.store
        snapshot_id = current_id(store) if self._base_id == "" else self._base_id
        with suppress(SnapshotError):  # of another version, or damaged: the build finds another base, or none
            if snapshot_id is not None:
                snapshot = open_snapshot(store, snapshot_id)
                check_embedder(snapshot, self.decisive())
                warn_of_gone_fields(UpdateBase(snapshot), self.context.config.metadata)

    def _base(self, *, any_embedder: bool = False) -> tuple[UpdateBase, str]:
        """Return the base of an update, or nothing and why there is none."""
        store, decisive = self.context.runner.store, self.decisive()
        base, reason = None, ""
        if self._base_id is not None:
            base, reason = open_base(store, self._base_id, decisive) if self._base_id else find_base(store, decisive)
        if base is not None and not any_embedder:
            check_embedder(base.snapshot, decisive)
        return replace(base or UpdateBase(), spill=self._spill), reason

    def require_base(self) -> None:
        """Refuse an update without a base before it begins, so that the record of the build before stays.

        Raises:
            SnapshotError: the index cannot be updated; the message says what to do instead.
        """
        self._required = self._required_base()

    def _required_base(self, *, any_embedder: bool = False) -> UpdateBase:
        if self._required is not None:
            return self._required
        base, reason = self._base(any_embedder=any_embedder)
        store = self.context.runner.store
        if not base.is_nothing and base.snapshot.fallback:
            raise SnapshotError(
                f"{store.uri} cannot be updated: {base.snapshot.fallback}. Snapshot {base.snapshot_id} is whole, and "
                "lacks what was changed since: run `hirag-dist index INPUT` with all documents, or write that id into "
                f"{store.uri}/current to go on from it"
            )
        if base.is_nothing:
            helps = ""
            if reason == NO_STATE:
                helps = "where it was imported, `hirag-dist import` its folder again, or "
            elif reason.startswith(CHANGED_CONFIGURATION):
                helps = "use the configuration that it was built with, or "
            raise SnapshotError(
                f"{store.uri} cannot be updated: {reason or 'it holds no index'}; {helps}run `hirag-dist index INPUT "
                f"--index {store.quoted}` with all of its documents, which builds it from nothing"
            )
        return base

    def _with_unread(self, base: UpdateBase, found: ReadInput) -> ReadInput:
        """Return what was read with the base's documents of files that are there and could not be read now."""
        if base.is_nothing or not found.unread.records:
            return found
        places = held_places(base)
        is_unread = [place in found.unread for place in places_of(places)]
        moved = moved_documents(self.context, base, places, is_unread, found)
        kept, renamed = kept_places(
            places, [unread and not gone for unread, gone in zip(is_unread, moved, strict=True)]
        )
        if not kept.num_rows:
            return found
        n_kept = len(pc.unique(kept["document_id"]))
        first = min(places_of(kept))
        logger.warning(
            "%s could not be read and %s, the first %s: see the dead letters, or `hirag-dist remove` %s",
            count_noun(n_kept, "document"),
            "stays as it was" if n_kept == 1 else "stay as they were",
            unit_name(unit_of(*first)),
            "it" if n_kept == 1 else "them",
        )
        return self._joined(base, kept, renamed, replace(found, files=found.files + files_of_kept(kept)))

    def _joined(self, base: UpdateBase, kept: pa.Table, renamed: pa.Table, found: ReadInput) -> ReadInput:
        """Return documents of the base together with what was read, and the dead letters of that.

        Of a text that is among both, the base's document counts as one more copy.

        Args:
            kept, renamed: `kept_places` of the base.
        """
        context, datasets = self.context, self.context.datasets
        new = datasets.read(found.documents, _PLACE)
        known = base.table("documents", ["document_id"])["document_id"]
        rows = np.flatnonzero(pc.is_in(known, value_set=kept["document_id"].combine_chunks()))
        ids = known.take(rows)
        again = pa.chunked_array([*new["document_id"].chunks, *renamed["document_id"].chunks], pa.string())
        is_both = pc.is_in(ids, value_set=again.combine_chunks()).to_numpy()
        unique = found
        if is_both.any():
            both = base.rows(base.table("documents").cast(DOCUMENTS), rows[is_both])
            both = renamed_documents(both, renamed)
            places = added_places(both, base.table(PLACES), new, datasets.read(found.places))
            copies = found.documents + datasets.put("copied_documents", both)
            unique = unique_documents(context, copies, datasets.put("copied_places", places))
        documents, kept_places = kept_documents(context, base, rows[~is_both])
        whole = pa.table([pa.chunked_array([*ids.chunks, *new["document_id"].chunks])], names=["document_id"])
        return replace(
            found,
            documents=unique.documents + documents,
            places=unique.places + kept_places,
            metadata=kept_metadata(context, base, whole, found.metadata),
        )

    def _kept(self, base: UpdateBase, rows: IntVector) -> ReadInput:
        """Return documents of the base with their places and metadata, and the base's dead letters of reading."""
        kept = base.table("documents", _PLACE).take(rows)
        documents, places = kept_documents(self.context, base, rows)
        metadata = kept_metadata(self.context, base, kept)
        files = files_beside(base, NO_FILES, is_whole=has_same_fields(self.context, base))
        letters = self._letters(base, zip(kept["uri"].to_pylist(), kept["record"].to_pylist(), strict=True))
        return ReadInput(documents, places, letters, metadata, files=files)

    def _letters(self, base: UpdateBase, places: Iterable[tuple[str, int]]) -> Dataset:
        """Return the base's dead letters of reading, of those about metadata the ones of some places.

        Args:
            places: (URI, record) of the documents that are left and were not read again.
        """
        letters = base.table("rejects").cast(REJECTS)
        is_read = pc.equal(letters["stage"], ReadDocuments.name)
        left = {unit_of(uri, record) for uri, record in places}
        is_left = pc.is_in(letters["unit_id"], value_set=pa.array(sorted(left), pa.string()))
        is_kept = pc.or_(is_read, pc.and_(pc.equal(letters["stage"], METADATA), is_left))
        return self.context.datasets.put("kept_letters", letters.filter(is_kept))

    def _update(self, base: UpdateBase, found: ReadInput, request: UpdateRequest = _NO_MORE) -> BuildResult:
        """Return the result, with the table of the files behind its snapshot, written where it differs."""
        result = self._updated(base, found, request)
        runner, snapshot_id = self.context.runner, result.manifest.snapshot_id
        files = file_table(found.files, runner.datasets.read(found.documents, _PLACE))
        if not files.equals(load_read_files(runner.store, snapshot_id)):
            with runner.fence():
                runner.store.write_table(read_files_path(snapshot_id), files)
        return replace(result, unread_files=found.n_unchanged)

    def _updated(self, base: UpdateBase, found: ReadInput, request: UpdateRequest) -> BuildResult:
        context, runner, store = self.context, self.context.runner, self.context.runner.store
        changed = changed_documents(context, base, found)
        if base.is_nothing:
            announce_calls(context, changed.new_chunks)
            return self._written(base, changed, request)
        if not request.refresh and not runner.retry:
            if not changed.counts and not other_changes(context, base, changed):
                return self._unchanged(base)
            if former := self._former(base, changed):
                logger.info("the documents are those of snapshot %s, which is the result", former.snapshot_id)
                write_whole(store, former.snapshot_id)  # former texts of documents do not come back
                result = self._go_live(open_snapshot(store, former.snapshot_id).manifest)
                summary = returning_summary(base, former, changed.counts)
                return replace(result, update=summary, fallback=base.snapshot.fallback)
        result = self._written(base, changed, request)
        with suppress(StoreError):  # the update is published; what is left goes with the next one
            runner.remove_unused()
        return replace(result, fallback=base.snapshot.fallback)

    def _written(
        self, base: UpdateBase, changed: ChangedDocuments, request: UpdateRequest, imported: BaseLayer | None = None
    ) -> BuildResult:
        """Return the result of the next snapshot, which is published."""
        contents, summary, context = next_snapshot(self.context, base, changed, request, self.decisive(), imported)
        self._prepare_publishing(contents.rejects)
        models = context.models
        manifest = publish(
            context.runner,
            contents,
            embedder=models.embedder_name or models.embedder,
            dim=models.dim,
            build=_provenance(context),
            base=None if base.is_nothing else base.snapshot,
            choice=None if contents.state is None else report_choice(context.config),
        )
        result = self._go_live(manifest)
        context.runner.bill.is_new = base.is_nothing and not context.runner.retry
        return result if base.is_nothing else replace(result, update=summary)

    def _former(self, base: UpdateBase, changed: ChangedDocuments) -> UpdateBase | None:
        """Return the former snapshot with the documents of now, None without one."""
        if changed.documents.rejects.rows:
            return None
        store, decisive = self.context.runner.store, self.decisive()
        return former_snapshot(
            base, self.context.datasets, changed.documents, lambda former: open_base(store, former, decisive)[0]
        )

    def _unchanged(self, base: UpdateBase) -> BuildResult:
        runner, manifest = self.context.runner, base.snapshot.manifest
        if base.snapshot.fallback:  # a whole snapshot of the same documents takes the place of a damaged one
            before = read_current(runner.store)
            with runner.fence():
                make_current(runner.store, manifest.snapshot_id, before)
            return replace(self._result(manifest, True), up_to_date=True, fallback=base.snapshot.fallback)
        kept = None if self._force_current else rolled_back_to(runner.store, manifest.snapshot_id)
        return replace(self._result(manifest, False, kept), up_to_date=True)

    def _result(self, manifest: Manifest, changed: bool, kept_current_id: str | None = None) -> BuildResult:
        counts, n_stages = manifest.counts, self.context.runner.stages_run
        return BuildResult(manifest, changed, n_stages, counts["rejects"], counts.get(DROPPED, 0), kept_current_id)

    def _prepare_publishing(self, rejects: Dataset) -> None:
        """Refuse dead letters where that was asked, release idle workers, and make finished work durable."""
        runner = self.context.runner
        if self._require_complete and rejects.rows:
            n_open = split_letters(runner.datasets.read(rejects), runner.drops)[0].num_rows
            if n_open:
                raise StageFailed(
                    f"{count_noun(n_open, 'dead letter')}, and --require-complete was given; `hirag-dist status "
                    f"--letters --index {runner.store.quoted}` shows all, `hirag-dist retry` asks them again, and "
                    "`retry --drop` accepts the loss"
                )
        runner.executor.release_idle()
        runner.emit(Publishing())
        runner.sync()

    def _go_live(self, manifest: Manifest) -> BuildResult:
        runner = self.context.runner
        store = runner.store
        kept_current_id = None if self._force_current else rolled_back_to(store, manifest.snapshot_id)
        before = read_current(store)
        changed = before.snapshot_id != manifest.snapshot_id and kept_current_id is None
        if changed:
            with runner.fence():
                make_current(store, manifest.snapshot_id, before)
        return self._result(manifest, changed, kept_current_id)


def _provenance(context: BuildContext) -> dict[str, Any]:
    return {
        "models": {role: list(names) for role, names in context.models.models.items()},
        "kernels": context.models.kernels,
        "windows": dict(context.models.windows),
        "config": content_config(context.config),
    }
