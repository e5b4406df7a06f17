"""Layer 0, the basic knowledge graph: extracted, merged, described, embedded (paper Algorithm 1, lines 1–4)."""

from __future__ import annotations

import logging

from hirag_dist.config.model import Config
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.errors import StageFailed
from hirag_dist.execution.runner import Dataset, Run
from hirag_dist.indexing.context import ResolvedModels
from hirag_dist.indexing.entity_resolution import UnresolvedGraph, find_aliases, rename
from hirag_dist.indexing.hierarchy import HierarchyState, embed_layer
from hirag_dist.indexing.stages.claims import ExtractClaims
from hirag_dist.indexing.stages.extract import ExtractGraph
from hirag_dist.indexing.stages.merge import DescribeEntities, MergeEntities, MergeRelations
from hirag_dist.schemas import CLUSTERS

log = logging.getLogger(__name__)
_PROMPT_TOKENS = 6000  # descriptions in one describe call


class BaseLayerBuilder:
    """Makes the layer 0 of one build."""

    def __init__(self, run: Run, config: Config, prompts: Prompts, resolved: ResolvedModels) -> None:
        self._run = run
        self._config = config
        self._prompts = prompts
        self._resolved = resolved

    def extracted(self, chunks: Dataset) -> HierarchyState:
        """Return the graph that the extract model finds in chunks.

        Raises:
            StageFailed: it found no entity in any.
        """
        config = self._config
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
        found = self._run.stage(extract, "extract", chunks=chunks)
        entities, relations = self._merged(found["mentions"], found["relation_mentions"])
        if entities.rows == 0:
            raise StageFailed(
                "no entity was found in any chunk; look at the extract model's replies, and at its prompt if you "
                "replaced it"
            )
        layers = self.described(entities, relations)
        if config.resolution.enabled:
            layers = self._resolved_layer(layers, found["mentions"], found["relation_mentions"])
        layers.rejects = found["rejects"] + layers.rejects
        layers.mentions, layers.relation_mentions = found["mentions"], found["relation_mentions"]
        if config.claims:
            self._add_claims(layers, chunks, found["mentions"])
        return layers

    def described(self, entities: Dataset, relations: Dataset, label: str = "") -> HierarchyState:
        """Give each entity one description and a vector.

        Args:
            label: put behind the names of the stages.
        """
        config = self._config
        describe = DescribeEntities(
            config.description_tokens,
            _PROMPT_TOKENS,
            config.tokenizer,
            self._prompts,
            self._resolved.models["summarise"],
        )
        described = self._run.stage(describe, f"describe{label}", entities=entities)
        vectors = embed_layer(self._run, self._resolved, described["entities"], 0, label)
        return HierarchyState(
            entities=[described["entities"]],
            vectors=[vectors],
            relations=relations,
            clusters=Dataset(CLUSTERS, ()),
            rejects=described["rejects"],
        )

    def _add_claims(self, layers: HierarchyState, chunks: Dataset, mentions: Dataset) -> None:
        """Have the extract model list what chunks claim of the entities found in them."""
        extract = ExtractClaims(
            structured=self._resolved.structured["extract"],
            same_language=self._config.reply_language == "text",
            prompts=self._prompts,
            models=self._resolved.models["extract"],
        )
        found = self._run.stage(extract, "claims", chunks=chunks, mentions=mentions, aliases=layers.aliases)
        layers.claims = found["claims"]
        layers.rejects += found["rejects"]

    def _merged(self, mentions: Dataset, relation_mentions: Dataset, label: str = "merge") -> tuple[Dataset, Dataset]:
        """Return entities and relations."""
        merged = self._run.stage(MergeEntities(), f"{label} entities", mentions=mentions)
        relations = MergeRelations(self._config.description_tokens)
        joined = self._run.stage(relations, f"{label} relations", relation_mentions=relation_mentions)
        if n_cut := merged["cut"].rows + joined["cut"].rows:
            what = count_noun(n_cut, "entity or relation", "entities and relations")
            log.warning("%s had more descriptions than are merged: the first were", what)
        return merged["entities"], joined["relations"]

    def _resolved_layer(self, layers: HierarchyState, mentions: Dataset, relation_mentions: Dataset) -> HierarchyState:
        """Return the layer with the entities made one that go by several names; the others stay as they are."""
        resolved = self._resolved
        entities, vectors = layers.entities[0], layers.vectors[0]
        before = UnresolvedGraph(mentions, relation_mentions, entities, layers.relations, vectors, layers.rejects)
        aliases, rejects = find_aliases(
            self._run,
            before,
            self._config.resolution,
            self._config.homonyms,
            self._prompts,
            resolved.structured["summarise"],
            resolved.models["summarise"],
            resolved.dim,
        )
        if not aliases.rows:
            layers.rejects += rejects
            return layers
        after = rename(self._run, before, aliases)
        renewed, relations = self._merged(after.mentions, after.relation_mentions, "merge resolved")
        found = self.described(renewed, relations, " resolved")
        found.entities[0] = after.entities + found.entities[0]
        found.vectors[0] = after.vectors + found.vectors[0]
        found.rejects = after.letters + rejects + found.rejects
        found.aliases = aliases
        return found
