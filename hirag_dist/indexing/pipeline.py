"""The build in order: documents in, a published snapshot out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hirag_dist.compute.kernels import gpu_kernels
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.errors import StageFailed
from hirag_dist.execution.dataset import Dataset
from hirag_dist.execution.dead_letters import split_letters
from hirag_dist.indexing.access_labels import collect_label_provenance
from hirag_dist.indexing.base_layer import extract_base_layer
from hirag_dist.indexing.communities import CommunityReports, build_communities
from hirag_dist.indexing.context import BuildContext
from hirag_dist.indexing.documents import ChunkedDocuments, read_documents
from hirag_dist.indexing.hierarchy import build_hierarchy
from hirag_dist.indexing.imported_graph import imported_base_layer, imported_documents
from hirag_dist.indexing.layers import BaseLayer, Hierarchy, layer_table
from hirag_dist.indexing.publish import LabelProvenance, SnapshotContents, publish
from hirag_dist.indexing.stages.embed import EmbedChunks
from hirag_dist.interop.importers import ImportedGraph
from hirag_dist.storage.layout import DROPPED
from hirag_dist.storage.snapshot.history import rolled_back_to
from hirag_dist.storage.snapshot.manifest import Manifest
from hirag_dist.storage.snapshot.reader import read_current
from hirag_dist.storage.snapshot.writer import make_current


@dataclass(frozen=True)
class BuildResult:
    """Outcome of a build.

    Attributes:
        changed: whether `current` names another snapshot than before.
        stages_run: stages that were executed; 0 if the index was up to date.
        rejects: dead letters in the snapshot.
        dropped: dead letters whose loss was accepted.
        kept_current_id: the snapshot that stays current: `current` was set back to it from that of this build.
    """

    manifest: Manifest
    changed: bool
    stages_run: int
    rejects: int
    dropped: int = 0
    kept_current_id: str | None = None


class Build:
    """One build of one index.

    Attributes:
        context: runner, configuration, prompts and models at the start of the build.
    """

    def __init__(self, context: BuildContext, *, force_current: bool = False) -> None:
        """Prepare a build.

        Args:
            context: see the attribute.
            force_current: make its snapshot current even if `current` was set back from that very snapshot.
        """
        self.context = context
        self._force_current = force_current

    def index(self, inputs: Sequence[str], require_complete: bool = False) -> BuildResult:
        """Read INPUT, build every layer, publish the snapshot, and make it current unless it was rolled back from.

        Raises:
            InputError: there is nothing to read, or no record has the text field that was named.
            StageFailed: too many dead letters in a stage, or any with `require_complete`.
        """
        documents = read_documents(self.context, inputs)
        base = extract_base_layer(self.context, documents.chunks)
        return self._finish(documents, base, require_complete)

    def index_graph(self, graph: ImportedGraph) -> BuildResult:
        """Build the hierarchy on a graph that another tool extracted, and publish the snapshot.

        Communities that were imported are kept with their reports, and no report is written; otherwise both are made
        over all layers.

        Raises:
            StageFailed: too many dead letters in a stage.
        """
        documents = imported_documents(self.context, graph)
        return self._finish(documents, imported_base_layer(self.context, graph), require_complete=False)

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

    def _finish(self, documents: ChunkedDocuments, base: BaseLayer, require_complete: bool) -> BuildResult:
        models, chunks = self.context.models, documents.chunks
        embed = EmbedChunks(models.embedder, models.dim)
        chunk_vectors = self.context.runner.run(embed, "chunk vectors", chunks=chunks).vectors
        context = _resolve_kernels(self.context)
        hierarchy = build_hierarchy(context, base, chunks)
        communities = build_communities(context, hierarchy)
        provenance = collect_label_provenance(context, documents, hierarchy)
        contents = combine(documents, chunk_vectors, hierarchy, communities, provenance)
        if require_complete:
            _check_complete(context, contents)
        context.runner.release_idle()
        return self._publish(context, contents)

    def _publish(self, context: BuildContext, contents: SnapshotContents) -> BuildResult:
        runner, models = context.runner, context.models
        store = runner.store
        build = _provenance(context)
        manifest = publish(runner, contents, embedder=models.embedder, dim=models.dim, build=build)
        kept_current_id = None if self._force_current else rolled_back_to(store, manifest.snapshot_id)
        before = read_current(store)
        changed = before.snapshot_id != manifest.snapshot_id and kept_current_id is None
        if changed:
            with runner.fence():
                make_current(store, manifest.snapshot_id, before)
        counts = manifest.counts
        n_dropped = counts.get(DROPPED, 0)
        return BuildResult(manifest, changed, runner.stages_run, counts["rejects"], n_dropped, kept_current_id)


def combine(
    documents: ChunkedDocuments,
    chunk_vectors: Dataset,
    hierarchy: Hierarchy,
    communities: CommunityReports,
    provenance: LabelProvenance | None,
) -> SnapshotContents:
    """Return the content of a snapshot."""
    base = hierarchy.base
    return SnapshotContents(
        documents=documents.documents,
        chunks=documents.chunks,
        entities=hierarchy.entities,
        relations=hierarchy.relations,
        clusters=hierarchy.clusters,
        layers=layer_table(hierarchy.records),
        communities=communities.communities,
        reports=communities.reports,
        rejects=documents.rejects + base.rejects + hierarchy.rejects + communities.rejects,
        entity_vectors=hierarchy.vectors,
        chunk_vectors=chunk_vectors,
        aliases=base.aliases,
        claims=base.claims,
        labelled=provenance,
    )


def _resolve_kernels(context: BuildContext) -> BuildContext:
    """Return the context with the kernels' name, which workers with a GPU may have to give.

    They are asked before the first stage whose key names the kernels and not at the start of the build: such a worker
    may be a node that has to be provisioned, and would idle while models are called.
    """
    if context.models.kernels:
        return context
    return context.with_kernels(context.runner.ask_kernels(gpu_kernels, "gpu"))


def _check_complete(context: BuildContext, contents: SnapshotContents) -> None:
    if not contents.rejects.rows:
        return
    n_open = split_letters(context.datasets.read(contents.rejects), context.runner.drops)[0].num_rows
    if n_open:
        raise StageFailed(
            f"{count_noun(n_open, 'dead letter')}, and --require-complete was given; `hirag-dist status --letters "
            f"--index {context.runner.store.uri}` shows all, `hirag-dist retry` asks them again, and `retry --drop` "
            "accepts the loss"
        )


def _provenance(context: BuildContext) -> dict[str, Any]:
    config = context.config
    unused = {name for name, used in (("resolution", config.resolution.enabled), ("claims", config.claims)) if not used}
    return {
        "models": {role: list(names) for role, names in context.models.models.items()},
        "kernels": context.models.kernels,
        "config": config.model_dump(
            mode="json",
            exclude={"llm", "retrieval", "vectors", "service", "execution", "prompts", "reading", "update"} | unused,
        ),
    }
