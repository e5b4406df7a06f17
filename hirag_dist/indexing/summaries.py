"""The summaries of one layer's clusters after a change: kept, written again within the budget, or stand-ins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hirag_dist.core.graph.csr import rows_of
from hirag_dist.core.key_sets import KeySets, key_sets
from hirag_dist.execution.dataset import Dataset
from hirag_dist.execution.stage_results import Drops
from hirag_dist.indexing.base import UpdateBase
from hirag_dist.indexing.budget import DueTexts, TextCounts, UpdateSettings, affordable
from hirag_dist.indexing.context import BuildContext
from hirag_dist.indexing.layer_clusters import UpdatedClusters
from hirag_dist.indexing.stages.packed_calls import PackingOptions
from hirag_dist.indexing.stages.summarise import CLUSTER_SUMMARIES, SummariseClusters
from hirag_dist.indexing.window_sizes import member_tokens
from hirag_dist.indexing.written import (
    MODEL,
    STAND_IN,
    changed_share,
    member_inputs,
    summary_rows,
    written_inputs,
)
from hirag_dist.schemas import REJECTS, SUMMARIES
from hirag_dist.types import FloatVector, IntVector

OF_NOW = ("stale_share", "stale_since", "n_turned")  # columns of a kept summary that have the values of now
_REQUEST_TOKENS = 90  # of a cluster's share of the instructions, about
_REPLY_SHARE = 0.5  # of a layer's summaries at what is left of the budget: layers above and reports take the rest


@dataclass(frozen=True)
class LayerSummaries:
    """Summaries of one layer's clusters.

    Attributes:
        state: SUMMARIES, sorted by cluster.
        origin: (n,) int64 row of each in the base's layer; −1 where its text is new.
        rewritten: clusters whose text is new.
        replies: CLUSTER_SUMMARIES, where all of them were written now.
    """

    state: pa.Table
    origin: IntVector
    rejects: Dataset
    counts: TextCounts
    rewritten: tuple[str, ...]
    replies: Dataset | None = None


@dataclass(frozen=True)
class Staleness:
    """By text of now: the stale share, since which update it is due, and why it is due in any case.

    Attributes:
        urgent: (n,) bool, that may not stay.
        unwritten: (n,) bool, without a text of a model.
        accepted: (n,) bool, whether its dead letter was dropped: it is asked for as before, and is never debt.
    """

    share: NDArray[np.float32]
    since: IntVector
    urgent: NDArray[np.bool_]
    unwritten: NDArray[np.bool_]
    accepted: NDArray[np.bool_]


def are_dropped(units: pa.ChunkedArray, stage: str, drops: Drops) -> NDArray[np.bool_]:
    """Return (n,) whether the dead letter of each unit of a stage was dropped."""
    dropped = pa.array([unit for of_stage, unit in drops if of_stage == stage], pa.string())
    found: NDArray[np.bool_] = pc.is_in(units, value_set=dropped).to_numpy()
    return found


def staleness(
    state: pa.Table,
    at: IntVector,
    accepted: NDArray[np.bool_],
    origins: pa.ChunkedArray,
    share_of: Callable[[IntVector], NDArray[np.float32]],
    sources_of: Callable[[IntVector], KeySets],
    settings: UpdateSettings,
) -> Staleness:
    """Return how stale each text is.

    Args:
        state: SUMMARIES or REPORT_INPUTS of the base.
        at: (n,) row of `state` of each text, −1 for none.
        accepted: (n,) bool, whether the dead letter of each was dropped.
        origins: MODEL or STAND_IN, of those that have a row.
        share_of: texts with a row → the share of the inputs of each that changed.
        sources_of: texts with a row → the texts that each derives from now.
    """
    share, since = np.ones(len(at), np.float32), np.full(len(at), settings.number, np.int64)
    urgent, unwritten = np.zeros(len(at), bool), np.ones(len(at), bool)
    known = np.flatnonzero(at >= 0)
    if len(known):
        before, stored = at[known], key_sets(state["sources"])
        share[known] = share_of(known)
        urgent[known] = stored.hits(settings.removed_keys)[before]
        if settings.labelled:
            urgent[known] |= ~stored.take(before).within(sources_of(known))
        stand_in = pc.equal(origins, STAND_IN).to_numpy()
        unwritten[known] = stand_in
        share[known[stand_in]] = 1.0
        was_due = state["stale_since"].to_numpy()[before]
        since[known] = np.where((was_due > 0) | accepted[known], was_due, settings.number)
    return Staleness(share, since, urgent, unwritten, accepted)


def update_summaries(
    context: BuildContext,
    base: UpdateBase,
    number: int,
    clusters: UpdatedClusters,
    sources: KeySets,
    meta_types: tuple[str, ...],
    settings: UpdateSettings,
) -> LayerSummaries:
    """Return the summaries of a layer's clusters; `sources` are texts that its entities derive from."""
    label, n_clusters, budget = f"summarise layer {number}", len(clusters.ids), settings.budget
    state = base.layer_rows("summaries", number)[0].cast(SUMMARIES)
    at = rows_of(pa.chunked_array([clusters.ids]), state["cluster_id"])
    accepted = are_dropped(pa.chunked_array([clusters.ids]), SummariseClusters.name, context.runner.drops)
    stale = _staleness(clusters, state, at, accepted, sources, settings)
    due = stale.urgent | stale.unwritten | is_stale(stale.share, settings.staleness)
    wanted = np.flatnonzero(due)
    chosen, tokens = np.ones(len(wanted), bool), np.zeros(n_clusters)
    if np.isfinite(budget.left):
        tokens[wanted] = _tokens(clusters.members(wanted)) + settings.reply_tokens[0]
        weight: FloatVector = stale.share.astype(np.float64) * clusters.sizes
        chosen = affordable(
            DueTexts(stale.urgent[wanted], stale.since[wanted], weight[wanted], tokens[wanted]),
            budget.left * _REPLY_SHARE,
        )
    stage = summary_stage(context, number + 1, meta_types)
    writer = _Writer(context, clusters, sources, number, settings.number)
    runner = context.runner
    run = runner.run if base.is_nothing else runner.run_tolerant
    new, rejects, replies = writer.write(run, stage, label, wanted[chosen], MODEL)
    done = writer.mask(new)
    replaced = np.flatnonzero(due & ~done & (stale.urgent | (at < 0)))
    rules = replace(stage, stand_in=True, models=())
    stood, _, others = writer.write(runner.run_tolerant, rules, f"{label}: stand-ins", replaced, STAND_IN)
    gone = done | writer.mask(stood)
    stays = np.flatnonzero(~gone & (at >= 0) & ~stale.urgent)
    removed = np.setdiff1d(np.arange(state.num_rows), at[stays])
    rows = base.changed(state, removed, (new, stood), SUMMARIES, ("cluster_id",))
    left = due & ~done & ~accepted
    if not np.isfinite(budget.left) and left.any():
        tokens[left] = _tokens(clusters.members(np.flatnonzero(left))) + settings.reply_tokens[0]
    counts = TextCounts(
        new.num_rows,
        int((~done & ~left).sum()),
        int(left.sum()),
        stood.num_rows + int((left & stale.unwritten & ~gone).sum()),
        int(tokens[left].sum()),
    )
    own = rows_of(rows.table["cluster_id"], pa.chunked_array([clusters.ids]))
    kept = rows.origin >= 0
    table = rows.table
    for name, values in (("stale_share", stale.share), ("stale_since", np.where(due, stale.since, 0))):
        table = _with_column(table, name, np.where(kept, values[own], table[name].to_numpy()))
    table = _with_column(table, "n_turned", clusters.n_turned[own])
    rewritten = tuple(new["cluster_id"].to_pylist() + stood["cluster_id"].to_pylist())
    all_replies = replies + others if not len(stays) else None
    return LayerSummaries(table, rows.origin, rejects, counts, rewritten, all_replies)


