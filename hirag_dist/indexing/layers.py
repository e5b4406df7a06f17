"""Layers of the hierarchy as values: layer 0, the summary layers above it, and their records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import pyarrow as pa

from hirag_dist.execution.dataset import Dataset
from hirag_dist.indexing.context import BuildContext
from hirag_dist.indexing.stages.embed import EmbedEntities
from hirag_dist.schemas import ALIASES, CLAIMS, EXTRACTION_COSTS, LAYERS

DESCRIPTION_CHARS = 480  # of an entity or relation in the prompt of a report


@dataclass(frozen=True)
class GraphMentions:
    """The mentions that layer 0 was merged from, by their names before entity resolution.

    Attributes:
        costs: EXTRACTION_COSTS of the chunks whose cost is known.
    """

    entities: Dataset
    relations: Dataset
    costs: Dataset = Dataset(EXTRACTION_COSTS)

    def __add__(self, other: GraphMentions) -> GraphMentions:
        return GraphMentions(self.entities + other.entities, self.relations + other.relations, self.costs + other.costs)


@dataclass(frozen=True)
class ImportedCommunities:
    """Communities of layer 0 that another tool found, and their reports."""

    communities: Dataset
    reports: Dataset


@dataclass(frozen=True)
class BaseLayer:
    """Layer 0, the basic knowledge graph.

    Attributes:
        entities, relations, vectors: described and embedded.
        aliases: names that were resolved to another name's entity.
        mentions: None if the graph was imported.
        imported: communities to keep; None to detect them over all layers.
        cut_ids: entities and relations with more descriptions than are merged.
    """

    entities: Dataset
    relations: Dataset
    vectors: Dataset
    rejects: Dataset
    aliases: Dataset = Dataset(ALIASES)
    claims: Dataset = Dataset(CLAIMS)
    mentions: GraphMentions | None = None
    imported: ImportedCommunities | None = None
    cut_ids: frozenset[str] = frozenset()


@dataclass(frozen=True)
class LayerRecord:
    """A row of LAYERS: the figures of one layer that the stop rule used, and its decision."""

    layer: int
    n_entities: int
    n_clusters: int = 0
    median_cluster: float = 0.0
    largest_cluster: int = 0
    sparsity: float | None = None
    change_rate: float | None = None
    n_components: int = 0
    n_summaries: int = 0
    n_attached: int = 0
    n_unattached: int = 0
    decision: str = "go on"


def layer_table(records: Sequence[LayerRecord]) -> pa.Table:
    """Return LAYERS.

    >>> layer_table([LayerRecord(0, 5, decision="max_layers")])["decision"].to_pylist()
    ['max_layers']
    """
    return pa.Table.from_pylist([asdict(record) for record in records], LAYERS)


def embed_entities(context: BuildContext, entities: Dataset, label: str) -> EmbedEntities.Outputs:
    """Return VECTORS of entities, and the dead letters of those whose text the embedder refused."""
    stage = EmbedEntities(context.models.embedder, context.models.dim)
    # An embedder that refuses one text after the other stops the run itself.
    return context.runner.run_tolerant(stage, label, entities=entities)
