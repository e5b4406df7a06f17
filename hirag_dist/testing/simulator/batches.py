"""/v1/batches: many calls in one file, done in the background and exempt from the limits, as in the OpenAI API."""

from __future__ import annotations

import asyncio
import logging
import random
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from aiohttp import web

from hirag_dist.testing.simulator import openai_schema
from hirag_dist.testing.simulator.batch_input import BatchInput, read_input
from hirag_dist.testing.simulator.files import FileStore, page_of
from hirag_dist.testing.simulator.handlers import CHAT, EMBEDDINGS, BatchLineCall, within
from hirag_dist.testing.simulator.openai_schema import ApiError
from hirag_dist.testing.simulator.options import SimulatorOptions
from hirag_dist.testing.simulator.responses import json_response

BATCHES = "/v1/batches"

logger = logging.getLogger(__name__)
_WINDOW = "24h"
_WINDOW_S = 24 * 3600
_VALIDATING, _IN_PROGRESS = 0.1, 0.8  # shares of a batch's time; the rest is finalizing
_EXPIRED = {
    "code": "batch_expired",
    "message": "This request could not be executed before the completion window expired.",
}
_CANCELLED = {"code": "batch_cancelled", "message": "This request was not executed: the batch was cancelled."}

Perform = Callable[[str, bytes, str], Awaitable[BatchLineCall]]


@dataclass(slots=True)
class Batch:
    """One batch as it goes. `times` are the API's `…_at` fields that have come to pass, in epoch seconds."""

    id: str
    endpoint: str
    input_file_id: str
    metadata: Mapping[str, str] | None
    status: str = "validating"
    times: dict[str, int] = field(default_factory=dict)
    total: int = 0
    completed: int = 0
    failed: int = 0
    errors: list[dict[str, Any]] = field(default_factory=list)
    model: str | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def ended(self) -> bool:
        """True if the status is final."""
        return self.status in ("completed", "failed", "expired", "cancelled")

    def go(self, status: str) -> None:
        """Enter a status now."""
        self.status = status
        self.times[f"{status}_at"] = int(time.time())

    def body(self) -> dict[str, Any]:
        """Return the API's batch object."""
        names = ("in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled")
        created = self.times["created_at"]
        return {
            "id": self.id,
            "object": "batch",
            "endpoint": self.endpoint,
            "model": self.model,
            "errors": {"object": "list", "data": self.errors} if self.errors else None,
            "input_file_id": self.input_file_id,
            "completion_window": _WINDOW,
            "status": self.status,
            "output_file_id": self.output_file_id,
            "error_file_id": self.error_file_id,
            "created_at": created,
            "expires_at": created + _WINDOW_S,
            **{f"{name}_at": self.times.get(f"{name}_at") for name in names},
            "request_counts": {"total": self.total, "completed": self.completed, "failed": self.failed},
            "usage": {
                "input_tokens": self.input_tokens,
                "input_tokens_details": {"cached_tokens": self.cached_tokens},
                "output_tokens": self.output_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": self.input_tokens + self.output_tokens,
            },
            "metadata": self.metadata,
        }


