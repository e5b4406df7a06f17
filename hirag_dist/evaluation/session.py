"""One evaluation in its folder: steps of units that are journaled as they are done, so that a killed run goes on.

Models are asked by the pool and the embedder of a build, over a ledger of its own.
"""

from __future__ import annotations

import asyncio
import logging
import time
import unicodedata
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hirag_dist.composition.models import (
    CHAT_ROLES,
    answerers,
    check_prices,
    has_structured_output,
    limited_embedder,
    make_coordinator,
    make_pool,
    retry_policy,
    role_windows,
    settle_embedder,
    with_windows,
)
from hirag_dist.config.model import Config, RetrievalConfig, RoleTarget, shares
from hirag_dist.core.prompts.reply_parsing import parse_text
from hirag_dist.core.prompts.templates import INSTRUCTIONS, Prompts
from hirag_dist.core.text.normalize import one_line
from hirag_dist.core.text.tokens import counter
from hirag_dist.errors import ConfigError, InvalidQuery, RequestRejected, StoreError
from hirag_dist.evaluation.work_units import (
    EvaluationLetter,
    JournalEntry,
    Outcomes,
    SystemUnderTest,
    Work,
    WorkUnit,
    letter_key,
    unit_key,
)
from hirag_dist.execution.events import StageFailedEvent, StageFinished, StageStarted, TaskFinished
from hirag_dist.llm.call import CallContext
from hirag_dist.llm.chat import EndpointPool
from hirag_dist.llm.embedding import with_context
from hirag_dist.llm.limits.rate_limiter import RateLimiter
from hirag_dist.llm.reply_store import Ledger, compact
from hirag_dist.llm.retry import RetriedCalls
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.protocols import Closable, Embedder, EventListener
from hirag_dist.readers import Unreadable
from hirag_dist.retrieval.engine import QueryEngine
from hirag_dist.retrieval.engine_resources import EngineResources
from hirag_dist.retrieval.vector_index.memory import make_vector_index
from hirag_dist.storage.snapshot.fallback import open_current
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.storage.store import Store
from hirag_dist.types import ChatReply, ChatRequest, FloatMatrix, Rejected

logger = logging.getLogger(__name__)

T = TypeVar("T")


# Units share query engines, whose calls carry no context: the unit that runs in a task sets it here.
unit_context: ContextVar[CallContext | None] = ContextVar("unit_context", default=None)


def _current_context() -> CallContext:
    return unit_context.get() or CallContext()


class UnitPool:
    """A pool whose calls carry the context of the evaluation unit that asks. Implements `protocols.ChatPool`."""

    def __init__(self, pool: EndpointPool) -> None:
        self.model_name = pool.model_name
        self.close = pool.close
        self._pool = pool

    async def ask(self, request: ChatRequest, accept: Callable[[ChatReply], T]) -> T | Rejected:
        """Return the result of `accept` for the reply, as `EndpointPool.ask`."""
        return await self._pool.with_context(_current_context()).ask(request, accept)


class UnitEmbedder:
    """An embedder of questions whose calls carry the context of the unit that asks. Implements `protocols.Embedder`.

    Questions that differ in spaces or forms of characters only are equal, as in `QuestionEmbedder`; unlike it this
    makes no calls for other units, which would be on the bill of a unit that is recorded already. It has no `close`:
    the creator of the embedder closes it.
    """

    def __init__(self, embedder: Embedder) -> None:
        self.name, self.dim = embedder.name, embedder.dim
        self._embedder = embedder

    async def embed(self, texts: Sequence[str]) -> FloatMatrix:
        """Return (len(texts), dim) float32 rows, as the embedder does, and raise what it raises."""
        plain = [unicodedata.normalize("NFC", one_line(text)) for text in texts]
        return await with_context(self._embedder, _current_context()).embed(plain)


class KeptAnswers:
    """Implements `protocols.AnswerModel` by whole replies: they go through the ledger, and a bad one is asked again."""

    def __init__(self, pool: UnitPool) -> None:
        self.ask = pool.ask
        self.model_name = pool.model_name

    async def stream(self, request: ChatRequest) -> AsyncGenerator[str | ChatReply]:
        """Yield the whole text, and then the reply. Raises RequestRejected where no attempt gave a usable one."""
        found = await self.ask(request, parse_text)
        if isinstance(found, Rejected):
            raise RequestRejected(found.reason)
        yield found
        yield ChatReply(found)

    async def close(self) -> None:
        """Do nothing: the creator of the pool closes it."""


_BLOCK = 256  # units looked up at a time
_LOCAL_AT_ONCE = 64  # units at a time without an external endpoint: one write of the journal serves them all
_UNKNOWN_CONCURRENCY = 128


