"""The reports of communities after a change: written again where enough of their material has changed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hirag_dist.config.model import Config
from hirag_dist.core.graph.csr import rows_of
from hirag_dist.core.key_sets import KeySets, distinct_keys, key_sets
from hirag_dist.core.reports.selection import MIN_ENTITIES, ReportChoice, ReportOutlines
from hirag_dist.core.row_changes import ChangedRows, one_array, origin_of_same
from hirag_dist.execution.dataset import Dataset
from hirag_dist.indexing.base import UpdateBase
from hirag_dist.indexing.budget import DueTexts, TextCounts, UpdateSettings, affordable
from hirag_dist.indexing.communities import DESCRIPTION_CHARS, CommunityMaterial, LostIds
from hirag_dist.indexing.context import BuildContext
from hirag_dist.indexing.stages.packed_calls import PackingOptions
from hirag_dist.indexing.stages.report import CHILD_REPORTS, ClaimLines, EntityLines, RelationLines, WriteReports
from hirag_dist.indexing.summaries import Staleness, are_dropped, is_stale, staleness
from hirag_dist.indexing.written import changed_share, input_lists
from hirag_dist.schemas import REJECTS, REPORT_INPUTS, REPORTS
from hirag_dist.types import FloatVector, IntVector

_OF_NOW = ("stale_share", "stale_since")  # columns of the inputs of a kept report that have the values of now
_REQUEST_TOKENS = 100  # of a report's share of the instructions, about
_LINE_TOKENS = 12  # of the marks, names and types of a line, about


@dataclass(frozen=True)
class UpdatedReports:
    """Reports after a change.

    Attributes:
        state: REPORT_INPUTS, sorted by community.
        counts: of reports, those that are their members' names and descriptions left out.
        communities: COMMUNITIES, where they were imported with their reports.
    """

    reports: Dataset
    state: ChangedRows
    rejects: Dataset
    counts: TextCounts
    communities: Dataset | None = None


def update_reports(
    context: BuildContext,
    base: UpdateBase,
    material: CommunityMaterial,
    outlines: ReportOutlines,
    lost: LostIds,
    settings: UpdateSettings,
) -> UpdatedReports:
    """Return the reports of now: kept, written again within the budget, or stand-ins for what may not stay.

    A report that `communities.report_share` leaves out is kept while it is not due, and is missing then.

    Args:
        lost: ids that findings can no longer refer to.
    """
    found, budget = _find_due(context, base, material, settings), settings.budget
    n_rows, state, former, at = material.rows.num_rows, found.state, found.former, found.at
    due, optional, stale = found.due, found.optional, found.stale
    urgent = stale.urgent
    missing = np.zeros(n_rows, bool) if settings.all_reports else optional & (due | (at < 0))
    due &= ~missing
    wanted = np.flatnonzero(due)
    chosen, tokens = np.ones(len(wanted), bool), np.zeros(n_rows)
    if np.isfinite(budget.left):
        tokens[wanted] = _tokens(context, material, wanted) + settings.reply_tokens[1]
        tokens[found.is_small] = 0.0
        weight = stale.share * material.rows["n_entities"].to_numpy()
        chosen = affordable(DueTexts(urgent[wanted], stale.since[wanted], weight[wanted], tokens[wanted]), budget.left)
        chosen |= found.is_small[wanted]
    writer = _Writer(context, material, outlines)
    is_kept = ~missing & (~due | (~urgent & (at >= 0)))
    stays = np.flatnonzero(is_kept)
    writer.keep(stays, without_lost(former.take(pa.array(found.report_at[stays])), lost))
    unpaid = due & ~is_kept & ~_mask(n_rows, wanted[chosen])
    missing |= unpaid & optional
    put_off = np.flatnonzero(unpaid & ~optional)
    writer.write(put_off, ": stand-ins", stand_in=True)
    done = writer.write(wanted[chosen])
    fresh = _mask(n_rows, done)
    refused = due & ~is_kept & ~unpaid & ~fresh
    missing |= refused & optional
    writer.write(np.flatnonzero(refused & ~optional), ": refused", stand_in=True)
    due &= ~missing
    replaced = writer.replaced
    new = np.flatnonzero(replaced | missing)  # the inputs of a missing report are those of now
    sources = _written_sources(material, writer.there | missing, state, at, new)
    share = np.where(fresh | missing, 0.0, np.where(replaced, 1.0, stale.share))
    since = np.where(due & ~fresh, stale.since, 0)
    left = due & ~fresh & ~found.is_small & ~stale.accepted
    if not np.isfinite(budget.left) and left.any():
        tokens[left] = _tokens(context, material, np.flatnonzero(left)) + settings.reply_tokens[1]
    counts = TextCounts(
        int((fresh & ~found.is_small).sum()),
        int((~fresh & ~left & ~found.is_small & ~missing).sum()),
        int(left.sum()),
        int((left & (replaced | stale.unwritten)).sum()),
        int(tokens[left].sum()),
        int(missing.sum()),
        int((found.is_small & writer.there).sum()),
    )
    kept = np.flatnonzero(writer.there & ~replaced)
    community_of = np.full(state.num_rows, -1, np.int64)  # row of `state` → the community that keeps it
    community_of[at[kept]] = kept
    written = _state(material, new, sources, share, since)
    rows = base.changed(state, np.flatnonzero(community_of < 0), (written,), REPORT_INPUTS, ("community_id",))
    stayed, table = rows.origin >= 0, rows.table
    for name, values in zip(_OF_NOW, (share, since), strict=True):
        column = table[name].to_numpy().copy()
        column[stayed] = values[community_of[rows.origin[stayed]]]
        place = table.column_names.index(name)
        table = table.set_column(place, REPORT_INPUTS.field(place), pa.array(column))
    inputs = ChangedRows(table, origin_of_same(table, state, rows.origin, _OF_NOW))
    return UpdatedReports(writer.reports(), inputs, writer.rejects, counts)


@dataclass(frozen=True)
class _DueReports:
    """Reports of the base, and which reports are due now, by row of the outlines.

    Attributes:
        state: REPORT_INPUTS of the base.
        former: REPORTS of the base.
        at: (n,) row of each community in `state`; −1 without a report.
        report_at: (n,) row in `former`.
        is_small: (n,) bool, whose report lists its members.
        optional: (n,) bool, left out by `communities.report_share`.
    """

    state: pa.Table
    former: pa.Table
    at: IntVector
    report_at: IntVector
    stale: Staleness
    is_small: NDArray[np.bool_]
    due: NDArray[np.bool_]
    optional: NDArray[np.bool_]


def _find_due(
    context: BuildContext, base: UpdateBase, material: CommunityMaterial, settings: UpdateSettings
) -> _DueReports:
    rows = material.rows
    state = base.table("report_inputs").cast(REPORT_INPUTS)
    former = base.table("reports").cast(REPORTS).combine_chunks()
    at = rows_of(rows["community_id"], state["community_id"])
    report_at = rows_of(rows["community_id"], former["community_id"])
    at = np.where(report_at >= 0, at, -1)

    def share_of(known: IntVector) -> NDArray[np.float32]:
        return changed_share(material.written.take(at[known]), material.inputs.take(known))

    origins = former["origin"].take(pa.array(report_at[at >= 0]))
    accepted = are_dropped(rows["community_id"], WriteReports.name, context.runner.drops)
    stale = staleness(state, at, accepted, origins, share_of, material.sources, settings)
    is_small = pc.less(rows["n_entities"], MIN_ENTITIES).to_numpy()
    share = stale.share
    due = stale.urgent | stale.unwritten | np.where(is_small, share > 0, is_stale(share, settings.staleness))
    optional = ~report_choice(context.config).chosen(rows)
    return _DueReports(state, former, at, report_at, stale, is_small, due, optional)


def without_lost(reports: pa.Table, lost: LostIds) -> pa.Table:
    """Return REPORTS whose findings refer to no lost entity or relation."""
    reports = reports.combine_chunks()
    findings = reports["findings"]
    owners = pc.list_parent_indices(findings).to_numpy()
    flat = pc.list_flatten(findings)
    hit = np.zeros(reports.num_rows, bool)
    for name, ids in (("entity_ids", lost.entities), ("relation_ids", lost.relations)):
        lists = pc.struct_field(flat, name)
        found = pc.is_in(pc.list_flatten(lists), value_set=ids).to_numpy(zero_copy_only=False)
        hit[owners[pc.list_parent_indices(lists).to_numpy()[found]]] = True
    if not hit.any():
        return reports
    gone = {"entity_ids": set(lost.entities.to_pylist()), "relation_ids": set(lost.relations.to_pylist())}
    rows = reports.filter(pa.array(hit)).to_pylist()
    for report in rows:
        for finding in report["findings"]:
            for name, ids in gone.items():
                finding[name] = [own for own in finding[name] if own not in ids]
    return pa.concat_tables([reports.filter(pa.array(~hit)), pa.Table.from_pylist(rows, REPORTS)])


class _Writer:
    """Reports as they come together: kept ones, stand-ins, and those that are written."""

    def __init__(self, context: BuildContext, material: CommunityMaterial, outlines: ReportOutlines) -> None:
        self._context = context
        self._material = material
        self._outlines = outlines
        self._tables: list[pa.Table] = []
        n_rows = material.rows.num_rows
        self.there = np.zeros(n_rows, bool)
        self.replaced = np.zeros(n_rows, bool)
        self.rejects = Dataset(REJECTS)

    def keep(self, rows: IntVector, reports: pa.Table) -> None:
        """Keep reports of the base."""
        self._tables.append(reports)
        self.there[rows] = True

    def write(self, rows: IntVector, suffix: str = "", stand_in: bool = False) -> IntVector:
        """Write reports; return the rows of those that were."""
        if not len(rows):
            return rows
        run, datasets, material = self._context.runner.run, self._context.datasets, self._material
        given = material.rows.take(pa.array(rows))
        below = datasets.put("due_outlines", given.filter(pa.array(~material.is_above[rows])))
        above = datasets.put("due_outlines", given.filter(pa.array(material.is_above[rows])))
        entity_lines, relation_lines, claim_lines = self._lines(given, f"report material{suffix}")
        stage = self._stage(stand_in)

        def write_outlines(label: str, outlines: Dataset, children: Dataset) -> WriteReports.Outputs:
            return run(
                stage,
                label,
                outlines=outlines,
                entities=entity_lines,
                relations=relation_lines,
                children=children,
                claims=claim_lines,
            )

        children = datasets.put("child_reports", self._children(given))
        lower = write_outlines(f"reports{suffix}", below, children)
        found, rejects = lower.reports, lower.rejects
        if above.rows:  # those that hold several trees
            upper = write_outlines(f"reports above{suffix}", above, children + lower.as_children)
            found, rejects = found + upper.reports, rejects + upper.rejects
        reports = datasets.read(found)
        self._tables.append(reports)
        done = rows_of(reports["community_id"], material.rows["community_id"])
        self.there[done] = True
        self.replaced[done] = True
        if not stand_in:
            self.rejects += rejects
            kept = self._tables[0]  # without those that were written again
            again = pc.is_in(kept["community_id"], value_set=reports["community_id"].combine_chunks())
            self._tables[0] = kept.filter(pc.invert(again))
        return np.sort(done)

    def reports(self) -> Dataset:
        """Return REPORTS."""
        whole = pa.concat_tables(self._tables).cast(REPORTS)
        return self._context.datasets.put(
            "reports", whole.sort_by([("level", "ascending"), ("community_id", "ascending")])
        )

    def _lines(self, given: pa.Table, label: str) -> tuple[Dataset, Dataset, Dataset | None]:
        """Return the lines of the entities, relations and claims, if there are any, that some outlines show."""
        run, put, graph = self._context.runner.run, self._context.datasets.put, self._material.graph
        entities, relations = self._places(given)
        claims = put("shown_claims", _with_ids(graph.claims, "subject_id", entities["entity_id"]))
        texts = put("shown_entities", _with_ids(graph.entities, "entity_id", entities["entity_id"]))
        stated = put("shown_relations", _with_ids(graph.relations, "relation_id", relations["relation_id"]))
        places, pairs = put("due_entities", entities), put("due_relations", relations)
        entity_lines = run(EntityLines(DESCRIPTION_CHARS), f"{label}: entities", places=places, entities=texts)
        relation_lines = run(RelationLines(DESCRIPTION_CHARS), f"{label}: relations", places=pairs, relations=stated)
        if not claims.rows:
            return entity_lines.lines, relation_lines.lines, None
        said = run(ClaimLines(DESCRIPTION_CHARS), f"{label}: claims", places=places, entities=texts, claims=claims)
        return entity_lines.lines, relation_lines.lines, said.lines

    def _stage(self, stand_in: bool) -> WriteReports:
        context, config = self._context, self._context.config
        return WriteReports(
            structured=context.models.structured["report"],
            max_tokens=config.communities.report_tokens,
            min_entities=MIN_ENTITIES,
            tokenizer=config.tokenizer,
            packing=PackingOptions(config.pack_tokens),
            same_language=context.same_language,
            prompts=context.prompts.of("report"),
            models=() if stand_in else context.models.models["report"],
            stand_in=stand_in,
        )

    def _places(self, given: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Return ENTITY_PLACES and RELATION_PLACES of what some outlines show."""
        relation_ids = pc.unique(one_array(pc.list_flatten(given["relation_ids"])))
        graph, own = self._material.graph, self._outlines
        trees = pc.unique(given["tree"].combine_chunks())
        relations = own.relations.filter(
            pc.and_(
                pc.is_in(own.relations["tree"], value_set=trees),
                pc.is_in(own.relations["relation_id"], value_set=relation_ids),
            )
        )
        ends = graph.relations.select(["source_id", "target_id"]).filter(
            pc.is_in(graph.relations["relation_id"], value_set=relation_ids)
        )
        shown = [pc.list_flatten(given["entity_ids"]), ends["source_id"], ends["target_id"]]
        entity_ids = pc.unique(pa.chunked_array([chunk for column in shown for chunk in column.chunks], pa.string()))
        entities = own.entities.filter(
            pc.and_(
                pc.is_in(own.entities["tree"], value_set=trees),
                pc.is_in(own.entities["entity_id"], value_set=entity_ids),
            )
        )
        return entities, relations

    def _children(self, given: pa.Table) -> pa.Table:
        """Return CHILD_REPORTS of the reports that are there, for those that are to be written now."""
        said = {
            row["community_id"]: row
            for table in self._tables
            for row in table.select(["community_id", "title", "summary"]).to_pylist()
        }
        own = set(given["community_id"].to_pylist())
        found = [
            {"tree": row["tree"]} | said[child["community_id"]]
            for row in given.select(["tree", "children"]).to_pylist()
            for child in row["children"]
            if child["community_id"] in said and child["community_id"] not in own
        ]
        return pa.Table.from_pylist(found, CHILD_REPORTS)


