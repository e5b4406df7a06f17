"""The build, in order, as plain Python: documents in, a published snapshot out."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from hirag_dist.compute.kernels import gpu_kernels
from hirag_dist.config.model import META_TYPES, Config
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.errors import InputError, StageFailed
from hirag_dist.execution.dead_letters import split_letters
from hirag_dist.execution.runner import Dataset, Run
from hirag_dist.indexing.access_labels import collect_label_provenance
from hirag_dist.indexing.base_layer import BaseLayerBuilder
from hirag_dist.indexing.context import ResolvedModels
from hirag_dist.indexing.hierarchy import DESCRIPTION_CHARS, HierarchyBuilder, HierarchyState, ImportedCommunities
from hirag_dist.indexing.inputs import check_read, source_table
from hirag_dist.indexing.publish import SnapshotContents, publish
from hirag_dist.indexing.stages.chunk import ChunkDocuments
from hirag_dist.indexing.stages.communities import DetectCommunities, KeepCommunities, OutlineReports
from hirag_dist.indexing.stages.embed import EmbedChunks
from hirag_dist.indexing.stages.meta_types import EXCERPT_CHARS, N_EXCERPTS, ProposeMetaTypes, SampleChunks
from hirag_dist.indexing.stages.packed_calls import PackingOptions
from hirag_dist.indexing.stages.read import ReadDocuments, UniqueDocuments
from hirag_dist.indexing.stages.report import CHILD_REPORTS, WriteReports
from hirag_dist.indexing.stages.report_text import ClaimLines, EntityLines, RelationLines
from hirag_dist.interop.importers import ImportedGraph
from hirag_dist.readers import ReadOptions
from hirag_dist.schemas import LAYERS, REJECTS
from hirag_dist.storage.digest import table_digest
from hirag_dist.storage.layout import DROPPED
from hirag_dist.storage.snapshot.history import rolled_back_to
from hirag_dist.storage.snapshot.manifest import Manifest
from hirag_dist.storage.snapshot.reader import read_current
from hirag_dist.storage.snapshot.writer import make_current

log = logging.getLogger(__name__)
_REPORTS_TOGETHER = 256  # in one task: what it holds in memory
_LEAST_LINE_TOKENS = 6  # a member's or relation's line in a prompt costs more, so no more can be shown


@dataclass(frozen=True)
class BuildResult:
    """What a build did.

    Attributes:
        changed: whether `current` names another snapshot than before.
        stages_run: stages that were not there yet; 0 when nothing was to do.
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
    """One build of one index."""

    def __init__(
        self, config: Config, prompts: Prompts, resolved: ResolvedModels, run: Run, *, force_current: bool = False
    ) -> None:
        """Prepare a build.

        Args:
            force_current: make its snapshot current even if `current` was set back from that very snapshot.
        """
        self._config = config
        self._prompts = prompts
        self._resolved = resolved
        self._run = run
        self._force_current = force_current
        self._basic = BaseLayerBuilder(run, config, prompts, resolved)

    def index(self, inputs: Sequence[str], require_complete: bool = False) -> BuildResult:
        """Read INPUT, build every layer, publish the snapshot and make it current, unless somebody went back from it.

        Raises:
            InputError: nothing to read, or no record has the text field that was named.
            StageFailed: too many dead letters in a stage, or any with `require_complete`.
        """
        documents, rejects = self._documents(inputs)
        chunks = self._run.stage(self._chunking(), "chunks", documents=documents)["chunks"]
        if chunks.rows == 0:
            raise InputError("INPUT holds no text that can be indexed")
        return self._finish(documents, chunks, self._basic.extracted(chunks), rejects, require_complete)

    def index_graph(self, graph: ImportedGraph) -> BuildResult:
        """Build the hierarchy on a graph that another tool extracted, and publish the snapshot.

        Where its communities came too they are kept, with their reports, and no report is written; else both are made
        anew, over all layers.

        Raises:
            StageFailed: too many dead letters in a stage.
        """
        if self._config.resolution.enabled:
            log.warning("resolution is left out: it works on mentions, and an imported graph has entities alone")
        put = self._run.put
        given = {
            "documents": graph.documents,
            "chunks": graph.chunks,
            "entities": graph.entities,
            "relations": graph.relations,
            "claims": graph.claims,
        }
        if graph.communities is not None and graph.reports is not None:
            given |= {"communities": graph.communities, "reports": graph.reports}
        there = {name: put(f"imported_{name}", table, table_digest(table)) for name, table in given.items()}
        rejects = [
            {"stage": "import", "unit_id": what, "reason": reason, "attempts": 1, "request": "", "reply": ""}
            for what, reason in graph.left_out
        ]
        table = pa.Table.from_pylist(rejects, REJECTS)
        layers = self._basic.described(there["entities"], there["relations"])
        layers.claims = there["claims"]
        if "reports" in there:
            layers.kept = ImportedCommunities(there["communities"], there["reports"])
        letters = put("imported_rejects", table, table_digest(table))
        return self._finish(there["documents"], there["chunks"], layers, letters, False)

    def _finish(
        self, documents: Dataset, chunks: Dataset, layers: HierarchyState, rejects: Dataset, require_complete: bool
    ) -> BuildResult:
        chunk_vectors = self._run.stage(
            EmbedChunks(self._resolved.embedder, self._resolved.dim), "chunk vectors", chunks=chunks
        )["vectors"]
        self._name_kernels()
        growth = HierarchyBuilder(
            self._run, self._config, self._prompts, self._resolved, lambda: self._meta_types(chunks, layers)
        )
        growth.grow(layers)
        entities = sum(layers.entities[1:], layers.entities[0])
        communities, reports, report_rejects = self._communities(layers, entities)
        parts = SnapshotContents(
            documents=documents,
            chunks=chunks,
            entities=entities,
            relations=layers.relations,
            clusters=layers.clusters,
            layers=pa.Table.from_pylist(layers.records, LAYERS),
            communities=communities,
            reports=reports,
            rejects=rejects + layers.rejects + report_rejects,
            entity_vectors=sum(layers.vectors[1:], layers.vectors[0]),
            chunk_vectors=chunk_vectors,
            aliases=layers.aliases,
            claims=layers.claims,
            labelled=collect_label_provenance(self._run, self._config, self._resolved, documents, chunks, layers),
        )
        if require_complete and parts.rejects.rows:
            n_open = split_letters(self._run.read(parts.rejects), self._run.drops)[0].num_rows
            if n_open:
                raise StageFailed(
                    f"{count_noun(n_open, 'dead letter')}, and --require-complete was given; `hirag-dist status "
                    "--letters` "
                    "shows all, `hirag-dist retry` asks them again, `retry --drop` accepts the loss"
                )
        self._run.rest()
        return self._publish(parts)

    def _name_kernels(self) -> None:
        """Find out which kernels the workers with a GPU have, now that stages are next whose keys name them.

        Not before: such a worker may be a node that must come for it, and would wait while models are called.
        """
        if not self._resolved.kernels:
            name = self._run.ask_kernels(gpu_kernels, "gpu")
            self._resolved = replace(self._resolved, kernels=name)

    def _publish(self, parts: SnapshotContents) -> BuildResult:
        store = self._run.store
        manifest = publish(
            self._run, parts, embedder=self._resolved.embedder, dim=self._resolved.dim, build=self._provenance()
        )
        own_id = manifest.snapshot_id
        kept_current_id = None if self._force_current else rolled_back_to(store, own_id)
        before = read_current(store)
        changed = before.snapshot_id != own_id and kept_current_id is None
        if changed:
            with self._run.fence():
                make_current(store, own_id, before)
        counts = manifest.counts
        n_dropped = counts.get(DROPPED, 0)
        return BuildResult(manifest, changed, self._run.stages_run, counts["rejects"], n_dropped, kept_current_id)

    def _documents(self, inputs: Sequence[str]) -> tuple[Dataset, Dataset]:
        sources = source_table(inputs)
        files = self._run.put("sources", sources, table_digest(sources))
        reading = self._config.reading
        options = ReadOptions(reading.text_field, reading.title_field, reading.label_field, reading.id_field)
        found = self._run.stage(ReadDocuments(options), "documents", any_rejects=True, sources=files)
        if found["rejects"].rows:
            uris = self._run.read(found["documents"], ["uri"])["uri"].to_pylist()
            check_read(sources, set(uris), self._run.read(found["rejects"], ["unit_id", "reason"]), reading.text_field)
        unique = self._run.stage(UniqueDocuments(), "unique documents", documents=found["documents"])
        return unique["documents"], found["rejects"]

    def _chunking(self) -> ChunkDocuments:
        config = self._config
        return ChunkDocuments(config.tokenizer, config.chunk_tokens, config.chunk_overlap_tokens, config.chunking)

    def _meta_types(self, chunks: Dataset, layers: HierarchyState) -> tuple[str, ...]:
        """Return 𝒳: as configured, or as the summarise model proposes them; the default ones where it cannot."""
        config, run = self._config, self._run
        if config.meta_types != "generate":
            return config.meta_types
        excerpts = run.stage(SampleChunks(N_EXCERPTS, EXCERPT_CHARS), "meta types: sample", chunks=chunks)["excerpts"]
        propose = ProposeMetaTypes(N_EXCERPTS, self._prompts, self._resolved.models["summarise"])
        found = run.stage(propose, "meta types", any_rejects=True, excerpts=excerpts)
        layers.rejects += found["rejects"]
        return tuple(run.read(found["meta_types"])["meta_type"].to_pylist()) or META_TYPES

    def _leiden(self) -> DetectCommunities:
        communities = self._config.communities
        return DetectCommunities(
            communities.max_size, communities.resolution, self._config.seed, self._resolved.kernels
        )

    def _communities(self, layers: HierarchyState, entities: Dataset) -> tuple[Dataset, Dataset, Dataset]:
        """Return communities, their reports, and dead letters."""
        run, kept, relations = self._run, layers.kept, layers.relations
        if kept is not None:
            found = run.stage(
                KeepCommunities(),
                "communities",
                communities=kept.communities,
                reports=kept.reports,
                entities=entities,
                relations=relations,
            )
            return found["communities"], found["reports"], Dataset(REJECTS, ())
        communities = run.stage(self._leiden(), "communities", entities=entities, relations=relations)["communities"]
        return communities, *self._reports(communities, entities, relations, layers.claims)

    def _reports(
        self, communities: Dataset, entities: Dataset, relations: Dataset, claims: Dataset
    ) -> tuple[Dataset, Dataset]:
        """Reports of whole trees of communities, then of those communities that hold several trees."""
        run, config = self._run, self._config.communities
        outline = run.stage(
            OutlineReports(config.report_tokens // _LEAST_LINE_TOKENS, _REPORTS_TOGETHER),
            "report material: outlines",
            communities=communities,
            entities=entities,
            relations=relations,
        )
        entity_lines = run.stage(
            EntityLines(DESCRIPTION_CHARS), "report material: entities", places=outline["entities"], entities=entities
        )["lines"]
        relation_lines = run.stage(
            RelationLines(DESCRIPTION_CHARS),
            "report material: relations",
            places=outline["relations"],
            relations=relations,
        )["lines"]
        said: dict[str, Dataset] = {}
        if claims.rows:
            lines = ClaimLines(DESCRIPTION_CHARS)
            label, places = "report material: claims", outline["entities"]
            said["claims"] = run.stage(lines, label, places=places, entities=entities, claims=claims)["lines"]
        stage = WriteReports(
            structured=self._resolved.structured["report"],
            max_tokens=config.report_tokens,
            min_entities=config.report_min_entities,
            tokenizer=self._config.tokenizer,
            packing=PackingOptions(config.report_pack_tokens, self._config.pack_units),
            same_language=self._config.reply_language == "text",
            prompts=self._prompts,
            models=self._resolved.models["report"],
        )

        def written(label: str, outlines: Dataset, children: Dataset) -> dict[str, Dataset]:
            given = {"outlines": outlines, "entities": entity_lines, "relations": relation_lines, "children": children}
            return run.stage(stage, label, any_rejects=False, **given, **said)

        found = written("reports", outline["outlines"], Dataset(CHILD_REPORTS, ()))
        if not outline["above"].rows:
            return found["reports"], found["rejects"]
        above = written("reports above", outline["above"], found["as_children"])
        return found["reports"] + above["reports"], found["rejects"] + above["rejects"]

    def decisive(self) -> dict[str, Any]:
        """Return all that decides the content of the index, INPUT and the ledger aside, as JSON."""
        resolved = self._resolved
        said = {"instructions": dict(self._prompts.instructions), "examples": dict(self._prompts.examples)}
        return self._provenance() | {
            "structured": dict(resolved.structured),
            "embedder": resolved.embedder,
            "dim": resolved.dim,
            "prompts": hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16],
        }

    def _provenance(self) -> dict[str, Any]:
        config = self._config
        unused = {
            name for name, used in (("resolution", config.resolution.enabled), ("claims", config.claims)) if not used
        }
        return {
            "models": {role: list(names) for role, names in self._resolved.models.items()},
            "kernels": self._resolved.kernels,
            "config": config.model_dump(
                mode="json",
                exclude={"llm", "retrieval", "vectors", "service", "execution", "prompts", "reading"} | unused,
            ),
        }