@dataclass(frozen=True)
class SessionOptions:
    """Options of a run, in addition to its configuration.

    Attributes:
        kind: retrieval, qa, judge, …
        out: folder of the evaluation, on this machine.
        index: what is asked; None where answers are recorded.
        snapshot: another one than the current.
        variants: name → settings of retrieval to compare with the configured ones.
        max_usd, max_tokens: what this run may spend.
        fresh: do finished units again; paid replies are kept.
    """

    kind: str
    out: str
    index: str | None = None
    snapshot: str | None = None
    variants: Mapping[str, RetrievalConfig] = field(default_factory=dict)
    max_usd: float | None = None
    max_tokens: int | None = None
    fresh: bool = False


class Session:
    """An evaluation on its way. Made by `open_session`; serves one event loop.

    Attributes:
        snapshot: of the index, None where there is none.
        letters: dead letters so far, of all steps.
        usage: of all units that are done, by step, whenever their calls were paid.
        sent: what this run itself sent to models.
        count_tokens: counts a text by the configured tokenizer.
        pool: every model, behind ledger and limits (`protocols.ChatPool`).
        n_reused, n_new: units that an earlier run had done, and that this one did.
    """

    def __init__(
        self,
        order: SessionOptions,
        config: Config,
        prompts: Prompts,
        store: Store,
        journal: Ledger,
        snapshot: Snapshot | None,
        listeners: Sequence[EventListener],
    ) -> None:
        """Compose it; nothing is asked yet.

        Args:
            store: whose ledger keeps the replies.
            journal: of the units that are done.
        """
        self.order = order
        self.config = config
        self.prompts = prompts
        self.snapshot = snapshot
        self.letters: list[EvaluationLetter] = []
        self.usage: dict[str, UsageMeter] = {}
        self.sent = UsageMeter()
        self.n_reused = self.n_new = 0
        self.steps: list[Outcomes[Any]] = []
        self._journal = journal
        self._listeners = listeners
        # the configured settings' first: the others share its parts
        self._engines: dict[RetrievalConfig, QueryEngine] = {}
        self.count_tokens = counter(config.tokenizer)
        self._ledger = Ledger(store)
        check_prices(config, (*CHAT_ROLES, "embed"), order.max_usd)
        client = make_coordinator(config, order.max_usd, order.max_tokens)
        spending = order.max_usd is not None or order.max_tokens is not None
        self._retried = RetriedCalls(RateLimiter(client, "", spending), retry_policy(config))
        self.pool = UnitPool(make_pool(config, self._ledger, self._retried))
        self._embedder = limited_embedder(config, self._ledger, self._retried, texts="query")

    async def embed(self, text: str) -> NDArray[np.float32]:
        """Return the (dim,) vector of a question; it is on the bill of every unit that asks, and made once."""
        vectors = await UnitEmbedder(self._embedder).embed([text])
        return np.asarray(vectors[0], np.float32)

    @property
    def embeds_elsewhere(self) -> bool:
        """True if an endpoint makes the vectors, rather than this process."""
        return self.config.llm.endpoints[self.config.llm.roles.embed].kind == "openai"

    async def structured(self, role: str) -> bool:
        """Return whether all models of a role have structured outputs; an endpoint is asked once a folder."""
        for name, _ in shares(self._target(role)):
            if not await has_structured_output(name, self.config, self._ledger, self._retried, UsageMeter()):
                return False
        return True

    def asks(self, role: str, *prompts: str) -> dict[str, Any]:
        """Return the inputs of a role's replies, for `WorkUnit.decides`: its models, and the named prompts."""
        texts = {
            name: [self.prompts.instructions.get(name, INSTRUCTIONS[name]), self.prompts.examples.get(name, "")]
            for name in prompts
        }
        return {"models": list(answerers(self.config, self._target(role))), "prompts": texts}

    def systems(self, modes: Sequence[str], known: Sequence[str] = ()) -> list[SystemUnderTest]:
        """Return the systems to compare: each mode with the configured settings, then with each variant's.

        Args:
            known: the modes that the kind accepts; empty accepts any.

        Raises:
            ConfigError: no mode, or an unknown one.
        """
        unknown = [mode for mode in modes if mode not in known]
        if known and (unknown or not modes):
            raise ConfigError(f"--modes: there is no {', '.join(unknown) or 'mode'}; there are: {', '.join(known)}")
        settings = {"": self.config.retrieval, **self.order.variants}
        return [
            SystemUnderTest(f"{mode}:{variant}" if variant else mode, mode, variant, retrieval)
            for variant, retrieval in settings.items()
            for mode in dict.fromkeys(modes)
        ]

    def require_snapshot(self) -> Snapshot:
        """Return the snapshot of the index. Raises ConfigError where the evaluation has no index."""
        if self.snapshot is None:
            raise ConfigError("this evaluation asks an index: name it with --index URI")
        return self.snapshot

    def engine(self, system: SystemUnderTest | None = None) -> QueryEngine:
        """Return the engine with a system's settings; give the mode with each `Query`.

        Its answers go through the pool: ledger, limits and the bill hold for them, and a reply that cannot be used
        is `RequestRejected`, which makes a dead letter.

        Raises:
            ConfigError: the evaluation has no index.
        """
        config, snapshot = self.config, self.require_snapshot()
        if not self._engines:
            resources = EngineResources(
                snapshot,
                make_vector_index(config, snapshot),
                UnitEmbedder(self._embedder),
                KeptAnswers(self.pool),
                self.prompts,
                self.count_tokens,
                config.service.access_rule,
                config.tokenizer,
                source_url=config.retrieval.source_url,
                answer_window=role_windows(config, ("answer",)).get("answer"),
            )
            self._engines[config.retrieval] = QueryEngine(resources, config.retrieval)
        settings = config.retrieval if system is None else system.retrieval
        if settings not in self._engines:
            self._engines[settings] = self._engines[config.retrieval].with_settings(settings)
        return self._engines[settings]

    def refuse_records(self, step: str, unreadable: Iterable[Unreadable]) -> None:
        """Count records of files, and whole files, that cannot be read, and so could not even become units."""
        self.letters += [EvaluationLetter(step, each.name, each.reason) for each in unreadable]

    async def map(
        self, step: str, units: Iterable[WorkUnit[T]], work: Work[T], *, at_once: int | None = None
    ) -> Outcomes[T]:
        """Do what is not yet done of a step's units, several at a time; return what became of all.

        A unit is done when its value is durable in the journal. Where the work gives a `Rejected`, or raises
        `RequestRejected` or `InvalidQuery` for this unit alone, it is a dead letter, and the next run tries it again
        with new attempts. Any other error ends the run; units in flight finish and are kept.

        Args:
            step: names the units in journal, progress and bill; kinds that share a step's name and have equal units
                in one folder share their outcomes.
            work: gives a unit's value (JSON).
            at_once: units at a time; by default as many as the endpoints may have calls.

        Raises:
            BudgetReached: a call would pass a spending limit.
            ModelError: no endpoint answers.
            StoreError: the journal cannot be written.
        """
        found, missing = await self._planned(step, units)
        n_units, n_reused = len(found.entries), found.n_done
        started = time.perf_counter()
        self._tell(StageStarted(step, n_units, n_reused, n_units, n_reused))
        try:
            await self._run(step, found, missing, work, at_once or self._calls_at_once())
        except BaseException:
            self._tell(StageFailedEvent(step))
            raise
        self.n_reused += n_reused
        place = {entry.id: place for place, (entry, _) in enumerate(missing)}
        found.letters.sort(key=lambda letter: place[letter.id])  # not as they happened to end
        self.letters += found.letters
        self.usage.setdefault(step, UsageMeter()).add(found.usage)
        self.steps.append(found)
        seconds = time.perf_counter() - started
        self._tell(StageFinished(step, not missing, n_units, len(found.letters), seconds, found.usage))
        return found

    async def close(self) -> None:
        """Wait for the calls in flight, and release all resources."""
        if self._engines:
            await self._engines[self.config.retrieval].close()
        await self.pool.close()
        if isinstance(self._embedder, Closable):
            await self._embedder.close()
        await self._ledger.close()
        await self._journal.close()

    async def _planned(
        self, step: str, units: Iterable[WorkUnit[T]]
    ) -> tuple[Outcomes[T], list[tuple[JournalEntry[T], bool]]]:
        """Return the outcomes so far, and what is missing, each with whether it was a dead letter before."""
        entries: list[JournalEntry[T]] = []
        found = Outcomes(step, entries, self._journal)
        missing: dict[str, tuple[JournalEntry[T], bool]] = {}
        seen: set[str] = set()
        rest = iter(units)
        while block := list(islice(rest, _BLOCK)):
            new = [JournalEntry(unit.id, unit_key(step, unit.decides), unit.item) for unit in block]
            entries += new
            records = await self._journal.get_many([entry.key for entry in new])
            found.n_done += sum(entry.key in records for entry in new)
            paid = dict.fromkeys(entry.key for entry in new if entry.key in records and entry.key not in seen)
            for key in paid:  # equal units are paid once; in their order, since sums of dollars depend on it
                found.usage.add(UsageMeter.from_rows(records[key]["usage"]))
            seen |= records.keys()
            open_ = {entry.key: entry for entry in new if entry.key not in records and entry.key not in missing}
            letters = await self._journal.get_many([letter_key(key) for key in open_])
            missing |= {key: (entry, letter_key(key) in letters) for key, entry in open_.items()}
        return found, list(missing.values())

    async def _run(
        self,
        step: str,
        found: Outcomes[T],
        missing: Sequence[tuple[JournalEntry[T], bool]],
        work: Work[T],
        at_once: int,
    ) -> None:
        waiting = iter(missing)
        times_of = Counter(entry.key for entry in found.entries)
        running: set[asyncio.Task[tuple[JournalEntry[T], UsageMeter, float, Rejected | None]]] = set()
        failure: BaseException | None = None
        try:
            while True:
                while failure is None and len(running) < at_once and (following := next(waiting, None)) is not None:
                    running.add(asyncio.create_task(self._do(*following, work)))
                if not running:
                    break
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    if (error := task.exception()) is not None:
                        failure = failure or error
                        continue
                    entry, meter, seconds, rejected = task.result()
                    times = times_of[entry.key]
                    if rejected is None:
                        found.n_done += times
                        found.usage.add(meter)
                    else:
                        found.letters.append(EvaluationLetter(step, entry.id, rejected.reason, rejected.attempts))
                    self.n_new += times
                    self._tell(TaskFinished(step, times, int(rejected is not None), seconds, meter))
        except asyncio.CancelledError:
            for task in running:
                task.cancel()  # a request that was sent ends and is stored all the same
            if running:
                await asyncio.wait(running)
            raise
        if failure is not None:
            raise failure

    async def _do(
        self, entry: JournalEntry[T], is_retry: bool, work: Work[T]
    ) -> tuple[JournalEntry[T], UsageMeter, float, Rejected | None]:
        """Do one unit, in a task and so in a context of its own, and put it on record."""
        meter = UsageMeter()
        unit_context.set(CallContext(meter, is_retry=is_retry))
        started = time.perf_counter()
        try:
            value = await work(entry.item)
        except (InvalidQuery, RequestRejected) as error:
            if isinstance(error, RequestRejected) and error.fatal:
                raise
            value = Rejected(entry.id, str(error), 1)
        finally:
            self.sent.add(meter)
        seconds = time.perf_counter() - started
        record = {"id": entry.id, "usage": meter.rows(), "seconds": seconds}
        if isinstance(value, Rejected):
            said = {"reason": value.reason, "attempts": value.attempts, "request": value.request, "reply": value.reply}
            await self._journal.put(letter_key(entry.key), record | said)
            return entry, meter, seconds, value
        await self._journal.put(entry.key, record | {"value": value})
        return entry, meter, seconds, None

    def _target(self, role: str) -> RoleTarget:
        target: RoleTarget = getattr(self.config.llm.roles, role)
        return target

    def _calls_at_once(self) -> int:
        outside = [each for each in self.config.llm.endpoints.values() if each.kind == "openai"]
        calls = sum(each.max_concurrent or _UNKNOWN_CONCURRENCY for each in outside)
        return max(calls, _LOCAL_AT_ONCE)

    def _tell(self, event: object) -> None:
        for listener in self._listeners:
            listener(event)


