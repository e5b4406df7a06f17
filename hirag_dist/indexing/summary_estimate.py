"""Estimate of the summaries of an index before any call: clusters of all layers, and the tokens of their members."""

from __future__ import annotations

from dataclasses import dataclass

from hirag_dist.config.model import Config
from hirag_dist.core.entities.merging import CHARS_PER_TOKEN

# all layers of Mix; `hashing` has 1.082, 1.29 and 1.60, `minilm` 1.016, 1.06 and 1.92
MEMBERS_PER_ENTITY = 1.05  # entities of several clusters count in each
CLUSTERS_PER_ENTITY = 1.17  # times target_size; large clusters are split
SUMMARIES_PER_CLUSTER = 1.75  # entities of the layer above
MEMBER_IN, MEMBER_IN_ABOVE, MEMBER_OUT = 54, 104, 13  # tokens a cluster's member costs; summaries are longer to show
MEMBER_NAMED = 12  # of these, its number, name and type


@dataclass(frozen=True)
class SummaryEstimate:
    """Clusters that a build summarises.

    Attributes:
        clusters: of all layers.
        tokens_in, tokens_out: of their members, without instructions.
        entities: above layer 0.
    """

    clusters: float
    tokens_in: float
    tokens_out: float
    entities: float


def estimate_summaries(entities: float, config: Config) -> SummaryEstimate:
    """Return the clusters above a layer 0 of some entities, with the tokens of their summaries."""
    target = config.clustering.target_size
    clusters = tokens_in = tokens_out = above = 0.0
    here = entities
    for layer in range(config.max_layers):
        if here <= target:
            break
        members, clusters_here = here * MEMBERS_PER_ENTITY, here * CLUSTERS_PER_ENTITY / target
        clusters += clusters_here
        tokens_in += members * member_tokens(config, layer)
        tokens_out += members * MEMBER_OUT
        here = min(clusters_here * SUMMARIES_PER_CLUSTER, here * 0.8)
        above += here
    return SummaryEstimate(clusters, tokens_in, tokens_out, above)


def member_tokens(config: Config, layer: int) -> float:
    """Return the tokens that a member of a cluster of a layer takes in the prompt of the summary."""
    most = MEMBER_NAMED + config.clustering.member_chars / CHARS_PER_TOKEN
    return min(MEMBER_IN if layer == 0 else MEMBER_IN_ABOVE, most)
