"""Communities over all layers, and their reports."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from hirag_dist.config.model import Config
from hirag_dist.core.reports.selection import MIN_ENTITIES, ReportChoice, ReportOutlines, outlined_rows
from hirag_dist.execution.dataset import Dataset
from hirag_dist.indexing.context import BuildContext
from hirag_dist.indexing.layers import DESCRIPTION_CHARS, Hierarchy, ImportedCommunities
from hirag_dist.indexing.stages.communities import (
    ChooseReports,
    DetectCommunities,
    KeepCommunities,
    NumberRelations,
    OutlineReports,
)
from hirag_dist.indexing.stages.packed_calls import PackingOptions
from hirag_dist.indexing.stages.report import CHILD_REPORTS, WriteReports
from hirag_dist.indexing.stages.report_text import ClaimLines, EntityLines, RelationLines
from hirag_dist.schemas import REJECTS

MAX_TREE_REPORTS = 256  # in one task, which holds them in memory
_MIN_LINE_TOKENS = 6  # of an entity or relation in a prompt, which bounds how many can be shown


@dataclass(frozen=True)
class CommunityReports:
    """COMMUNITIES, their REPORTS, dead letters, and what reports may show; no outline where they were imported."""

    communities: Dataset
    reports: Dataset
    rejects: Dataset = Dataset(REJECTS)
    outline: OutlineReports.Outputs | None = None


@dataclass(frozen=True)
class GraphRows:
    """A graph as RELATION_ROWS, or as ADJACENCY and DEGREES of entities that are sorted by (layer, id)."""

    relations: Dataset | None = None
    adjacency: Dataset | None = None
    degrees: Dataset | None = None


def build_communities(context: BuildContext, hierarchy: Hierarchy) -> CommunityReports:
    """Return the communities of all layers with their reports; imported ones are kept."""
    if hierarchy.base.imported is not None:
        return _keep(context, hierarchy, hierarchy.base.imported)
    entities, relations = hierarchy.entities, hierarchy.relations
    numbered = context.runner.run(NumberRelations(), "graph", relations=relations, entities=entities).rows
    detected = detect_communities(context, entities, GraphRows(numbered))
    return _report(context, hierarchy, detected.communities, numbered)


def detect_communities(
    context: BuildContext,
    entities: Dataset,
    graph: GraphRows,
    previous: Dataset | None = None,
    changed: Dataset | None = None,
    changed_before: int = 0,
) -> DetectCommunities.Outputs:
    """Return the communities of all layers.

    Args:
        entities: of all layers, at least the columns that the stage reads.
        graph: of them.
        previous: COMMUNITIES of the base of an update.
        changed: CHANGED_ENTITIES since the base: new ones, those whose relations changed, and those that were related
            to removed ones.
        changed_before: entities that earlier updates changed since communities were last detected without a base.
    """
    config = context.config.communities
    stage = DetectCommunities(
        config.max_size, config.resolution, context.config.seed, context.models.kernels, changed_before
    )
    return context.runner.run(
        stage,
        "communities",
        entities=entities,
        relations=graph.relations,
        adjacency=graph.adjacency,
        degrees=graph.degrees,
        previous=previous,
        changed=changed,
    )


def _keep(context: BuildContext, hierarchy: Hierarchy, imported: ImportedCommunities) -> CommunityReports:
    kept = context.runner.run(
        KeepCommunities(),
        "communities",
        communities=imported.communities,
        reports=imported.reports,
        entities=hierarchy.entities,
        relations=hierarchy.relations,
    )
    return CommunityReports(kept.communities, kept.reports)


def _report(context: BuildContext, hierarchy: Hierarchy, communities: Dataset, numbered: Dataset) -> CommunityReports:
    """Return the reports that are written with the index; `numbered` are RELATION_ROWS."""
    outline = context.runner.run(
        OutlineReports(max_report_lines(context.config), MAX_TREE_REPORTS),
        "report material: outlines",
        communities=communities,
        entities=hierarchy.entities,
        relations=numbered,
        relation_ids=hierarchy.relations,
    )
    texts = ReportTexts(hierarchy.entities, hierarchy.relations, hierarchy.base.claims)
    reports, rejects = write_reports(context, _chosen(context, outline), texts, Dataset(CHILD_REPORTS))
    return CommunityReports(communities, reports, rejects, outline)


def report_choice(config: Config) -> ReportChoice:
    """Return the rule that chooses the reports that are written with an index."""
    return ReportChoice(config.communities.report_share)


def _chosen(context: BuildContext, outline: OutlineReports.Outputs) -> OutlineReports.Outputs:
    """Return the outlines of the reports that are written with the index, with the places of all."""
    choice = report_choice(context.config)
    if choice.share == 1:
        return outline
    chosen = context.runner.run(
        ChooseReports(choice),
        "report material: choice",
        outlines=outline.outlines,
        above=outline.above,
    )
    return replace(outline, outlines=chosen.outlines, above=chosen.above)


@dataclass(frozen=True)
class ReportTexts:
    """ENTITIES, RELATIONS and CLAIMS, at least those that the reports to write may show."""

    entities: Dataset
    relations: Dataset
    claims: Dataset


def max_report_lines(config: Config) -> int:
    """Return the number of entities, and of relations, that a report can show at most."""
    return config.communities.report_tokens // _MIN_LINE_TOKENS


def read_outlines(
    context: BuildContext, outline: OutlineReports.Outputs, entity_ids: pa.ChunkedArray, relation_ids: pa.ChunkedArray
) -> ReportOutlines:
    """Return outlines as tables.

    Args:
        entity_ids, relation_ids: of all entities and relations.
    """
    read = context.datasets.read
    below, above = read(outline.outlines), read(outline.above)
    rows = pa.concat_tables([below, above])
    return ReportOutlines(
        below,
        above,
        read(outline.entities),
        read(outline.relations),
        outlined_rows(rows, "entity_ids", entity_ids),
        outlined_rows(rows, "relation_ids", relation_ids),
    )


def write_reports(
    context: BuildContext,
    outline: OutlineReports.Outputs,
    texts: ReportTexts,
    children: Dataset,
    suffix: str = "",
    stand_in: bool = False,
) -> tuple[Dataset, Dataset]:
    """Return REPORTS and dead letters: of whole trees of communities, then of those that hold several trees.

    Args:
        outline: of the communities to report on.
        texts: of what they show.
        children: CHILD_REPORTS that are there already.
        suffix: of the stages' labels.
        stand_in: by rules, without a call.
    """
    run, config = context.runner.run, context.config.communities
    material = f"report material{suffix}"
    entity_lines = run(
        EntityLines(DESCRIPTION_CHARS), f"{material}: entities", places=outline.entities, entities=texts.entities
    ).lines
    relation_lines = run(
        RelationLines(DESCRIPTION_CHARS), f"{material}: relations", places=outline.relations, relations=texts.relations
    ).lines
    claim_lines = None
    if texts.claims.rows:
        claim_lines = run(
            ClaimLines(DESCRIPTION_CHARS),
            f"{material}: claims",
            places=outline.entities,
            entities=texts.entities,
            claims=texts.claims,
        ).lines
    write = WriteReports(
        structured=context.models.structured["report"],
        max_tokens=config.report_tokens,
        min_entities=MIN_ENTITIES,
        tokenizer=context.config.tokenizer,
        packing=PackingOptions(context.config.pack_tokens),
        same_language=context.same_language,
        prompts=context.prompts.of("report"),
        models=() if stand_in else context.models.models["report"],
        stand_in=stand_in,
    )

    def write_outlines(label: str, outlines: Dataset, below: Dataset) -> WriteReports.Outputs:
        return run(
            write,
            label,
            outlines=outlines,
            entities=entity_lines,
            relations=relation_lines,
            children=below,
            claims=claim_lines,
        )

    lower = write_outlines(f"reports{suffix}", outline.outlines, children)
    if not outline.above.rows:
        return lower.reports, lower.rejects
    upper = write_outlines(f"reports above{suffix}", outline.above, children + lower.as_children)
    return lower.reports + upper.reports, lower.rejects + upper.rejects