_JOURNAL = "journal"
_HOLD = ".held"


@asynccontextmanager
async def open_session(
    order: SessionOptions, config: Config, prompts: Prompts, listeners: Sequence[EventListener] = ()
) -> AsyncIterator[Session]:
    """Open an evaluation's folder, and hold it until the end of the block.

    Raises:
        ConfigError: the folder is no local one, is an index, or is in use by another run.
        SnapshotError: the index cannot be opened.
        StoreError: the folder cannot be written to.
    """
    if "://" in order.out:
        raise ConfigError(f"--out {order.out}: give a folder of this machine")
    store = Store(order.out)
    if store.exists("snapshots") or store.exists("current"):
        raise ConfigError(f"--out {order.out} is an index; give the evaluation a folder of its own")
    store.check_writable("a folder for an evaluation")
    hold = store.try_lock(_HOLD, create=True)
    if hold is None:
        raise ConfigError(f"another run evaluates into {order.out}; wait for its end, or give another --out")
    try:
        if order.fresh:
            store.delete(_JOURNAL)
        journal = Store(f"{order.out}/{_JOURNAL}")
        for each in (store, journal):
            try:
                compact(each)
            except StoreError as error:
                logger.warning("the ledger was not compacted: %s", error)
        snapshot = None
        if order.index is not None:
            snapshot = open_current(Store(order.index), order.snapshot)
            snapshot = snapshot.cached_in(config.service.cache_dir, config.service.cache_bytes)
            config = settle_embedder(config, snapshot.manifest.embedder)
        config = await with_windows(config)
        session = Session(order, config, prompts, store, Ledger(journal), snapshot, listeners)
        try:
            yield session
        finally:
            await session.close()
    finally:
        hold.release()