def _written_sources(
    material: CommunityMaterial, there: NDArray[np.bool_], state: pa.Table, at: IntVector, rows: IntVector
) -> KeySets:
    """Return the texts that each new report derives from: its members', and those of the reports below it.

    Args:
        there: which communities have a report, or inputs of a missing one.
        at: row of `state` of each community.
        rows: of the new reports, and of missing ones.
    """
    found, n_new = material.sources(rows), len(rows)
    place = np.full(len(at), -1, np.int64)
    place[rows] = np.arange(n_new)
    stored = key_sets(state["sources"])
    parents = rows_of(pc.fill_null(material.rows["parent_id"], ""), material.rows["community_id"])
    levels = material.rows["level"].to_numpy()
    for level in range(int(levels.max(initial=0)), 0, -1):  # children first
        here = np.flatnonzero((levels == level) & (parents >= 0) & there)
        here = here[place[parents[here]] >= 0]
        owners, own = place[parents[here]], place[here]
        new = own >= 0
        for sets, some, children in ((found, new, own), (stored, ~new, at[here])):
            if some.any():
                found = _union(found, sets.unions(owners[some], children[some], n_new))
    return found


def _union(one: KeySets, other: KeySets) -> KeySets:
    return distinct_keys(np.concatenate([one.owners, other.owners]), np.concatenate([one.keys, other.keys]), len(one))