def is_stale(share: NDArray[np.float32], staleness: float) -> NDArray[np.bool_]:
    """Return (n,) whether so much of a text's inputs has changed that it is due."""
    return (share > 0) & (share >= np.float32(staleness))


def _staleness(
    clusters: UpdatedClusters,
    state: pa.Table,
    at: IntVector,
    accepted: NDArray[np.bool_],
    sources: KeySets,
    settings: UpdateSettings,
) -> Staleness:
    """Return how stale each cluster's summary is.

    The share of a cluster that is not touched is that of the base: it follows from the inputs that the summary was
    written from, and from the members.
    """

    def share_of(known: IntVector) -> NDArray[np.float32]:
        share: NDArray[np.float32] = state["stale_share"].to_numpy()[at[known]]
        is_touched = clusters.touched[known]
        touched = known[is_touched]
        if len(touched):
            ids = clusters.entities["entity_id"]
            written = written_inputs(state["inputs"].take(pa.array(at[touched])), ids)
            share[is_touched] = changed_share(written, member_inputs(clusters.members(touched), ids))
        return share

    def sources_of(known: IntVector) -> KeySets:
        now = KeySets(clusters.indptr, clusters.rows).take(known)
        return sources.unions(now.owners, now.keys, len(known))

    origins = state["origin"].take(pa.array(at[at >= 0]))
    return staleness(state, at, accepted, origins, share_of, sources_of, settings)


