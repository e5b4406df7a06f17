"""The build, in order, as plain Python: documents in, a published snapshot out."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from hirag_dist.config import Config
from hirag_dist.core.merging import same_name_relations
from hirag_dist.core.prompts import Prompts
from hirag_dist.core.sparsity import Limits, change_rate, stop_after_clustering, stop_before_clustering
from hirag_dist.errors import InputError, StageFailed
from hirag_dist.execution.letters import split_letters
from hirag_dist.execution.run import Dataset, Run
from hirag_dist.importing import ImportedGraph
from hirag_dist.index.digest import table_digest
from hirag_dist.index.layout import DROPPED
from hirag_dist.index.manifest import Manifest
from hirag_dist.index.reader import current_id
from hirag_dist.index.writer import make_current
from hirag_dist.publishing import Parts, publish
from hirag_dist.reading import ReadOptions
from hirag_dist.schemas import CLUSTERS, LAYERS, REJECTS, RELATIONS
from hirag_dist.sources import check_read, source_table
from hirag_dist.stages.chunk import ChunkDocuments
from hirag_dist.stages.cluster import ClusterLayer
from hirag_dist.stages.communities import DetectCommunities, OutlineReports
from hirag_dist.stages.embed import EmbedChunks, EmbedEntities
from hirag_dist.stages.extract import ExtractGraph
from hirag_dist.stages.merge import DescribeEntities, MergeEntities, MergeRelations
from hirag_dist.stages.packing import Packing
from hirag_dist.stages.read import ReadDocuments, UniqueDocuments
from hirag_dist.stages.report import CHILD_REPORTS, WriteReports
from hirag_dist.stages.report_lines import EntityLines, RelationLines
from hirag_dist.stages.summarise import MergeSummaries, SummariseClusters
from hirag_dist.wiring import Resolved

log = logging.getLogger(__name__)
_UNCOVERING_LIMIT = 0.3  # a layer with a larger share of summaries that cover nobody is dropped
_DESCRIPTION_CHARS = 480  # of a member in a prompt
_SUMMARY_CHARS = 1200
_PROMPT_TOKENS = 6000  # descriptions in one describe call
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
    """

    manifest: Manifest
    changed: bool
    stages_run: int
    rejects: int
    dropped: int = 0


@dataclass
class _Layers:
    """The hierarchy as it grows: entities and vectors by layer, relations of all."""

    entities: list[Dataset]
    vectors: list[Dataset]
    relations: Dataset
    clusters: Dataset
    rejects: Dataset
    records: list[dict[str, Any]] = field(default_factory=list)