class BatchesApi:
    """The handlers of /v1/batches, and the tasks that do the batches.

    Args:
        options: how long a batch takes, and the seed of the order in which its results come.
        store: of input and results.
        perform: path, body and batch id → what became of a line.
    """

    def __init__(self, options: SimulatorOptions, store: FileStore, perform: Perform) -> None:
        self._takes_s = options.batch_latency_ms / 1000.0
        self._seed = options.seed
        self._store = store
        self._perform = perform
        self._batches: dict[str, Batch] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def routes(self) -> list[web.RouteDef]:
        """Return the routes."""
        return [
            web.post(BATCHES, self._create),
            web.get(BATCHES, self._list),
            web.get(f"{BATCHES}/{{id}}", self._retrieve),
            web.post(f"{BATCHES}/{{id}}/cancel", self._cancel),
        ]

    def by_status(self) -> dict[str, int]:
        """Return how many batches there are in each status."""
        return dict(Counter(batch.status for batch in self._batches.values()))

    async def close(self) -> None:
        """End the tasks; what they had not finished is lost."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _create(self, request: web.Request) -> web.StreamResponse:
        batch = self._batch(openai_schema.read_object(await request.read()))
        batch.times["created_at"] = int(time.time())
        self._batches[batch.id] = batch
        task = asyncio.create_task(self._run(batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return json_response(batch.body())

    async def _list(self, request: web.Request) -> web.StreamResponse:
        return json_response(page_of(list(reversed(self._batches.values())), request.query, 20, 100))

    async def _retrieve(self, request: web.Request) -> web.StreamResponse:
        return json_response(self._get(request).body())

    async def _cancel(self, request: web.Request) -> web.StreamResponse:
        batch = self._get(request)
        if batch.ended:
            raise ApiError(409, f"Cannot cancel a batch with status '{batch.status}'.")
        if not batch.cancelled.is_set():
            batch.go("cancelling")
            batch.cancelled.set()
        return json_response(batch.body())

    def _get(self, request: web.Request) -> Batch:
        batch_id = request.match_info["id"]
        if batch_id not in self._batches:
            raise ApiError(404, f"No batch found with id '{batch_id}'.", param="id")
        return self._batches[batch_id]

    def _batch(self, body: Mapping[str, Any]) -> Batch:
        """Return a new batch. Raises ApiError 400 that names the field at fault."""
        for name in ("input_file_id", "endpoint", "completion_window"):
            if not isinstance(body.get(name), str):
                raise ApiError(400, f"Missing required parameter: '{name}'.", "missing_required_parameter", name)
        if body["endpoint"] not in (CHAT, EMBEDDINGS):
            said = f"Invalid value: '{body['endpoint']}'. Supported values are: '{CHAT}' and '{EMBEDDINGS}'."
            raise ApiError(400, said, "invalid_value", "endpoint")
        if body["completion_window"] != _WINDOW:
            said = f"Invalid value: '{body['completion_window']}'. Value must be '{_WINDOW}'."
            raise ApiError(400, said, "invalid_value", "completion_window")
        try:
            purpose = self._store.get(body["input_file_id"]).purpose
        except ApiError as error:
            raise ApiError(400, str(error), "invalid_value", "input_file_id") from error
        if purpose != "batch":
            said = f"Invalid 'input_file_id': its purpose is '{purpose}'; upload it with purpose 'batch'."
            raise ApiError(400, said, "invalid_value", "input_file_id")
        metadata = _metadata(body.get("metadata"))
        return Batch(f"batch_{uuid.uuid4().hex}", body["endpoint"], body["input_file_id"], metadata)

    async def _run(self, batch: Batch) -> None:
        try:
            started = time.monotonic()
            read = await read_input(self._store.get(batch.input_file_id).path, batch.endpoint)
            await self._pause(batch, started + self._takes_s * _VALIDATING)
            if read.errors:
                batch.errors = read.errors
                batch.go("failed")
                return
            batch.model, batch.total = read.model, len(read)
            if not batch.cancelled.is_set():
                batch.go("in_progress")
            await self._do(batch, read, started)
        except Exception:  # a file that was deleted under it, or a failure of the model
            logger.exception("batch %s failed", batch.id)
            batch.errors = [{"code": "server_error", "message": "The batch failed.", "param": None, "line": None}]
            batch.go("failed")

    async def _do(self, batch: Batch, read: BatchInput, started: float) -> None:
        order = _shuffled(len(read), f"{self._seed}/{read.digest}")
        begins, lasts = started + self._takes_s * _VALIDATING, self._takes_s * _IN_PROGRESS
        results = _Results(self._store, batch.id)
        expired = False
        try:
            for done, line in enumerate(read.lines(order), start=1):
                await self._pause(batch, begins + lasts * done / len(order))
                if batch.cancelled.is_set():
                    batch.failed += 1
                    results.add_unsent(line.custom_id, _CANCELLED)
                    continue
                ended = await self._perform(batch.endpoint, line.body, batch.id)
                if ended.status is None:
                    expired = True
                    batch.failed += 1
                    results.add_unsent(line.custom_id, _EXPIRED)
                    continue
                results.add(line.custom_id, ended.status, ended.body)
                if ended.made is None:
                    batch.failed += 1
                    continue
                batch.completed += 1
                batch.input_tokens += ended.made.input_tokens
                batch.cached_tokens += ended.made.cached_tokens
                batch.output_tokens += ended.made.output_tokens
            if not batch.cancelled.is_set():
                batch.go("finalizing")
            await self._pause(batch, started + self._takes_s)
        finally:
            batch.output_file_id, batch.error_file_id = results.finish()
        cancelled = batch.cancelled.is_set()
        batch.go("cancelled" if cancelled else "expired" if expired else "completed")

    @staticmethod
    async def _pause(batch: Batch, until: float) -> None:
        """Let other calls go on, until a time of the monotonic clock or the batch's cancellation."""
        await asyncio.sleep(0)
        left_s = until - time.monotonic()
        if left_s > 0 and not batch.cancelled.is_set():
            await within(batch.cancelled, left_s)


class _Results:
    """The output file and the error file of a batch; one without lines is not made."""

    def __init__(self, store: FileStore, batch_id: str) -> None:
        self._store = store
        self._batch_id = batch_id
        self._files: dict[str, BinaryIO] = {}

    def add(self, custom_id: str, status: int, body: bytes) -> None:
        """Add a line that was done: to the output file with status 200, else to the error file."""
        head = openai_schema.dump({"id": f"batch_req_{uuid.uuid4().hex}", "custom_id": custom_id})[:-1]
        named = openai_schema.dump({"status_code": status, "request_id": uuid.uuid4().hex})[:-1]
        line = head + b',"response":' + named + b',"body":' + body + b'},"error":null}\n'
        self._file("output" if status == 200 else "error").write(line)

    def add_unsent(self, custom_id: str, error: Mapping[str, str]) -> None:
        """Add a line that was not done to the error file."""
        line = {"id": f"batch_req_{uuid.uuid4().hex}", "custom_id": custom_id, "response": None, "error": error}
        self._file("error").write(openai_schema.dump(line) + b"\n")

    def finish(self) -> tuple[str | None, str | None]:
        """Return the ids of the output file and of the error file."""
        ids = {
            kind: self._store.finish(file, f"{self._batch_id}_{kind}.jsonl", "batch_output").id
            for kind, file in self._files.items()
        }
        return ids.get("output"), ids.get("error")

    def _file(self, kind: str) -> BinaryIO:
        if kind not in self._files:
            self._files[kind] = self._store.begin()
        return self._files[kind]


def _metadata(given: object) -> Mapping[str, str] | None:
    if given is None:
        return None
    fits = isinstance(given, dict) and len(given) <= 16
    if not fits or not all(isinstance(v, str) and len(k) <= 64 and len(v) <= 512 for k, v in given.items()):  # type: ignore[attr-defined]
        said = "Invalid 'metadata': at most 16 pairs of strings, keys of 64 and values of 512 characters at most."
        raise ApiError(400, said, "invalid_value", "metadata")
    return given  # type: ignore[return-value]


def _shuffled(n: int, seed: str) -> list[int]:
    """Return the numbers below n in an order that is not theirs, where there are two."""
    order = list(range(n))
    random.Random(seed).shuffle(order)
    return order if order != list(range(n)) else order[::-1]
