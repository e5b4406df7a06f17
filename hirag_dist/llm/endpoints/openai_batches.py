"""The Batch API of an OpenAI-compatible endpoint: files in, files out, a day's time, half the price."""

from __future__ import annotations

import json
from typing import Any, BinaryIO

from openai.types import Batch

from hirag_dist.errors import BackendUnavailable, ModelUnavailable, StoreError
from hirag_dist.llm.batch_api import CHAT_URL, BatchLine, BatchState, parse_custom_id
from hirag_dist.llm.endpoints.openai_chat import FILTERED, OpenAiChat
from hirag_dist.llm.endpoints.openai_client import EndpointClient, EndpointRefused

_OWN = "hirag_dist"  # the metadata key of the batch id that the driver chose
_NOT_THERE = frozenset({404, 405})
_LATER = frozenset({408, 409, 425, 429})  # of a line: it may be answered another time
_SLACK_S = 3600.0  # by which the endpoint's clock may be behind the local one
_PIECE_BYTES = 1 << 20


class OpenAiBatches:
    """Implements `llm.batch_api.BatchEndpoint`.

    Args:
        chat: the model that the lines are for; it reads their replies.
    """

    def __init__(self, chat: OpenAiChat) -> None:
        self._chat = chat
        self._client = EndpointClient(chat.settings)

    async def check(self) -> None:
        """Raise BackendUnavailable where the endpoint takes no batches."""
        try:
            with self._client.calling() as client:
                await client.batches.list(limit=1)
        except EndpointRefused as error:
            raise self._explained(error) from error

    async def upload(self, name: str, content: BinaryIO) -> str:
        """Return the id of the uploaded lines."""
        content.seek(0)
        try:
            with self._client.calling() as client:
                stored = await client.files.create(file=(name, content), purpose="batch")
        except EndpointRefused as error:
            raise self._explained(error) from error
        return stored.id

    async def create(self, file_id: str, own_id: str) -> BatchState:
        """Begin a batch that `find` knows by `own_id`."""
        try:
            with self._client.calling() as client:
                batch = await client.batches.create(
                    input_file_id=file_id, endpoint=CHAT_URL, completion_window="24h", metadata={_OWN: own_id}
                )
        except EndpointRefused as error:
            raise self._explained(error) from error
        return self._state(batch)

    async def find(self, own_id: str, since: float) -> BatchState | None:
        """Return the batch that was begun with an id at `since` (seconds of the epoch) or later; None for none."""
        with self._client.calling() as client:
            async for batch in client.batches.list(limit=100):  # newest first
                if (batch.metadata or {}).get(_OWN) == own_id:
                    return self._state(batch)
                if batch.created_at < since - _SLACK_S:
                    break
        return None

    async def state(self, batch_id: str) -> BatchState:
        """Return how a batch is."""
        with self._client.calling() as client:
            return self._state(await client.batches.retrieve(batch_id))

    async def download(self, file_id: str, to: BinaryIO) -> None:
        """Write what a batch wrote to a file, from its beginning.

        Raises:
            StoreError: the file cannot be written.
        """
        to.seek(0)
        to.truncate()
        with self._client.calling() as client:
            async with client.files.with_streaming_response.content(file_id) as response:
                async for piece in response.iter_bytes(_PIECE_BYTES):
                    try:
                        to.write(piece)
                    except OSError as error:
                        raise StoreError(f"cannot keep the results of a batch on this machine: {error}") from error

    async def remove(self, file_id: str) -> None:
        """Remove a file."""
        with self._client.calling() as client:
            await client.files.delete(file_id)

    def read(self, line: bytes) -> BatchLine:
        """Return the outcome that a line of a batch's files reports."""
        try:
            data = json.loads(line)
        except ValueError:
            data = None
        if not isinstance(data, dict):
            return BatchLine("", None)
        key, input_tokens = parse_custom_id(str(data.get("custom_id")))
        response: Any = data.get("response") or {}
        status, body = response.get("status_code"), response.get("body")
        if status == 200 and isinstance(body, dict):
            try:
                return BatchLine(key, self._chat.batch_reply(body, input_tokens), counted=input_tokens)
            except ModelUnavailable:  # without a choice: another time it may have one
                return BatchLine(key, None)
        error = body.get("error") if isinstance(body, dict) else None
        if isinstance(error, dict) and FILTERED & {error.get("code"), error.get("type")}:
            return BatchLine(key, self._chat.filtered(input_tokens))
        return BatchLine(key, None, isinstance(status, int) and 400 <= status < 500 and status not in _LATER)

    async def close(self) -> None:
        """Close connections."""
        await self._client.close()

    def _state(self, batch: Batch) -> BatchState:
        files = tuple(file for file in (batch.output_file_id, batch.error_file_id) if file)
        ended = batch.status in ("completed", "failed", "expired", "cancelled")
        problem = ""
        if batch.status == "failed":
            errors = (batch.errors.data if batch.errors else None) or []
            said = "; ".join(f"{error.message} ({error.code})" for error in errors[:3]) or "it does not say why"
            hint = (
                "set llm.batch_lines lower"
                if any("limit" in str(error.code) for error in errors)
                else "without --batch its calls are sent one by one"
            )
            problem = f"batch {batch.id} of endpoint {self._name} failed and was not done: {said}; {hint}"
        elif batch.status == "cancelled":
            problem = f"batch {batch.id} of endpoint {self._name} was cancelled there; run again to ask what is left"
        return BatchState(batch.id, ended, problem, files)

    def _explained(self, error: EndpointRefused) -> Exception:
        if error.status not in _NOT_THERE:
            return error
        return BackendUnavailable(
            f"endpoint {self._name} takes no batches (it answered {error.status}): leave --batch out, or set "
            "llm.batch: false"
        )

    @property
    def _name(self) -> str:
        return self._chat.settings.name