class Build:
    """One build of one index."""

    def __init__(self, config: Config, prompts: Prompts, resolved: Resolved, run: Run) -> None:
        self._config = config
        self._prompts = prompts
        self._resolved = resolved
        self._run = run

    def index(self, inputs: Sequence[str], require_complete: bool = False) -> BuildResult:
        """Read INPUT, build every layer, publish the snapshot and make it current.

        Raises:
            InputError: nothing to read, or no record has the text field that was named.
            StageFailed: too many dead letters in a stage, or any with `require_complete`.
        """
        documents, rejects = self._documents(inputs)
        chunks = self._run.stage(self._chunking(), "chunks", documents=documents)["chunks"]
        if chunks.rows == 0:
            raise InputError("INPUT holds no text that can be indexed")
        return self._finish(documents, chunks, self._basic_graph(chunks), rejects, require_complete)

    def index_graph(self, graph: ImportedGraph) -> BuildResult:
        """Build the hierarchy on a graph that another tool extracted, and publish the snapshot.

        Raises:
            StageFailed: too many dead letters in a stage.
        """
        put = self._run.put
        documents, chunks, entities, relations = (
            put(f"imported_{name}", table, table_digest(table))
            for name, table in (
                ("documents", graph.documents),
                ("chunks", graph.chunks),
                ("entities", graph.entities),
                ("relations", graph.relations),
            )
        )
        rejects = [
            {"stage": "import", "unit_id": what, "reason": reason, "attempts": 1, "request": "", "reply": ""}
            for what, reason in graph.left_out
        ]
        table = pa.Table.from_pylist(rejects, REJECTS)
        layers = self._described(entities, relations)
        return self._finish(documents, chunks, layers, put("imported_rejects", table, table_digest(table)), False)

    def _finish(
        self, documents: Dataset, chunks: Dataset, layers: _Layers, rejects: Dataset, require_complete: bool
    ) -> BuildResult:
        chunk_vectors = self._run.stage(
            EmbedChunks(self._resolved.embedder, self._resolved.dim), "chunk vectors", chunks=chunks
        )["vectors"]
        self._grow(layers)
        entities = sum(layers.entities[1:], layers.entities[0])
        communities = self._run.stage(self._leiden(), "communities", entities=entities, relations=layers.relations)[
            "communities"
        ]
        reports, report_rejects = self._reports(communities, entities, layers.relations)
        parts = Parts(
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
        )
        if require_complete and parts.rejects.rows:
            n_open = split_letters(self._run.read(parts.rejects), self._run.drops)[0].num_rows
            if n_open:
                raise StageFailed(
                    f"{n_open} units are dead letters, and --require-complete was given; `hirag-dist status --letters` "
                    "shows them, `hirag-dist retry` asks them again, `retry --drop` accepts the loss"
                )
        return self._publish(parts)

    def _publish(self, parts: Parts) -> BuildResult:
        before = current_id(self._run.store)
        manifest = publish(
            self._run, parts, embedder=self._resolved.embedder, dim=self._resolved.dim, build=self._provenance()
        )
        if before != manifest.snapshot_id:
            with self._run.fence():
                make_current(self._run.store, manifest.snapshot_id)
        changed = before != manifest.snapshot_id
        counts = manifest.counts
        return BuildResult(manifest, changed, self._run.stages_run, counts["rejects"], counts.get(DROPPED, 0))

    def _documents(self, inputs: Sequence[str]) -> tuple[Dataset, Dataset]:
        sources = source_table(inputs)
        files = self._run.put("sources", sources, table_digest(sources))
        reading = self._config.reading
        options = ReadOptions(reading.text_field, reading.title_field, reading.label_field)
        found = self._run.stage(ReadDocuments(options), "documents", any_rejects=True, sources=files)
        if found["rejects"].rows:
            uris = self._run.read(found["documents"], ["uri"])["uri"].to_pylist()
            check_read(sources, set(uris), self._run.read(found["rejects"], ["unit_id", "reason"]), reading.text_field)
        unique = self._run.stage(UniqueDocuments(), "unique documents", documents=found["documents"])
        return unique["documents"], found["rejects"]

    def _chunking(self) -> ChunkDocuments:
        config = self._config
        return ChunkDocuments(config.tokenizer, config.chunk_tokens, config.chunk_overlap_tokens, config.chunking)

    def _basic_graph(self, chunks: Dataset) -> _Layers:
        """Layer 0: the basic knowledge graph. Paper: Algorithm 1, lines 1–4."""
        config, run = self._config, self._run
        extract = ExtractGraph(
            method=config.extraction,
            structured=self._resolved.structured["extract"],
            gleaning_rounds=config.gleaning_rounds,
            entity_types=config.entity_types,
            split_homonyms=config.homonyms == "split",
            same_language=config.reply_language == "text",
            prompts=self._prompts,
            models=self._resolved.models["extract"],
        )
        found = run.stage(extract, "extract", chunks=chunks)
        merged = run.stage(MergeEntities(), "merge entities", mentions=found["mentions"])
        if merged["entities"].rows == 0:
            raise StageFailed(
                "no entity was found in any chunk; look at the extract model's replies, and at its prompt if you "
                "replaced it"
            )
        relations = run.stage(
            MergeRelations(config.description_tokens), "merge relations", relation_mentions=found["relation_mentions"]
        )["relations"]
        layers = self._described(merged["entities"], relations)
        layers.rejects = found["rejects"] + layers.rejects
        return layers

    def _described(self, entities: Dataset, relations: Dataset) -> _Layers:
        """Give each entity one description and a vector: layer 0 of the hierarchy."""
        config = self._config
        describe = DescribeEntities(
            config.description_tokens,
            _PROMPT_TOKENS,
            config.tokenizer,
            self._prompts,
            self._resolved.models["summarise"],
        )
        described = self._run.stage(describe, "describe", entities=entities)
        vectors = self._embed(described["entities"], 0)
        return _Layers(
            entities=[described["entities"]],
            vectors=[vectors],
            relations=relations,
            clusters=Dataset(CLUSTERS, ()),
            rejects=described["rejects"],
        )

    def _grow(self, layers: _Layers) -> None:
        """Layers 1, 2, … until the stop rule ends them. Paper: Algorithm 1, lines 5–13."""
        limits = self._limits()
        sparsities: list[float] = []
        while True:
            layer = len(layers.entities) - 1
            record: dict[str, Any] = {"layer": layer, "n_entities": layers.entities[layer].rows} | _NOTHING
            layers.records.append(record)
            below = layers.entities[layer - 1].rows if layer else None
            decision = stop_before_clustering(layer, record["n_entities"], below, limits)
            if decision is None:
                decision = self._grow_one(layers, layer, record, sparsities, limits)
            record["decision"] = decision or "go on"
            if decision is not None:
                log.info("the hierarchy ends at layer %d: %s", layer, decision)
                return

    def _grow_one(
        self, layers: _Layers, layer: int, record: dict[str, Any], sparsities: list[float], limits: Limits
    ) -> str | None:
        config, run = self._config, self._run
        clustering = config.clustering
        cluster = ClusterLayer(
            layer=layer,
            dim=self._resolved.dim,
            reduce_dims=clustering.reduce_dims,
            target_size=clustering.target_size,
            max_size=clustering.max_size,
            threshold=clustering.threshold,
            description_chars=_DESCRIPTION_CHARS,
            seed=config.seed,
            kernels=self._resolved.kernels,
        )
        found = run.stage(
            cluster, f"cluster layer {layer}", vectors=layers.vectors[layer], entities=layers.entities[layer]
        )
        record |= run.read(found["stats"]).to_pylist()[0]
        if sparsities:
            record["change_rate"] = change_rate(sparsities[-1], record["sparsity"])
        sparsities.append(record["sparsity"])
        decision = stop_after_clustering(sparsities, record["median_cluster"], limits)
        if decision is not None:
            return decision
        summarise = SummariseClusters(
            layer=layer + 1,
            structured=self._resolved.structured["summarise"],
            meta_types=config.meta_types,
            packing=Packing(clustering.summary_pack_tokens, config.pack_units),
            same_language=config.reply_language == "text",
            prompts=self._prompts,
            models=self._resolved.models["summarise"],
        )
        summaries = run.stage(summarise, f"summarise layer {layer}", members=found["members"])
        above = run.stage(
            MergeSummaries(layer + 1, _SUMMARY_CHARS),
            f"merge layer {layer + 1}",
            members=found["members"],
            summaries=summaries["summaries"],
        )
        stats = run.read(above["stats"]).to_pylist()[0]
        layers.rejects += summaries["rejects"]
        record |= {"n_attached": stats["n_attached"], "n_unattached": stats["n_unattached"]}
        n_new = above["entities"].rows
        if n_new == 0 or stats["n_uncovering"] > _UNCOVERING_LIMIT * n_new:
            return f"layer {layer + 1} was dropped: {stats['n_uncovering']} of its {n_new} summaries cover no member"
        record["n_summaries"] = n_new
        layers.clusters += found["clusters"]
        layers.relations += above["relations"] + self._same_names(layers, above["entities"])
        layers.entities.append(above["entities"])
        layers.vectors.append(self._embed(above["entities"], layer + 1))
        return None

    def _same_names(self, layers: _Layers, above: Dataset) -> Dataset:
        lower = self._run.read(sum(layers.entities[1:], layers.entities[0]))
        table = same_name_relations(lower, self._run.read(above))
        return self._run.put("same_name", table, table_digest(table)) if table.num_rows else Dataset(RELATIONS, ())

    def _embed(self, entities: Dataset, layer: int) -> Dataset:
        stage = EmbedEntities(self._resolved.embedder, self._resolved.dim)
        return self._run.stage(stage, f"embed layer {layer}", entities=entities)["vectors"]

    def _leiden(self) -> DetectCommunities:
        communities = self._config.communities
        return DetectCommunities(
            communities.max_size, communities.resolution, self._config.seed, self._resolved.kernels
        )

    def _reports(self, communities: Dataset, entities: Dataset, relations: Dataset) -> tuple[Dataset, Dataset]:
        """Reports of whole trees of communities, then of those communities that hold several trees."""
        run, config = self._run, self._config.communities
        outline = run.stage(
            OutlineReports(config.report_tokens // _LEAST_LINE_TOKENS, _REPORTS_TOGETHER),
            "report outlines",
            communities=communities,
            entities=entities,
            relations=relations,
        )
        entity_lines = run.stage(
            EntityLines(_DESCRIPTION_CHARS), "report entities", places=outline["entities"], entities=entities
        )["lines"]
        relation_lines = run.stage(
            RelationLines(_DESCRIPTION_CHARS), "report relations", places=outline["relations"], relations=relations
        )["lines"]
        stage = WriteReports(
            structured=self._resolved.structured["report"],
            max_tokens=config.report_tokens,
            min_entities=config.report_min_entities,
            tokenizer=self._config.tokenizer,
            packing=Packing(config.report_pack_tokens, self._config.pack_units),
            same_language=self._config.reply_language == "text",
            prompts=self._prompts,
            models=self._resolved.models["report"],
        )

        def written(label: str, outlines: Dataset, children: Dataset) -> dict[str, Dataset]:
            return run.stage(
                stage, label, outlines=outlines, entities=entity_lines, relations=relation_lines, children=children
            )

        found = written("reports", outline["outlines"], Dataset(CHILD_REPORTS, ()))
        if not outline["above"].rows:
            return found["reports"], found["rejects"]
        above = written("reports above", outline["above"], found["as_children"])
        return found["reports"] + above["reports"], found["rejects"] + above["rejects"]

    def _limits(self) -> Limits:
        config = self._config
        return Limits(config.stop, config.min_change_rate, config.clustering.target_size, config.max_layers)

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
        return {
            "models": {role: list(names) for role, names in self._resolved.models.items()},
            "kernels": self._resolved.kernels,
            "config": config.model_dump(
                mode="json",
                exclude={"llm", "retrieval", "vectors", "service", "execution", "prompts", "reading"},
            ),
        }


_NOTHING: dict[str, Any] = {
    "n_clusters": 0,
    "median_cluster": 0.0,
    "largest_cluster": 0,
    "sparsity": None,
    "change_rate": None,
    "n_components": 0,
    "n_summaries": 0,
    "n_attached": 0,
    "n_unattached": 0,
}
