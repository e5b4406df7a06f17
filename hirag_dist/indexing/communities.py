"""Communities over all layers, and their reports."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hirag_dist.execution.dataset import Dataset
from hirag_dist.indexing.context import BuildContext
from hirag_dist.indexing.layers import DESCRIPTION_CHARS, Hierarchy, ImportedCommunities
from hirag_dist.indexing.stages.communities import DETECTION_STATS, DetectCommunities, KeepCommunities, OutlineReports
from hirag_dist.indexing.stages.packed_calls import PackingOptions
from hirag_dist.indexing.stages.report import CHILD_REPORTS, WriteReports
from hirag_dist.indexing.stages.report_text import ClaimLines, EntityLines, RelationLines
from hirag_dist.schemas import REJECTS

_MAX_TREE_REPORTS = 256  # in one task, which holds them in memory
_MIN_LINE_TOKENS = 6  # of an entity or relation in a prompt, which bounds how many can be shown


@dataclass(frozen=True)
class CommunityReports:
    """COMMUNITIES, their REPORTS, dead letters, and DETECTION_STATS (none where communities were imported)."""

    communities: Dataset
    reports: Dataset
    rejects: Dataset = Dataset(REJECTS)
    detection: Dataset = Dataset(DETECTION_STATS)


def build_communities(
    context: BuildContext,
    hierarchy: Hierarchy,
    previous: Dataset | None = None,
    changed: Dataset | None = None,
    changed_before: int = 0,
) -> CommunityReports:
    """Return the communities of all layers with their reports; imported ones are kept.

    Args:
        previous: COMMUNITIES of the base of an update.
        changed: CHANGED_ENTITIES since the base: new ones, those whose relations changed, and those that were related
            to removed ones.
        changed_before: entities that earlier updates changed since communities were last detected without a warm start.
    """
    if hierarchy.base.imported is not None:
        return _keep(context, hierarchy, hierarchy.base.imported)
    config = context.config.communities
    stage = DetectCommunities(
        config.max_size, config.resolution, context.config.seed, context.models.kernels, changed_before
    )
    detected = context.runner.run(
        stage,
        "communities",
        entities=hierarchy.entities,
        relations=hierarchy.relations,
        previous=previous,
        changed=changed,
    )
    return replace(_report(context, hierarchy, detected.communities), detection=detected.stats)


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


def _report(context: BuildContext, hierarchy: Hierarchy, communities: Dataset) -> CommunityReports:
    """Return the reports of whole trees of communities, then of those communities that hold several trees."""
    run, config = context.runner.run, context.config.communities
    entities, relations, claims = hierarchy.entities, hierarchy.relations, hierarchy.base.claims
    outline = run(
        OutlineReports(config.report_tokens // _MIN_LINE_TOKENS, _MAX_TREE_REPORTS),
        "report material: outlines",
        communities=communities,
        entities=entities,
        relations=relations,
    )
    entity_lines = run(
        EntityLines(DESCRIPTION_CHARS), "report material: entities", places=outline.entities, entities=entities
    ).lines
    relation_lines = run(
        RelationLines(DESCRIPTION_CHARS), "report material: relations", places=outline.relations, relations=relations
    ).lines
    claim_lines = None
    if claims.rows:
        claim_lines = run(
            ClaimLines(DESCRIPTION_CHARS),
            "report material: claims",
            places=outline.entities,
            entities=entities,
            claims=claims,
        ).lines
    write = WriteReports(
        structured=context.models.structured["report"],
        max_tokens=config.report_tokens,
        min_entities=config.report_min_entities,
        tokenizer=context.config.tokenizer,
        packing=PackingOptions(config.report_pack_tokens, context.config.pack_units),
        same_language=context.same_language,
        prompts=context.prompts.of("report"),
        models=context.models.models["report"],
    )

    def write_reports(label: str, outlines: Dataset, children: Dataset) -> WriteReports.Outputs:
        return run(
            write,
            label,
            outlines=outlines,
            entities=entity_lines,
            relations=relation_lines,
            children=children,
            claims=claim_lines,
        )

    below = write_reports("reports", outline.outlines, Dataset(CHILD_REPORTS))
    if not outline.above.rows:
        return CommunityReports(communities, below.reports, below.rejects)
    above = write_reports("reports above", outline.above, below.as_children)
    return CommunityReports(communities, below.reports + above.reports, below.rejects + above.rejects)
