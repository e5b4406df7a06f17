"""The driver's side of batches: submit the calls that tasks lack, wait, put the replies into the ledger.

A batch has a record in the store from before its submission until its last reply is durable, so that a later run knows
that it was paid. Nothing of a prompt or a reply stays in memory: calls pass from the tasks' files to
input files of limited size, replies from the downloaded files to the ledger in groups.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, TypeVar

from hirag_dist.core.text.normalize import count_noun
from hirag_dist.errors import BackendUnavailable, ModelError, RateLimited, RequestRejected
from hirag_dist.execution.batch_api.input_files import InputFile, SpendingGuard, input_files, temporary_file
from hirag_dist.execution.batch_api.records import ClosedBatch, OpenBatch
from hirag_dist.execution.task import Task
from hirag_dist.llm.batch_api import BatchEndpoint, BatchState, OversizedFile, max_file_bytes, result_lines
from hirag_dist.llm.priced_model import PricedModel
from hirag_dist.llm.reply_store import Ledger
from hirag_dist.llm.reply_store.codec import batch_record_of
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.storage.layout import BATCHES
from hirag_dist.storage.store import Store

logger = logging.getLogger(__name__)
T = TypeVar("T")
_GROUP = 256  # replies that are made durable together
_MAX_WAIT_S = 60.0
OnReturned = Callable[[str, UsageMeter], None]
OnSubmitted = Callable[[str, int, int], None]


@dataclass(frozen=True)
class BatchTarget:
    """An endpoint that takes batches, and what its replies cost when they are sent for one by one."""

    model: PricedModel
    api: BatchEndpoint


@dataclass(frozen=True)
class BatchSettings:
    """Settings of batches.

    Attributes:
        wanted: whether stages use batches; batches of an earlier run are collected either way.
        poll_s: interval between status requests.
        max_fruitless_passes: passes of a stage without one reply, before the remaining calls are sent directly.
        lines: calls in a batch, at most.
        outage_timeout_s: how long an endpoint may fail to answer about files and batches.
        max_usd, max_tokens: what the run may spend.
    """

    wanted: bool = False
    poll_s: float = 30.0
    max_fruitless_passes: int = 3
    lines: int = 50_000
    outage_timeout_s: float = 600.0
    max_usd: float | None = None
    max_tokens: int | None = None


class Batches:
    """The batches of one build. `run` names the build: replies that it asked for are known by it."""

    def __init__(
        self,
        store: Store,
        make_target: Callable[[str], BatchTarget],
        settings: BatchSettings,
        fence: Callable[[], AbstractContextManager[None]] = nullcontext,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Prepare.

        Args:
            make_target: name of an endpoint → it; raises ConfigError where the configuration has none of that name.
            fence: entered around what only the holder of the index may write, as in `StageRunner`.
            clock: seconds, monotonic.
        """
        self.run = uuid.uuid4().hex
        self.settings = settings
        self.store = store
        self._make_target = make_target
        self._fence = fence
        self._clock, self._sleep = clock, sleep
        self._targets: dict[str, BatchTarget] = {}
        self._checked: set[str] = set()
        self._over_count = 1.0  # largest ratio of an endpoint's token count of a prompt to the estimate
        self._runner = asyncio.Runner()

    def collect(self, on_returned: OnReturned, out: Sequence[OpenBatch]) -> None:
        """Wait for the batches of an earlier run and store their replies.

        Args:
            on_returned: called with the stage and the usage of each batch.

        Raises:
            ConfigError: the configuration has an endpoint no more.
            ModelError: a batch failed, or its endpoint does not answer.
        """
        self._run(self._collect(out, on_returned))

    def ask(
        self, label: str, folder: str, spent: tuple[int, float], on_returned: OnReturned, on_submitted: OnSubmitted
    ) -> ClosedBatch:
        """Submit the calls of a folder, wait for them, and store the replies.

        Calls that could exceed the spending limit, at the maximal cost of the others, are left out: they may fit in a
        later attempt.

        Args:
            label: the stage, for people.
            folder: of the files that tasks left.
            spent: tokens and dollars of this run so far.
            on_returned: as for `collect`.
            on_submitted: called with the stage and the numbers of batches and of calls.

        Raises:
            BudgetReached: not one call fits what may be spent.
            BackendUnavailable: an endpoint takes no batches.
            ModelError: a batch failed, or its endpoint does not answer.
        """
        return self._run(self._ask(label, folder, spent, on_returned, on_submitted))

    def close(self) -> None:
        """Close connections."""
        for target in self._targets.values():
            self._runner.run(_closed(target))
        self._runner.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self._runner.run(work)
        except KeyboardInterrupt:
            n_out = len(self.store.names(BATCHES))
            logger.warning(
                "interrupted; batches that are out: %d. The next run brings them home first, with or without --batch",
                n_out,
            )
            raise

    async def _collect(self, out: Sequence[OpenBatch], on_returned: OnReturned) -> None:
        begun = [await self._found(each) for each in out]
        await self._await_batches([each for each in begun if each is not None], on_returned)

    async def _ask(
        self, label: str, folder: str, spent: tuple[int, float], on_returned: OnReturned, on_submitted: OnSubmitted
    ) -> ClosedBatch:
        out: list[OpenBatch] = []
        guard = SpendingGuard(self.settings.max_usd, self.settings.max_tokens, *spent, self._over_count)
        with closing(input_files(self.store, folder, guard, self.settings.lines)) as files:
            for lines in files:
                out.append(await self._send(label, lines))
        if not out:
            raise guard.refusal()
        on_submitted(label, len(out), sum(each.lines for each in out))
        return await self._await_batches(out, on_returned)

    async def _send(self, label: str, lines: InputFile) -> OpenBatch:
        """Upload lines and create their batch, with a record before and after each step."""
        api = self._target(lines.endpoint).api
        if lines.endpoint not in self._checked:
            await self._with_retries(api.check)
            self._checked.add(lines.endpoint)
        out = OpenBatch(
            uuid.uuid4().hex,
            lines.endpoint,
            label,
            lines.role,
            self.run,
            lines.n_lines,
            time.time(),
            lines.most_tokens,
            lines.most_usd,
        )
        self._write_record(out)
        try:
            out = replace(
                out, file=await self._with_retries(lambda: api.upload(f"hirag-dist-{out.id}.jsonl", lines.file))
            )
            self._write_record(out)
            out = replace(out, batch=(await self._begin(api, out)).id)
        except (RequestRejected, BackendUnavailable):  # it was not begun; after other errors that is unknown
            await self._forget(out)
            raise
        self._write_record(out)
        calls = count_noun(out.lines, "call")
        logger.info("%s: batch %s of %s is out at endpoint %s", label, out.batch, calls, out.endpoint)
        return out

    async def _begin(self, api: BatchEndpoint, out: OpenBatch) -> BatchState:
        """Create a batch exactly once: after a lost answer, look for it at the endpoint first."""
        lost = False

        async def begin() -> BatchState:
            nonlocal lost
            found = await api.find(out.id, out.created_at) if lost else None
            lost = True
            return found or await api.create(str(out.file), out.id)

        return await self._with_retries(begin)

    async def _found(self, out: OpenBatch) -> OpenBatch | None:
        """Return a batch with its id at the endpoint; None if it was never created, and its record is removed."""
        if out.batch is not None:
            return out
        api = self._target(out.endpoint).api
        state = await self._with_retries(lambda: api.find(out.id, out.created_at))
        if state is None:
            await self._forget(out)
            return None
        found = replace(out, batch=state.id)
        self._write_record(found)
        return found

    async def _await_batches(self, out: Sequence[OpenBatch], on_returned: OnReturned) -> ClosedBatch:
        """Wait for batches; replies of a batch that ends are stored while others are running.

        Raises:
            ModelError: some failed, or are unknown at the endpoint; the replies of the others are stored.
        """
        returned = ClosedBatch()
        waiting = list(out)
        while True:
            for each in list(waiting):
                api = self._target(each.endpoint).api
                try:
                    state = await self._with_retries(partial(api.state, str(each.batch)))
                except RequestRejected as error:
                    waiting.remove(each)
                    returned.problems.append(self._unavailable(each, error))
                    continue
                if state.ended:
                    meter = await self._store_replies(each, state, returned)
                    waiting.remove(each)
                    on_returned(each.stage, meter)
            if not waiting:
                break
            await self._sleep(self.settings.poll_s)
        if returned.problems:
            raise ModelError("; ".join(returned.problems))
        return returned

    def _unavailable(self, out: OpenBatch, error: RequestRejected) -> str:
        return (
            f"batch {out.batch} ({count_noun(out.lines, 'call')} of {out.stage}) cannot be looked at: {error}. "
            "If it is gone "
            f"for good, delete {self.store.uri}/{out.path}: its calls are then asked, and paid, again"
        )

    async def _store_replies(self, out: OpenBatch, state: BatchState, returned: ClosedBatch) -> UsageMeter:
        """Put a batch's replies into the ledger and remove its record; return their usage."""
        target = self._target(out.endpoint)
        meter = UsageMeter()
        ledger = Ledger(self.store)
        try:
            for file_id in state.files:
                with temporary_file() as file:
                    try:
                        await self._with_retries(partial(target.api.download, file_id, file, max_file_bytes(out.lines)))
                    except OversizedFile as error:
                        returned.problems.append(f"{error}; its calls are asked again by the next run")
                        continue
                    file.seek(0)
                    while lines := [target.api.read(line) for line in result_lines(file, _GROUP)]:
                        await ledger.put_many(
                            {
                                line.key: batch_record_of(line.reply, out.endpoint, out.run)
                                for line in lines
                                if line.key and line.reply is not None
                            }
                        )
                        for line in lines:
                            returned.count(line)
                            if line.reply is not None:
                                over = line.reply.input_tokens / line.counted if line.counted else 1.0
                                self._over_count = max(self._over_count, over)
                                cost = target.model.batch_cost(line.reply)
                                name = line.reply.model or target.model.name
                                meter.count(out.role, name, out.endpoint, line.reply, cost, from_ledger=False)
        finally:
            await ledger.close()
        if state.problem:
            returned.problems.append(state.problem)
        await self._forget(out, state.files)
        return meter

    def _write_record(self, out: OpenBatch) -> None:
        with self._fence():
            self.store.write_json(out.path, asdict(out))

    async def _forget(self, out: OpenBatch, files: Sequence[str] = ()) -> None:
        """Remove the record of a batch, then its files; failures to remove files are ignored."""
        with self._fence():
            self.store.delete(out.path)
        api = self._target(out.endpoint).api
        for file in (*files, *([out.file] if out.file else [])):
            with suppress(ModelError):
                await api.remove(file)

    def _target(self, endpoint: str) -> BatchTarget:
        if endpoint not in self._targets:
            self._targets[endpoint] = self._make_target(endpoint)
        return self._targets[endpoint]

    async def _with_retries(self, call: Callable[[], Awaitable[T]]) -> T:
        """Return the result of a call, with retries within the configured outage time."""
        began, wait_s = self._clock(), min(1.0, self.settings.poll_s)
        while True:
            try:
                return await call()
            except ModelError as error:
                if not error.retryable or self._clock() - began > self.settings.outage_timeout_s:
                    raise
                asked_s = error.retry_after_s if isinstance(error, RateLimited) else None
                logger.info("asked again in a while: %s", error)
            await self._sleep(wait_s if asked_s is None else min(asked_s, max(self.settings.outage_timeout_s, wait_s)))
            wait_s = min(2 * wait_s, _MAX_WAIT_S)


