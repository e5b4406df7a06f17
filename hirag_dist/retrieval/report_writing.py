"""Missing reports of an answer's communities: written before the answer, as far as budget and time allow."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from hirag_dist.config.model import RetrievalConfig
from hirag_dist.config.reports import ReportsOnDemandConfig
from hirag_dist.core.retrieval.context import render_context
from hirag_dist.errors import InvalidQuery
from hirag_dist.retrieval.engine_resources import EngineResources
from hirag_dist.retrieval.late_reports import with_report
from hirag_dist.storage.snapshot.late_reports import LateReport
from hirag_dist.types import Query, Retrieval

_TIME_SHARE = 0.5  # of the time left that an answer waits for reports: the rest is for the answer


def check_allowed(query: Query, config: ReportsOnDemandConfig) -> None:
    """Refuse a request to write reports where the configuration does not allow it.

    Raises:
        InvalidQuery: it does not.
    """
    if query.write_reports and not config.enabled:
        raise InvalidQuery(
            "write_reports: missing reports are not written here, since retrieval.reports_on_demand.enabled is false"
        )


async def write_missing(
    retrieval: Retrieval,
    query: Query,
    resources: EngineResources,
    limits: RetrievalConfig,
    left_s: float | None,
) -> Retrieval:
    """Return a retrieval with the missing reports of its communities written, the best communities first.

    Only reports whose sources the caller may all see are written, whatever filter the question has. Where one is not
    written, `note` says why, and its members stay.

    Args:
        retrieval: with missing reports.
        limits: of the question.
        left_s: seconds left for the whole answer.
    """
    writer, rows = resources.writer, _writable(retrieval, query, resources)[: limits.reports_on_demand.max_reports]
    if writer is None or not rows:
        return retrieval
    tasks = {own: asyncio.ensure_future(writer.write(resources.index, row, query.caller)) for own, row in rows}
    await asyncio.wait(tasks.values(), timeout=None if left_s is None else left_s * _TIME_SHARE)
    written: dict[str, LateReport] = {}
    reasons: dict[str, None] = {}
    for own, task in tasks.items():
        if not task.done():
            task.cancel()
            reasons["the deadline is near, and the calls go on for later questions"] = None
        elif isinstance(found := task.result(), LateReport):
            written[own] = found
        else:
            reasons[found] = None
    if written and resources.late is not None:
        for late in written.values():
            resources.late.add(late)
    note = f"missing reports were not all written: {'; '.join(reasons)}" if reasons else retrieval.note
    communities = tuple(
        with_report(item, written[item.community_id]) if item.community_id in written else item
        for item in retrieval.communities
    )
    found_reports = replace(retrieval, communities=communities, note=note, written_reports=tuple(written))
    return await asyncio.to_thread(render_context, found_reports, limits.context_tokens, resources.count_tokens)


def _writable(retrieval: Retrieval, query: Query, resources: EngineResources) -> list[tuple[str, int]]:
    """Return (id, row) of the communities without a report whose sources the caller may all see."""
    view = resources.views.view_for(query.reach)
    found = []
    for own in retrieval.missing_reports:
        row = resources.lookups.communities.row(own)
        if view is not None and row is not None and view.is_fully_visible(row):
            found.append((own, row))
    return found