def _state(
    material: CommunityMaterial, rows: IntVector, sources: KeySets, share: FloatVector, since: IntVector
) -> pa.Table:
    """Return REPORT_INPUTS of some communities; `sources` are by place in `rows`, share and since by community."""
    inputs = material.inputs.take(rows)
    columns = [
        material.rows["community_id"].take(pa.array(rows)),
        input_lists(inputs.indptr, material.ids.take(pa.array(inputs.ids)), inputs.digests),
        sources.to_arrow(),
        pa.array(share[rows], pa.float32()),
        pa.array(since[rows], pa.int32()),
    ]
    return pa.table(columns, schema=REPORT_INPUTS)


def _tokens(context: BuildContext, material: CommunityMaterial, rows: IntVector) -> FloatVector:
    """Return the estimated tokens of the requests of some reports."""
    owners, characters = material.characters(rows)
    totals = np.bincount(owners, characters / 4 + _LINE_TOKENS, minlength=len(rows))
    return np.minimum(totals, context.config.communities.report_tokens) + _REQUEST_TOKENS


def _with_ids(table: pa.Table, key: str, wanted: pa.ChunkedArray) -> pa.Table:
    """Return the rows with some ids; where most are wanted, all: a copy in memory costs more than the others."""
    if 2 * len(wanted) > table.num_rows:
        return table
    return table.filter(pc.is_in(table[key], value_set=pc.unique(one_array(wanted))))


def _mask(n_rows: int, rows: IntVector) -> NDArray[np.bool_]:
    found = np.zeros(n_rows, bool)
    found[rows] = True
    return found


def report_choice(config: Config) -> ReportChoice:
    """Return the rule that chooses the reports that are written with an index."""
    return ReportChoice(config.communities.report_share)
