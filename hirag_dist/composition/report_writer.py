"""Reports that questions have written: one call each, stored in the ledger and in a side table of the snapshot."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from contextlib import ExitStack
from typing import Any

from hirag_dist.composition.models import (
    answerers,
    has_structured_output,
    make_pool,
    retry_policy,
    role_endpoints,
)
from hirag_dist.composition.prices import check_prices
from hirag_dist.compute.kernels import make_kernels
from hirag_dist.config.model import Config
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.core.text.tokens import counter, encoding
from hirag_dist.errors import HiragError
from hirag_dist.execution.stage import Services
from hirag_dist.indexing.communities import max_report_lines
from hirag_dist.indexing.on_demand_report import community_tables, write_community_report
from hirag_dist.indexing.stages.packed_calls import PackingOptions
from hirag_dist.indexing.stages.report import WriteReports
from hirag_dist.llm.call import CallContext
from hirag_dist.llm.chat import EndpointPool
from hirag_dist.llm.limits.call_budget import CallBudget
from hirag_dist.llm.limits.coordinator import QuotaCoordinator
from hirag_dist.llm.limits.rate_limiter import RateLimiter
from hirag_dist.llm.reply_store import Ledger
from hirag_dist.llm.retry import RetriedCalls
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.protocols import Embedder
from hirag_dist.storage.serving.mapped_index import MappedIndex
from hirag_dist.storage.snapshot.late_reports import LateReport, LateReportFiles
from hirag_dist.storage.snapshot.reader import Snapshot, current_id

logger = logging.getLogger(__name__)
_POLL_S = 0.25  # between looks for a report that another process writes
_WAIT_S = 180.0  # for it
REPLACED = "the index has a newer snapshot, which this process opens next"


class OnDemandReports:
    """Writes missing reports of one snapshot. Implements `retrieval.report_writing.ReportWriter`.

    The stage, the prompt and the rule of sub-reports are those of a build; sub-reports that are missing too are not
    written for it. Several requests for one community, of any number of processes, make one call.
    """

    def __init__(
        self,
        config: Config,
        snapshot: Snapshot,
        prompts: Prompts,
        coordinator: QuotaCoordinator,
        embedder: Embedder,
        budget: CallBudget,
        *,
        spending: bool = False,
    ) -> None:
        """Prepare to write; models and ledger are opened with the first report.

        Raises:
            ConfigError: dollars are limited, and the price of an endpoint is not known.
            StoreError: the index cannot be written to.
        """
        limits = config.retrieval.reports_on_demand
        check_prices(config, ("report",), limits.usd_per_day or limits.caller_usd_per_day)
        snapshot.store.check_writable()
        self._config = config
        self._snapshot = snapshot
        self._prompts = prompts
        self._coordinator = coordinator
        self._embedder = embedder
        self._budget = budget
        self._spending = spending
        self._files = LateReportFiles(snapshot.store, snapshot.manifest.snapshot_id)
        self._worker = uuid.uuid4().hex
        self._opened: tuple[EndpointPool, Ledger, RetriedCalls] | None = None
        self._stage: WriteReports | None = None
        self._stage_lock = asyncio.Lock()
        self._writing: dict[int, asyncio.Task[LateReport | str]] = {}
        self._refused: dict[int, str] = {}

    async def write(self, index: MappedIndex, row: int, caller: str) -> LateReport | str:
        """Return the report of a community, or why it is not written."""
        task = self._writing.get(row)
        if task is None:
            task = self._writing[row] = asyncio.create_task(self._write(index, row, caller))
            task.add_done_callback(lambda _: self._writing.pop(row, None))
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Finish the reports in progress, and close models and ledger."""
        await asyncio.gather(*self._writing.values(), return_exceptions=True)
        if self._opened is not None:
            pool, ledger, _ = self._opened
            await pool.close()
            await ledger.close()
            await self._coordinator.leave(self._worker)

    async def _write(self, index: MappedIndex, row: int, caller: str) -> LateReport | str:
        if row in self._refused:
            return self._refused[row]
        own = index.community_id(row)
        try:
            found = await asyncio.to_thread(self._files.read, own)
            return found or await self._claimed(index, row, own, caller)
        except HiragError as error:
            logger.warning("the report of community %s is not written: %s", own, error)
            return f"a report could not be written: {error}"

    async def _claimed(self, index: MappedIndex, row: int, own: str, caller: str) -> LateReport | str:
        """Write a report that no other process is writing; wait for one that another does."""
        with ExitStack() as stack:
            if await asyncio.to_thread(stack.enter_context, self._files.claimed(own)):
                if (found := await asyncio.to_thread(self._files.read, own)) is not None:
                    return found
                return await self._paid(index, row, caller)
        until = time.monotonic() + _WAIT_S
        while time.monotonic() < until:
            await asyncio.sleep(_POLL_S)
            if (found := await asyncio.to_thread(self._files.read, own)) is not None:
                return found
        return "another process is writing a report"

    async def _paid(self, index: MappedIndex, row: int, caller: str) -> LateReport | str:
        store, snapshot_id = self._snapshot.store, self._snapshot.manifest.snapshot_id
        if await asyncio.to_thread(current_id, store) != snapshot_id:
            return REPLACED  # its texts may derive from documents that were removed since
        if reason := self._budget.take(caller):
            return reason
        meter = UsageMeter()
        try:
            stage, services = await self._ready(meter)
            lines = max_report_lines(self._config)
            tables = await asyncio.to_thread(community_tables, index, self._snapshot, self._files, row, lines)
            report, reason = await write_community_report(stage, tables, services)
        finally:
            self._budget.spend(caller, sum(use.sent_cost_usd for use in meter.uses.values()))
        if report is None:
            self._refused[row] = f"the model's reply about a community was refused: {reason}"
            return self._refused[row]
        late = LateReport(report, _rows(meter), time.time())
        await asyncio.to_thread(self._files.write, late)
        return late

    async def _ready(self, meter: UsageMeter) -> tuple[WriteReports, Services]:
        config = self._config
        if self._opened is None:
            ledger = Ledger(self._snapshot.store)
            limiter = RateLimiter(self._coordinator, self._worker, self._spending)
            retried = RetriedCalls(limiter, retry_policy(config))
            self._opened = make_pool(config, ledger, retried, context=CallContext()), ledger, retried
        pool, ledger, retried = self._opened
        async with self._stage_lock:  # the first report asks for structured outputs once
            if self._stage is None:
                names = role_endpoints(config, "report")
                found = [await has_structured_output(name, config, ledger, retried, meter) for name in names]
                self._stage = self._make_stage(all(found))
        count = counter(config.tokenizer)
        chat = pool.with_context(CallContext(meter))
        return self._stage, Services(chat, self._embedder, make_kernels, encoding(config.tokenizer), count)

    def _make_stage(self, structured: bool) -> WriteReports:
        config = self._config
        communities = config.communities
        return WriteReports(
            structured=structured,
            max_tokens=communities.report_tokens,
            min_entities=1,
            tokenizer=config.tokenizer,
            packing=PackingOptions(communities.report_pack_tokens, config.pack_units),
            same_language=config.reply_language == "text",
            prompts=self._prompts.of("report"),
            models=answerers(config, config.llm.roles.report),
        )


def _rows(meter: UsageMeter) -> list[dict[str, Any]]:
    return [row for row in meter.rows() if row["role"] == "report"]
