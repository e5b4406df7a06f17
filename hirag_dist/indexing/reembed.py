"""Another embedder for an index that exists: new vectors of all its texts, and nothing else.

Clusters, summaries, communities and reports stay as the former embedder's vectors made them; later updates, which
compare clusters with the vectors of now, make those again that have become loose.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from hirag_dist.config.model import Config
from hirag_dist.core.text.tokens import counter
from hirag_dist.execution.dataset import Dataset
from hirag_dist.execution.runner import StageRunner
from hirag_dist.indexing.access_labels import LabelledGraph, collect_label_provenance
from hirag_dist.indexing.base import UpdateBase
from hirag_dist.indexing.budget import UpdateSummary
from hirag_dist.indexing.changed_documents import DocumentCounts
from hirag_dist.indexing.context import BuildContext
from hirag_dist.indexing.documents import ChunkedDocuments
from hirag_dist.indexing.estimate import StageEstimate, Work, embedding_calls, stages_of
from hirag_dist.indexing.former_snapshots import returning_summary
from hirag_dist.indexing.mentions import GraphMentions, embed_entities
from hirag_dist.indexing.next_snapshot import update_note
from hirag_dist.indexing.publish import NewVectors
from hirag_dist.indexing.stages.embed import EmbedChunks, EmbedEntities, entity_texts
from hirag_dist.llm.usage import total_cost
from hirag_dist.schemas import (
    ALIASES,
    CHUNKS,
    DOCUMENTS,
    ENTITIES,
    MENTIONS,
    PLACES,
    REJECTS,
    RELATION_MENTIONS,
    RELATIONS,
    VECTORS,
)
from hirag_dist.storage.layout import DROPPED, PARTS
from hirag_dist.storage.snapshot.manifest import UpdateNote
from hirag_dist.storage.snapshot.reader import Snapshot

_SAMPLED = 4_096  # entities whose tokens are counted for an estimate


def embed_again(context: BuildContext, base: UpdateBase) -> NewVectors:
    """Return the vectors of all texts of an index by the configured embedder."""
    runner, models = context.runner, context.models
    chunks, entities = base.dataset("chunks", CHUNKS), base.dataset("entities", ENTITIES)
    embedded = runner.run_tolerant(EmbedChunks(models.embedder, models.dim), "chunk vectors", chunks=chunks)
    own = embed_entities(context, entities, "embed all layers")
    letters = pa.concat_tables(
        [base.table(name).select(REJECTS.names).cast(REJECTS) for name in ("rejects", DROPPED)]  # accepted losses too
    )
    of_vectors = pc.is_in(letters["stage"], value_set=pa.array([EmbedChunks.name, EmbedEntities.name]))
    kept = context.datasets.put("kept_letters", letters.filter(pc.invert(of_vectors)))
    parts, rejects = Dataset(VECTORS), kept + embedded.rejects + own.rejects
    if PARTS in base.snapshot.manifest.content:
        documents = base.dataset("documents", DOCUMENTS)
        mentions = base.dataset("mentions", MENTIONS), base.dataset("relation_mentions", RELATION_MENTIONS)
        relations, aliases = base.dataset("relations", RELATIONS), base.dataset("aliases", ALIASES)
        labelled = collect_label_provenance(
            context,
            ChunkedDocuments(documents, chunks, Dataset(PLACES), Dataset(REJECTS)),
            LabelledGraph(entities, relations, GraphMentions(*mentions), aliases, ()),
        )
        assert labelled is not None
        parts, rejects = labelled.part_vectors, rejects + labelled.rejects
    return NewVectors(own.vectors, embedded.vectors, parts, rejects)


def reembedded_summary(base: UpdateBase) -> UpdateSummary:
    """Return the summary of an update that makes vectors anew: all texts are kept."""
    kept = returning_summary(base, base, DocumentCounts())
    return replace(kept, number=base.number + 1, returned=False, other_changes=("vectors",))


def reembedded_note(runner: StageRunner, base: UpdateBase, embedder: str, dim: int) -> UpdateNote:
    """Return the note of an index with new vectors, from which the next update starts."""
    decisive = {**base.note.decisive, "embedder": embedder, "dim": dim}
    note = update_note(runner, base, reembedded_summary(base), base.note.changed_since_detection, decisive)
    clustered_with = note.clustered_with or base.embedder[0]
    return note.model_copy(
        update={
            "replaced": base.note.replaced,
            "clustered_with": "" if clustered_with == embedder else clustered_with,
        }
    )


@dataclass(frozen=True)
class ReembeddingEstimate:
    """Estimate of new vectors of an index.

    Attributes:
        base: id of the snapshot whose texts are embedded.
        texts: number of texts; 0 where the configured embedder is that of the index.
        tokens: tokens of these texts, about.
        stages: the one stage, at the endpoint of role `embed`.
        seconds: least seconds that the endpoint's limits allow.
    """

    base: str
    texts: int = 0
    tokens: int = 0
    stages: tuple[StageEstimate, ...] = ()
    seconds: float = 0.0

    @property
    def cost_usd(self) -> float | None:
        """US dollars; None where the price of the endpoint is not known."""
        return total_cost(stage.cost_usd for stage in self.stages)


def estimate_reembedding(snapshot: Snapshot, config: Config) -> ReembeddingEstimate:
    """Return the estimate of new vectors of all texts of a snapshot."""
    counts: Mapping[str, int] = snapshot.manifest.counts
    chunk_tokens = int(pc.sum(snapshot.table("chunks", ["n_tokens"])["n_tokens"]).as_py() or 0)
    entities = snapshot.table("entities", ["name", "description"])
    step = -(-entities.num_rows // _SAMPLED) or 1
    sample = entities.take(pa.array(range(0, entities.num_rows, step), pa.int64()))
    count = counter(config.tokenizer)
    n_named = counts["entities"]
    if PARTS in snapshot.manifest.content:
        n_named += len(snapshot.array(PARTS))
    each = sum(map(count, entity_texts(sample))) / max(sample.num_rows, 1)
    n_texts, tokens = counts["chunks"] + n_named, chunk_tokens + round(n_named * each)
    role = config.llm.roles.embed
    layers = snapshot.table("layers", ["n_entities"])["n_entities"].to_pylist()
    calls = embedding_calls(config, [*layers, n_named - counts["entities"]], counts["chunks"])
    work = Work("embed", role, calls, tokens, 0)
    stages, seconds = stages_of([work], config)
    return ReembeddingEstimate(snapshot.manifest.snapshot_id, n_texts, tokens, stages, seconds)
