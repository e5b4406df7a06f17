"""Embeddings through the same ledger and rate limiter as chat: one permit per request, each stored on arrival."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import math
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.text.normalize import one_line, shorten
from hirag_dist.errors import ContextLengthExceeded, RequestRejected
from hirag_dist.llm.call import Call, CallContext, CallReply, PaidReply, PricedByToken, finish_if_sent
from hirag_dist.llm.key_locks import KeyLocks
from hirag_dist.llm.reply_store import Ledger
from hirag_dist.llm.reply_store.block_format import token_count
from hirag_dist.llm.retry import RetriedCalls
from hirag_dist.protocols import Embedder
from hirag_dist.types import FloatMatrix

_SHOWN_CHARS = 80  # of a text that is refused
_MAX_REFUSED = 8  # texts that are refused one after the other, before the endpoint is at fault
_MAX_FIRST = 3  # the same where it has given no vector yet
_MAX_FAILURES = 3  # of a request for several texts, before one of them is looked for that is at fault
_MAX_FAILURES_ALONE = 5  # of a request for one text, while others are answered


@runtime_checkable
class PaidEmbedder(Protocol):
    """An embedder that is paid by the token. Each call of `request` is one request; it splits nothing itself.

    Attributes:
        identity: the name, with the settings that its vectors depend on; for keys.
        batch_size, batch_tokens: texts, and tokens of all of them, that one request may hold.
    """

    name: str
    dim: int
    identity: str
    batch_size: int
    batch_tokens: int

    def fitted(self, text: str) -> tuple[str, int]:
        """Return a text as it is sent, cut where it is too long, and its tokens."""

    async def request(self, texts: Sequence[str], /) -> PaidReply[FloatMatrix]:
        """Return (n_texts, dim) float32 vectors of texts that were fitted, none of them blank.

        Raises as `protocols.ChatModel` does.
        """

    async def close(self) -> None:
        """Close connections."""


@dataclass(frozen=True)
class PricedEmbedder(PricedByToken[PaidEmbedder]):
    """An embedder at an endpoint. Implements `llm.call.CallTarget`."""

    operation: ClassVar[str] = "embeddings"

    async def ping(self, call: EmbeddingCall) -> bool:
        """Embed one word and count its cost."""
        await self.send(replace(call, payload=["word"], tokens=1))
        return True


EmbeddingCall = Call[Sequence[str], FloatMatrix]


def in_requests(tokens: Sequence[int], batch_size: int, batch_tokens: int) -> Iterator[slice]:
    """Yield the slice of texts of each request, for texts of so many tokens each.

    A text of more than `batch_tokens` has a request to itself.

    >>> [(part.start, part.stop) for part in in_requests([5, 4, 1, 9, 2], batch_size=3, batch_tokens=10)]
    [(0, 3), (3, 4), (4, 5)]
    """
    first = used = 0
    for at, n_tokens in enumerate(tokens):
        if at > first and (at - first == batch_size or used + n_tokens > batch_tokens):
            yield slice(first, at)
            first, used = at, 0
        used += n_tokens
    if first < len(tokens):
        yield slice(first, len(tokens))


class PaidVector(NamedTuple):
    """A text's vector, as it is stored, and the tokens that were paid for it."""

    row: NDArray[np.float32]
    tokens: int


@dataclass(frozen=True, slots=True)
class _Part:
    """The texts of one request: the key, the text as it is sent, and its tokens by our count."""

    keys: Sequence[str]
    texts: Sequence[str]
    tokens: Sequence[int]

    def __getitem__(self, part: slice) -> _Part:
        return _Part(self.keys[part], self.texts[part], self.tokens[part])


@dataclass(slots=True)
class _Observed:
    """What was seen of an endpoint."""

    ratio: float = 1.0  # the largest ratio of its token count to the local one
    has_answered: bool = False  # whether it gave any vector


