"""Communities over all layers, and their reports."""

from __future__ import annotations

from dataclasses import dataclass

from hirag_dist.config.model import Config
from hirag_dist.core.reports.choice import MIN_ENTITIES, ReportChoice
from hirag_dist.execution.dataset import Dataset
from hirag_dist.indexing.context import BuildContext
from hirag_dist.indexing.layers import DESCRIPTION_CHARS
from hirag_dist.indexing.stages.communities import DetectCommunities, adjacency
from hirag_dist.indexing.stages.packed_calls import PackingOptions
from hirag_dist.indexing.stages.report import WriteReports
from hirag_dist.indexing.stages.report_text import ClaimLines, EntityLines, RelationLines
from hirag_dist.types import CsrGraph

MAX_TREE_REPORTS = 256  # in one task, which holds them in memory
_MIN_LINE_TOKENS = 6  # of an entity or relation in a prompt, which bounds how many can be shown


@dataclass(frozen=True)
class OutlineSets:
    """What the reports to write show, as datasets.

    Attributes:
        outlines, above: OUTLINES of communities in trees of limited size, and of those that hold several such trees.
        entities, relations: ENTITY_PLACES and RELATION_PLACES.
    """

    outlines: Dataset
    above: Dataset
    entities: Dataset
    relations: Dataset


def detect_communities(
    context: BuildContext,
    entities: Dataset,
    graph: CsrGraph,
    previous: Dataset | None = None,
    changed: Dataset | None = None,
    changed_before: int = 0,
) -> DetectCommunities.Outputs:
    """Return the communities of all layers.

    Args:
        entities: ENTITY_ORDER of all layers, in the order of the graph's rows.
        graph: of them.
        previous: COMMUNITIES of the base of an update.
        changed: CHANGED_ENTITIES since the base: new ones, those whose relations changed, and those that were related
            to removed ones.
        changed_before: entities that earlier updates changed since communities were last detected without a base.
    """
    config, put = context.config.communities, context.datasets.put
    stage = DetectCommunities(
        config.max_size, config.resolution, context.config.seed, context.models.kernels, changed_before
    )
    entries, degrees = adjacency(graph)
    return context.runner.run(
        stage,
        "communities",
        entities=entities,
        adjacency=put("adjacency", entries),
        degrees=put("degrees", degrees),
        previous=previous,
        changed=changed,
    )


def report_choice(config: Config) -> ReportChoice:
    """Return the rule that chooses the reports that are written with an index."""
    return ReportChoice(config.communities.report_share)


@dataclass(frozen=True)
class ReportTexts:
    """ENTITIES, RELATIONS and CLAIMS, at least those that the reports to write may show."""

    entities: Dataset
    relations: Dataset
    claims: Dataset


def max_report_lines(config: Config) -> int:
    """Return the number of entities, and of relations, that a report can show at most."""
    return config.communities.report_tokens // _MIN_LINE_TOKENS


def write_reports(
    context: BuildContext,
    outline: OutlineSets,
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