class BatchAttempts:
    """The passes over one stage's tasks: calls are left for batches until these make no progress, then sent directly.

    A pass that brings a reply does not count against the limit: a second step, a gleaning, a refused reply asked again
    need one more each.
    """

    def __init__(self, batches: Batches | None, label: str, folder: str) -> None:
        """Begin.

        Args:
            batches: None where the stage's calls are sent directly from the first.
            folder: the stage's.
        """
        self._batches = batches
        self._label = label
        self._folder = f"{folder}/calls"
        self._number = self._fruitless = 0
        if batches is not None:
            batches.store.delete(self._folder)  # of a run that was killed

    def prepared(self, tasks: Iterable[Task]) -> Iterator[Task]:
        """Yield tasks as this pass is to run them."""
        for task in tasks:
            yield task if self._batches is None else replace(task, calls=self._calls, run=self._batches.run)

    def ask(self, spent: tuple[int, float], on_returned: OnReturned, on_submitted: OnSubmitted) -> None:
        """Submit the calls that this pass left and wait. Arguments and errors as of `Batches.ask`."""
        batches = self._batches
        assert batches is not None, "a task that may send leaves no calls"
        returned = batches.ask(self._label, self._calls, spent, on_returned, on_submitted)
        batches.store.delete(self._folder)
        self._number += 1
        self._fruitless = 0 if returned.replies else self._fruitless + 1
        if self._fruitless >= batches.settings.max_fruitless_passes or not (returned.replies or returned.later):
            logger.info("%s: what batches did not bring is asked directly", self._label)
            self._batches = None

    @property
    def _calls(self) -> str:
        """The folder of this pass alone: a task of an earlier one that comes late must not be paid again."""
        assert self._batches is not None
        return f"{self._folder}/{self._batches.run}-{self._number}"


async def _closed(target: BatchTarget) -> None:
    await target.api.close()
