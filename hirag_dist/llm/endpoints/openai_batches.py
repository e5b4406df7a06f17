"""The Batch API of an OpenAI-compatible endpoint: files in, files out, a day's time, half the price."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

from hirag_dist.core.text.normalize import one_line, shorten
from hirag_dist.errors import BackendUnavailable, ModelUnavailable, StoreError, UnusableReply
from hirag_dist.llm.batch_api import CHAT_URL, BatchLine, BatchState, OversizedFile, parse_custom_id
from hirag_dist.llm.endpoints.openai_chat import FILTERED, OpenAiChat
from hirag_dist.llm.endpoints.openai_client import EndpointClient, EndpointRefused, error_codes
from hirag_dist.llm.endpoints.openai_replies import UnusableField, message_text, name, parse_object

_OWN = "hirag_dist"  # the metadata key of the batch id that the driver chose
_NOT_THERE = frozenset({404, 405})
_LATER = frozenset({408, 409, 425, 429})  # of a line: it may be answered another time
_SLACK_S = 3600.0  # by which the endpoint's clock may be behind the local one
_PIECE_BYTES = 1 << 20
_MAX_PAGES = 1000  # of a list of batches
_MAX_ERRORS = 3  # that a message names
_SHOWN_CHARS = 200


@dataclass(frozen=True, slots=True)
class _Batch:
    """A batch as the endpoint describes it, every field checked."""

    id: str
    status: str
    own_id: str
    created_at: float  # infinity where it is not known: the search goes on behind it
    files: tuple[str, ...]
    errors: tuple[tuple[str, str], ...]  # code and message


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

    async def upload(self, file_name: str, content: BinaryIO) -> str:
        """Return the id of the uploaded lines."""
        content.seek(0)
        try:
            with self._client.calling() as client:
                answer = await client.files.with_raw_response.create(file=(file_name, content), purpose="batch")
                return self._id(self._client.parse(answer.content), "an uploaded file")
        except EndpointRefused as error:
            raise self._explained(error) from error

    async def create(self, file_id: str, own_id: str) -> BatchState:
        """Begin a batch that `find` knows by `own_id`."""
        try:
            with self._client.calling() as client:
                answer = await client.batches.with_raw_response.create(
                    input_file_id=file_id, endpoint=CHAT_URL, completion_window="24h", metadata={_OWN: own_id}
                )
                return self._state(self._batch(self._client.parse(answer.content)))
        except EndpointRefused as error:
            raise self._explained(error) from error

    async def find(self, own_id: str, since: float) -> BatchState | None:
        """Return the batch that was begun with an id at `since` (seconds of the epoch) or later; None for none."""
        last: str | None = None
        for _ in range(_MAX_PAGES):
            page = await self._page(last)
            for batch in page:  # newest first
                if batch.own_id == own_id:
                    return self._state(batch)
                if batch.created_at < since - _SLACK_S:
                    return None
            if not page or page[-1].id == last:
                return None
            last = page[-1].id
        return None

    async def state(self, batch_id: str) -> BatchState:
        """Return how a batch is."""
        with self._client.calling() as client:
            answer = await client.batches.with_raw_response.retrieve(batch_id)
            return self._state(self._batch(self._client.parse(answer.content)))

    async def download(self, file_id: str, to: BinaryIO, max_bytes: int) -> None:
        """Write what a batch wrote to a file, from its beginning.

        Raises:
            StoreError: the file cannot be written.
            OversizedFile: it has more bytes.
        """
        to.seek(0)
        to.truncate()
        n_bytes = 0
        with self._client.calling() as client:
            async with client.files.with_streaming_response.content(file_id) as response:
                async for piece in response.iter_bytes(_PIECE_BYTES):
                    n_bytes += len(piece)
                    if n_bytes > max_bytes:
                        raise OversizedFile(f"{self._client.who} gives a batch a file of over {max_bytes:,} bytes")
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
            data = parse_object(line)
        except UnusableField:
            return BatchLine("", None)
        custom_id = data.get("custom_id")
        key, input_tokens = parse_custom_id(custom_id if isinstance(custom_id, str) else "")
        response = data.get("response")
        answered: Mapping[str, Any] = response if isinstance(response, dict) else {}
        status, body = answered.get("status_code"), answered.get("body")
        if status == 200 and isinstance(body, dict):
            try:
                return BatchLine(key, self._chat.batch_reply(body, input_tokens), counted=input_tokens)
            except ModelUnavailable:  # without a choice: another time it may have one
                return BatchLine(key, None)
        error = body.get("error") if isinstance(body, dict) else None
        if isinstance(error, dict) and FILTERED.intersection(error_codes(error)):
            return BatchLine(key, self._chat.filtered(input_tokens))
        return BatchLine(key, None, isinstance(status, int) and 400 <= status < 500 and status not in _LATER)

    async def close(self) -> None:
        """Close connections."""
        await self._client.close()

    async def _page(self, after: str | None) -> list[_Batch]:
        """Return a page of the list of batches, after the one of an id; those that cannot be read are left out."""
        with self._client.calling() as client:
            listing = client.batches.with_raw_response
            answer = await (listing.list(limit=100) if after is None else listing.list(limit=100, after=after))
            items = self._client.parse(answer.content).get("data")
        found = []
        for item in items if isinstance(items, list) else ():
            try:
                found.append(self._batch(item))
            except UnusableReply:
                continue
        return found

    def _batch(self, data: object) -> _Batch:
        """Return a batch. Raises UnusableReply where it has no id."""
        fields: Mapping[str, Any] = data if isinstance(data, dict) else {}
        metadata, errors = fields.get("metadata"), fields.get("errors")
        own_id = metadata.get(_OWN) if isinstance(metadata, dict) else None
        listed = errors.get("data") if isinstance(errors, dict) else None
        created_at = fields.get("created_at")
        return _Batch(
            self._id(fields, "a batch"),
            name(fields.get("status")),
            own_id if isinstance(own_id, str) else "",
            float(created_at) if isinstance(created_at, int) and 0 <= created_at < 1 << 60 else math.inf,
            tuple(found for key in ("output_file_id", "error_file_id") if (found := name(fields.get(key)))),
            tuple(
                (name(each.get("code")), shorten(one_line(message_text(each.get("message"))), _SHOWN_CHARS))
                for each in (listed[:_MAX_ERRORS] if isinstance(listed, list) else ())
                if isinstance(each, dict)
            ),
        )

    def _id(self, fields: Mapping[str, Any], what: str) -> str:
        found = name(fields.get("id"))
        if not found:
            raise UnusableReply(f"{self._client.who} answered without the id of {what}")
        return found

    def _state(self, batch: _Batch) -> BatchState:
        ended = batch.status in ("completed", "failed", "expired", "cancelled")
        problem = ""
        if batch.status == "failed":
            said = "; ".join(f"{message} ({code})" for code, message in batch.errors) or "it does not say why"
            hint = (
                "set llm.batch_lines lower"
                if any("limit" in code for code, _ in batch.errors)
                else "without --batch its calls are sent one by one"
            )
            problem = f"batch {batch.id} of endpoint {self._name} failed and was not done: {said}; {hint}"
        elif batch.status == "cancelled":
            problem = f"batch {batch.id} of endpoint {self._name} was cancelled there; run again to ask what is left"
        return BatchState(batch.id, ended, problem, batch.files)

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
