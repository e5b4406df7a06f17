"""Replies replayed from recordings: what a model once answered, found by what it was asked about."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import fs

from hirag_dist.config.object_stores import store_uri
from hirag_dist.core.text.ids import content_id
from hirag_dist.core.text.normalize import encodable, one_line
from hirag_dist.errors import ConfigError, RequestRejected
from hirag_dist.llm.reply_store.block_format import token_count
from hirag_dist.protocols import ChatModel
from hirag_dist.types import ChatReply, ChatRequest, RateLimits

_PIECE_CHARS = 16

Key = tuple[str, str, int]


class RecordedModel:
    """A `ChatModel` that answers from JSONL files.

    A line is `{"role", "unit", "round", "reply"}`, with `model`, `finish_reason`, `input_tokens`, `output_tokens` and
    `request` (from `request_hash`) where known. Other lines are passed over.

    A reply is found by role, unit and round, then by the request's hash; of several for the same the first counts.

    Args:
        paths: files or folders (of which all *.jsonl are read), local or URIs that pyarrow knows; compressed too.
        fallback: asked for what was not recorded; None refuses it.
        count_tokens: counts where the recording does not say; None leaves 0.
        model: only replies of this model are taken; None takes all.

    Attributes:
        name: holds a digest of what was recorded, so that another recording is another model.
        recorded: replies given from the recording.
        fallbacks: replies given by the fallback.

    Raises:
        ConfigError: a path cannot be read, a line is no JSON, or nothing can be replayed.
    """

    rate_limits: RateLimits | None = None

    def __init__(
        self,
        paths: str | Sequence[str],
        fallback: ChatModel | None = None,
        count_tokens: Callable[[str], int] | None = None,
        model: str | None = None,
    ) -> None:
        self.recorded = self.fallbacks = 0
        self._fallback = fallback
        self._count = count_tokens
        self._replies: dict[Key, _Recorded] = {}
        self._by_request: dict[str, _Recorded] = {}
        shown = [paths] if isinstance(paths, str) else list(paths)
        for path in shown:
            for row in _rows(path):
                self._take(row, model)
        if not self._replies and not self._by_request:
            of_model = f" of the model {model}" if model else ""
            raise ConfigError(f"recorded: {', '.join(shown)} holds no reply{of_model} that can be replayed")
        items = sorted((*key[:2], str(key[2]), reply.text) for key, reply in self._replies.items())
        items += sorted((key, reply.text) for key, reply in self._by_request.items())  # type: ignore[misc]
        digest = content_id(*(part for item in items for part in item))[:12]
        self.name = f"recorded:{digest}" + (f"+{fallback.name}" if fallback else "")

    def __len__(self) -> int:
        """Replies that can be found by what they are about."""
        return len(self._replies)

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of replies by source: recorded, fallback."""
        return {"recorded": self.recorded, "fallback": self.fallbacks}

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Return the recorded reply as it is, whatever form the request asks for, or the fallback's.

        Raises:
            RequestRejected: nothing was recorded and there is no fallback.
        """
        found = self._find(request)
        if found is None:
            recorded_alone = any((request.role, unit, request.round) in self._replies for unit in request.packed)
            if self._fallback is None or recorded_alone:  # a refused pack is asked unit by unit
                raise _missing(request)
            reply = await self._fallback.complete(request)
            self.fallbacks += 1
            return reply
        self.recorded += 1
        input_tokens = token_count(found.input_tokens)
        if input_tokens is None and self._count is not None:
            input_tokens = sum(self._count(message.content) for message in request.messages)
        output_tokens = token_count(found.output_tokens)
        if output_tokens is None and self._count is not None:
            output_tokens = self._count(found.text)
        return ChatReply(
            text=encodable(found.text),
            finish_reason=found.finish_reason,
            model=f"recorded:{found.model}" if found.model else "recorded",
            input_tokens=input_tokens or 0,
            output_tokens=output_tokens or 0,
        )

    async def stream(self, request: ChatRequest) -> AsyncGenerator[str | ChatReply]:
        """Yield the text of `complete` in pieces and then the reply, or the fallback's stream."""
        if self._find(request) is None and self._fallback is not None:
            async for piece in self._fallback.stream(request):
                yield piece
            self.fallbacks += 1
            return
        reply = await self.complete(request)
        text = reply.text
        for start in range(0, len(text), _PIECE_CHARS):
            yield text[start : start + _PIECE_CHARS]
        yield reply

    async def close(self) -> None:
        """Close the fallback."""
        if self._fallback is not None:
            await self._fallback.close()

    def _find(self, request: ChatRequest) -> _Recorded | None:
        found = self._replies.get((request.role, request.unit, request.round))
        if found is None and self._by_request:
            found = self._by_request.get(request_hash(request))
        return found

    def _take(self, row: Mapping[str, Any], model: str | None) -> None:
        """Keep what one line has recorded; of several for the same the first counts."""
        if not isinstance(row.get("reply"), str) or (model is not None and row.get("model") != model):
            return
        reply = _Recorded(
            text=row["reply"],
            model=str(row.get("model") or ""),
            finish_reason=str(row.get("finish_reason") or "stop"),
            input_tokens=row.get("input_tokens"),
            output_tokens=row.get("output_tokens"),
        )
        if row.get("request"):
            self._by_request.setdefault(str(row["request"]), reply)
        if row.get("role") and row.get("unit"):
            self._replies.setdefault((str(row["role"]), str(row["unit"]), int(row.get("round") or 0)), reply)


@dataclass(frozen=True, slots=True)
class _Recorded:
    text: str
    model: str
    finish_reason: str = "stop"
    input_tokens: int | None = None
    output_tokens: int | None = None


def request_hash(request: ChatRequest) -> str:
    """Return the hash of all that a model is asked, the fallback key of a recording."""
    parts = [part for message in request.messages for part in (message.role, message.content)]
    return content_id("request", request.role, request.form or "", str(request.hashed_limit or 0), *parts)


def _missing(request: ChatRequest) -> RequestRejected:
    last = request.messages[-1].content if request.messages else ""
    about = one_line(last)[:60]
    return RequestRejected(
        f"no recorded reply for {request.role}, round {request.round}, unit {request.unit} ({about}…); "
        "record it, or set a fallback"
    )


def _rows(path: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file, or of all *.jsonl files of a folder, in order."""
    try:
        is_uri = "://" in path
        filesystem, inner = fs.FileSystem.from_uri(store_uri(path)) if is_uri else (fs.LocalFileSystem(), path)
        info = filesystem.get_file_info(inner)
        if info.type == fs.FileType.NotFound:
            raise ConfigError(f"recorded: there is no {path}")
        files = [info]
        if info.type == fs.FileType.Directory:
            listed = filesystem.get_file_info(fs.FileSelector(inner))
            files = [each for each in listed if ".jsonl" in each.base_name and each.type == fs.FileType.File]
        for name in sorted(each.path for each in files):
            with filesystem.open_input_stream(name) as stream:
                data = stream.read()
            yield from _objects(name, data)
    except (OSError, pa.ArrowInvalid) as error:
        raise ConfigError(f"recorded: {path} cannot be read: {error}") from error


def _objects(path: str, data: bytes) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(data.split(b"\n"), start=1):
        if line.strip():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ConfigError(f"recorded: {path}, line {number}, is not JSON: {error}") from error
            if isinstance(row, dict):
                yield row