@dataclass(frozen=True)
class _Writer:
    """Writes summaries of a layer's clusters."""

    context: BuildContext
    clusters: UpdatedClusters
    sources: KeySets
    layer: int
    number: int  # of the update

    def write(
        self,
        run: Callable[..., SummariseClusters.Outputs],
        stage: SummariseClusters,
        label: str,
        rows: IntVector,
        origin: str,
    ) -> tuple[pa.Table, Dataset, Dataset]:
        """Return SUMMARIES of some clusters, written now, dead letters, and CLUSTER_SUMMARIES."""
        if not len(rows):
            return SUMMARIES.empty_table(), Dataset(REJECTS), Dataset(CLUSTER_SUMMARIES)
        datasets, given = self.context.datasets, self.clusters.shown
        if given is None or len(rows) < len(self.clusters.ids):
            given = datasets.put("due_clusters", self.clusters.members(rows))
        found = run(stage, label, members=given)
        replies, ids = datasets.read(found.summaries), self.clusters.entities["entity_id"]
        states = []
        for members in datasets.tables(given):
            is_here = pc.is_in(replies["cluster_id"], value_set=members["cluster_id"].combine_chunks())
            here = replies.filter(is_here)
            states.append(summary_rows(self.layer, members, here, self.sources, ids, origin, self.number))
        return pa.concat_tables(states), found.rejects, found.summaries

    def mask(self, state: pa.Table) -> NDArray[np.bool_]:
        """Return (n_clusters,) whether a cluster is in SUMMARIES."""
        found = np.zeros(len(self.clusters.ids), bool)
        found[rows_of(state["cluster_id"], pa.chunked_array([self.clusters.ids]))] = True
        return found


def _with_column(table: pa.Table, name: str, values: NDArray[np.generic]) -> pa.Table:
    at = table.schema.get_field_index(name)
    field = table.schema.field(at)
    return table.set_column(at, field, pa.array(values, field.type))


def _tokens(members: pa.Table) -> FloatVector:
    """Return the estimated tokens of each cluster's request."""
    total = np.full(members.num_rows, float(_REQUEST_TOKENS))
    for name in ("names", "types", "descriptions"):
        lists = members[name].combine_chunks()
        sizes = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
        lengths = pc.binary_length(lists.flatten()).to_numpy(zero_copy_only=False)
        bounds = np.concatenate([[0], np.cumsum(sizes)])
        sums = np.concatenate([[0], np.cumsum(lengths)])
        total += (sums[bounds[1:]] - sums[bounds[:-1]]) / 4 + sizes
    return total


def summary_stage(context: BuildContext, layer: int, meta_types: tuple[str, ...]) -> SummariseClusters:
    """Return the stage that summarises clusters as entities of a layer."""
    config = context.config
    prompts = context.prompts.of("summarise")
    window = context.models.windows.get("summarise")
    return SummariseClusters(
        layer=layer,
        structured=context.models.structured["summarise"],
        meta_types=meta_types,
        packing=PackingOptions(config.pack_tokens),
        same_language=context.same_language,
        prompts=prompts,
        models=context.models.models["summarise"],
        member_tokens=0 if window is None else member_tokens(window, prompts, meta_types, config.tokenizer),
    )