_Turn = asyncio.Future[PaidVector | str | None]
"""The vector, or why there is none. None: the request failed; cancelled: its caller was cancelled."""


class TextsRefused(RequestRejected):
    """Some texts have no vector, the others have theirs.

    Attributes:
        vectors: (n_texts, dim) float32 rows of unit length, zeros for the texts that were refused.
        reasons: Row of a refused text → why, with its beginning and what can be done.
    """

    def __init__(self, vectors: FloatMatrix, reasons: Mapping[int, str]) -> None:
        super().__init__(next(iter(reasons.values())))
        self.vectors = vectors
        self.reasons = reasons

    def __reduce__(self) -> tuple[type[TextsRefused], tuple[FloatMatrix, Mapping[int, str]]]:
        return (type(self), (self.vectors, self.reasons))


class LedgerEmbedder:
    """Asks a paid embedder for the texts whose vectors are not in the ledger. Implements `protocols.Embedder`.

    Args:
        ledger: where vectors are kept; None keeps none, for questions.
        locks: as of `EndpointPool`.
    """

    def __init__(
        self,
        target: PricedEmbedder,
        ledger: Ledger | None,
        retried: RetriedCalls,
        context: CallContext | None = None,
        locks: KeyLocks | None = None,
    ) -> None:
        self.name, self.dim = target.model.name, target.model.dim
        self._target = target
        self._ledger = ledger
        self._retried = retried
        self._context = CallContext() if context is None else context
        self._locks = locks
        self._observed = _Observed()
        self._turns: dict[str, _Turn] = {}
        self._unusable: set[str] = set()  # keys of stored vectors that cannot be used
        self._refused: set[str] = set()  # keys of texts that were refused since the last that was not

    def with_context(self, context: CallContext) -> LedgerEmbedder:
        """Return a view of this embedder whose calls carry another context."""
        view = copy(self)
        view._context = context
        return view

    async def embed(self, texts: Sequence[str]) -> FloatMatrix:
        """Return (len(texts), dim) float32 rows of unit length. Equal texts are sent once, also of calls at a time.

        When a request fails, the other requests have ended and are stored before the failure rises.

        Raises:
            TextsRefused: some texts have no vector.
            ModelError: the endpoint does not answer, or refuses every text.
            BudgetReached: a request would pass a spending limit.
            StoreError: vectors could not be made durable.
        """
        identity = self._target.model.identity
        keys = [vector_key(identity, self.dim, text) for text in texts]
        found = await self._found({key: text for key, text in zip(keys, texts, strict=True) if text.strip()})
        vectors = np.zeros((len(texts), self.dim), np.float32)
        reasons: dict[int, str] = {}
        for row, key in enumerate(keys):
            vector = found.get(key)
            if isinstance(vector, str):
                reasons[row] = vector
            elif vector is not None:
                vectors[row] = vector.row
        if reasons:
            raise TextsRefused(vectors, reasons)
        return vectors

    async def close(self) -> None:
        """Close connections."""
        await self._target.model.close()

    async def _found(self, wanted: Mapping[str, str]) -> dict[str, PaidVector | str]:
        """Return the vectors of texts, or why there is none, by key. Requests for other callers are waited for."""
        found: dict[str, PaidVector | str] = {}
        failed: set[str] = set()  # for another caller; asked for here without waiting again
        while missing := {key: text for key, text in wanted.items() if key not in found}:
            others = {key: turn for key in missing if key not in failed and (turn := self._turns.get(key)) is not None}
            own = {key: text for key, text in missing.items() if key not in others}
            if own:
                found |= await self._taken(own)
            if others:
                await asyncio.wait(others.values())
            ended = {key: turn.result() for key, turn in others.items() if not turn.cancelled()}
            shared = {key: vector for key, vector in ended.items() if vector is not None}
            failed |= ended.keys() - shared.keys()
            found |= shared
            if self._ledger is not None:
                self._count_paid({key: vector for key, vector in shared.items() if isinstance(vector, PaidVector)})
        return found

    async def _taken(self, own: Mapping[str, str]) -> dict[str, PaidVector | str]:
        """Return the vectors of texts without a request in flight. Callers that need them meanwhile wait for these."""
        loop = asyncio.get_running_loop()
        turns: dict[str, _Turn] = {key: loop.create_future() for key in own}
        self._turns |= turns  # before the ledger is looked at: what it does not have is asked for once
        try:
            await self._take_stored(own, turns)
            if self._locks is None:
                await _all_ended(self._ask(part, turns) for part in self._parts(own, turns))
            else:
                await self._ask_locked(own, turns, self._locks)
            return {key: found for key, turn in turns.items() if (found := turn.result()) is not None}
        except asyncio.CancelledError:
            for turn in turns.values():
                turn.cancel()
            raise
        finally:
            for key, turn in turns.items():
                if self._turns.get(key) is turn:
                    del self._turns[key]
                if not turn.done():
                    turn.set_result(None)

    async def _ask_locked(self, own: Mapping[str, str], turns: Mapping[str, _Turn], locks: KeyLocks) -> None:
        """Request the texts that no other worker requests; wait for the vectors of the others."""
        while missing := {key: text for key, text in own.items() if not turns[key].done()}:
            async with locks.hold(missing) as held:
                await self._take_stored(missing, turns)
                taken = {key: text for key, text in missing.items() if key in held}
                await _all_ended(self._ask(part, turns) for part in self._parts(taken, turns))

    async def _take_stored(self, keys: Mapping[str, str], turns: Mapping[str, _Turn]) -> None:
        """Set the results of those texts whose vectors are in the ledger."""
        if self._ledger is None:
            return
        records = await self._ledger.get_many(list(keys))
        found = {key: stored_vector(record, self.dim) for key, record in records.items()}
        vectors = {key: vector for key, vector in found.items() if vector is not None}
        self._unusable |= found.keys() - vectors.keys()
        self._count_paid(vectors)
        for key, vector in vectors.items():
            turns[key].set_result(vector)

    def _count_paid(self, vectors: Mapping[str, PaidVector]) -> None:
        """Count vectors that were paid for earlier, or for another caller."""
        if not vectors:
            return
        tokens = sum(vector.tokens for vector in vectors.values())
        n_calls = -(-len(vectors) // self._target.model.batch_size)
        use = self._context.meter.use("embed", self.name, self._target.endpoint)
        use.calls += n_calls
        use.ledger_hits += n_calls
        use.input_tokens += tokens
        use.cost_usd += self._target.billed(tokens)

    def _parts(self, own: Mapping[str, str], turns: Mapping[str, _Turn]) -> Iterator[_Part]:
        """Yield the texts that are still missing, split into requests."""
        embedder = self._target.model
        keys = [key for key in own if not turns[key].done()]
        fitted = [embedder.fitted(own[key]) for key in keys]
        whole = _Part(keys, [text for text, _ in fitted], [n_tokens for _, n_tokens in fitted])
        return (whole[part] for part in in_requests(whole.tokens, embedder.batch_size, embedder.batch_tokens))

    async def _ask(self, part: _Part, turns: Mapping[str, _Turn]) -> None:
        """Request a part; a refused part is halved until the texts at fault are found.

        Raises:
            RequestRejected: the endpoint refuses every text, as far as was tried.
        """
        try:
            await self._call(part, turns)
            self._refused.clear()
            self._observed.has_answered = True
            return
        except RequestRejected as error:
            if error.fatal:
                raise
            if len(part.texts) == 1:
                begins = shorten(one_line(part.texts[0]), _SHOWN_CHARS)
                reason = (
                    f"no vector for the text that begins {begins!r}: {error}; change that text, or set llm.roles.embed "
                    "to an endpoint that takes it"
                )
                if not isinstance(error, ContextLengthExceeded):
                    self._refused.add(part.keys[0])
                limit = _MAX_REFUSED if self._observed.has_answered else _MAX_FIRST
                if self._ledger is None or len(self._refused) >= limit:
                    raise RequestRejected(reason) from error
                if not turns[part.keys[0]].done():
                    turns[part.keys[0]].set_result(reason)
                return
        half = len(part.texts) // 2
        for each in (part[:half], part[half:]):  # not at once: where all are refused, a few requests show it
            await self._ask(each, turns)

    async def _call(self, part: _Part, turns: Mapping[str, _Turn]) -> None:
        """Make one request. Its vectors are stored, then they are the results of their futures."""
        tokens = sum(part.tokens)
        max_tokens = math.ceil(tokens * self._observed.ratio)
        call = Call(part.texts, [self._target], "embed", tokens, max_tokens, context=self._context)
        call.max_failures = _MAX_FAILURES if len(part.texts) > 1 else _MAX_FAILURES_ALONE
        work = self._store_vectors(call, part, turns)
        await (work if self._ledger is None else finish_if_sent(call, work))

    async def _store_vectors(
        self, call: EmbeddingCall, part: _Part, turns: Mapping[str, _Turn]
    ) -> CallReply[FloatMatrix]:
        answered = await self._retried(call)
        self._observed.ratio = max(self._observed.ratio, answered.tokens / max(call.tokens, 1))
        vectors = _shared(part, answered)
        if self._ledger is not None:
            records = {key: {"vector": row.tobytes(), "tokens": tokens} for key, (row, tokens) in vectors.items()}
            await self._ledger.put_many(records, self._unusable)
            call.context.stored.update(records)
        for key, vector in vectors.items():
            if not turns[key].done():
                turns[key].set_result(vector)
        return answered


def embedder_identity(embedder: Embedder) -> str:
    """Return the name of an embedder with the settings that its vectors depend on; for keys."""
    paid = embedder._target.model if isinstance(embedder, LedgerEmbedder) else embedder
    return paid.identity if isinstance(paid, PaidEmbedder) else embedder.name


def vector_key(identity: str, dim: int, text: str) -> str:
    """Return the ledger key of a text's vector: a hash of the text, and of the embedder's identity and size."""
    return hashlib.sha256(f"embed|{identity}|{dim}|{text}".encode("utf-8", "surrogatepass")).hexdigest()[:40]


def with_context(embedder: Embedder, context: CallContext) -> Embedder:
    """Return an embedder whose calls carry a context; local models make no calls."""
    return embedder.with_context(context) if isinstance(embedder, LedgerEmbedder) else embedder


def _shared(part: _Part, found: CallReply[FloatMatrix]) -> dict[str, PaidVector]:
    """Return the vectors by key; the tokens that were used are split in proportion to the local token counts."""
    ends = list(accumulate(part.tokens, initial=0))
    upto = [found.tokens * end // max(ends[-1], 1) for end in ends]  # whole numbers that add up to what was used
    rows = np.ascontiguousarray(found.value, "<f4")
    shares = (end - start for start, end in pairwise(upto))
    return {key: PaidVector(row, share) for key, row, share in zip(part.keys, rows, shares, strict=True)}


def stored_vector(record: Mapping[str, Any], dim: int) -> PaidVector | None:
    """Return the vector of a ledger record; None where it cannot be used, so that it counts as absent."""
    kept = record.get("vector")
    try:
        data = base64.b64decode(kept) if isinstance(kept, str) else kept  # text in ledgers of earlier versions
        row = np.frombuffer(data, "<f4") if isinstance(data, bytes) else np.zeros(0, np.float32)
    except ValueError:
        return None
    usable = len(row) == dim and bool(np.all(np.isfinite(row)))
    return PaidVector(row, token_count(record.get("tokens")) or 0) if usable else None


async def _all_ended(calls: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Wait until every call has ended; then raise the first failure."""
    for outcome in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
