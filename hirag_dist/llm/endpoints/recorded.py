"""Replies replayed from recordings: what a model once answered, found by what it was asked about."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import fs

from hirag_dist.config.object_stores import store_uri
from hirag_dist.core.prompts.templates import DONE, FIELD
from hirag_dist.core.text.ids import content_id, unit_id
from hirag_dist.core.text.normalize import encodable, one_line
from hirag_dist.errors import ConfigError, RequestRejected
from hirag_dist.llm.reply_store.block_format import token_count
from hirag_dist.protocols import ChatModel
from hirag_dist.readers.encoding import clean_text
from hirag_dist.types import ChatReply, ChatRequest, RateLimits

logger = logging.getLogger(__name__)
_PIECE_CHARS = 16
_NANO_KINDS = {"extract": "extract", "extract_glean": "extract"}
_TEXT_KEYS = ("chunk_id", "passage_id")


class RecordedModel:
    """A `ChatModel` that answers from JSONL files.

    Each line is one of these; other lines are passed over and counted:

    - our own: `{"role", "unit", "round", "reply"}`, and `model`, `finish_reason`, `input_tokens`, `output_tokens`,
      `request` (from `request_hash`) where known;
    - a nano-graphrag response: `{"kind": "extract" | "extract_glean", "chunk_id", "round", "model", "response"}`,
      with the chunks' texts in `{"chunk_id", "text"}` lines of a file in the same folder;
    - OpenIE triples: `{"passage_id", "entities", "triples"}`, with `{"passage_id", "title", "text"}` lines in a file
      in the same folder. They become delimited records: entities of type unknown, relations of strength 1.

    A reply is found by role, unit and round, then by the request's hash; of several for the same the first counts.

    Args:
        path: a file or folder (of which all *.jsonl are read), local or a URI that pyarrow knows; compressed too.
        fallback: asked for what was not recorded; None refuses it.
        count_tokens: counts where the recording does not say; None leaves 0.
        model: only replies of this model are taken; None takes all.

    Attributes:
        name: holds a digest of what was recorded, so that another recording is another model.

    Raises:
        ConfigError: the path cannot be read, a line is no JSON, or nothing can be replayed.
    """

    rate_limits: RateLimits | None = None

    def __init__(
        self,
        path: str,
        fallback: ChatModel | None = None,
        count_tokens: Callable[[str], int] | None = None,
        model: str | None = None,
    ) -> None:
        self._passed_over = self._bad_triples = 0
        self._fallback = fallback
        self._count = count_tokens
        self._replies: dict[tuple[str, str, int], _Recorded] = {}
        self._by_request: dict[str, _Recorded] = {}
        self._load(path, model)
        if not self._replies and not self._by_request:
            of_model = f" of the model {model}" if model else ""
            raise ConfigError(f"recorded: {path} holds no reply{of_model} that can be replayed")
        for count, what in (
            (self._passed_over, "lines hold no reply that can be replayed"),
            (self._bad_triples, "triples are not three strings"),
        ):
            if count:
                logger.warning("%s: %d %s, and are left out", path, count, what)
        items = sorted((*key[:2], str(key[2]), reply.text) for key, reply in self._replies.items())
        items += sorted((key, reply.text) for key, reply in self._by_request.items())  # type: ignore[misc]
        digest = content_id(*(part for item in items for part in item))[:12]
        self.name = f"recorded:{digest}" + (f"+{fallback.name}" if fallback else "")

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Return the recorded reply as it is, whatever form the request asks for, or the fallback's.

        Raises:
            RequestRejected: nothing was recorded and there is no fallback.
        """
        found = self._find(request)
        if found is None:
            recorded_alone = any((request.role, unit, request.round) in self._replies for unit in request.packed)
            if self._fallback is None or recorded_alone:  # a refused pack is asked unit by unit
                about = one_line(request.messages[-1].content if request.messages else "")[:60]
                raise RequestRejected(
                    f"no recorded reply for {request.role}, round {request.round}, unit {request.unit} ({about}…); "
                    "record it, or set a fallback"
                )
            return await self._fallback.complete(request)
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

    def _load(self, path: str, model: str | None) -> None:
        filesystem, chosen, beside = _files(path)
        units: dict[str, list[str]] = {}
        for file in dict.fromkeys([*chosen, *beside]):
            for row in _rows(filesystem, file):
                name = next((row[key] for key in _TEXT_KEYS if key in row), None)
                if name is not None and isinstance(row.get("text"), str):
                    units[str(name)] = _units_of(row["text"], row.get("title"))
        for file in chosen:
            for row in _rows(filesystem, file):
                self._take(row, units, model)

    def _take(self, row: Mapping[str, Any], units: Mapping[str, list[str]], model: str | None) -> None:
        """Keep what one line has recorded."""
        entry = _entry(row)
        if entry is None:
            if not any(key in row and "text" in row for key in _TEXT_KEYS):
                self._passed_over += 1
            return
        self._bad_triples += entry.bad_triples
        keys = [entry.unit] if entry.unit else units.get(entry.about, [])
        if model is not None and entry.reply.model != model:
            keys, entry.request = [], ""
        if entry.request:
            self._by_request.setdefault(entry.request, entry.reply)
        if not keys and not entry.request:
            self._passed_over += 1
        for unit in keys:
            self._replies.setdefault((entry.role, unit, entry.round), entry.reply)


@dataclass(frozen=True, slots=True)
class _Recorded:
    text: str
    model: str
    finish_reason: str = "stop"
    input_tokens: int | None = None
    output_tokens: int | None = None


@dataclass(slots=True)
class _Entry:
    """A line that holds a reply: about a unit, or about a chunk that a file in the same folder gives the text of."""

    reply: _Recorded
    role: str = "extract"
    round: int = 0
    unit: str = ""
    about: str = ""
    request: str = ""
    bad_triples: int = 0


def request_hash(request: ChatRequest) -> str:
    """Return the hash of all that a model is asked, the fallback key of a recording."""
    parts = [part for message in request.messages for part in (message.role, message.content)]
    return content_id("request", request.role, request.form or "", str(request.hashed_limit or 0), *parts)


def _entry(row: Mapping[str, Any]) -> _Entry | None:
    if isinstance(row.get("reply"), str) and (("role" in row and "unit" in row) or "request" in row):
        reply = _Recorded(
            text=row["reply"],
            model=str(row.get("model") or ""),
            finish_reason=str(row.get("finish_reason") or "stop"),
            input_tokens=row.get("input_tokens"),
            output_tokens=row.get("output_tokens"),
        )
        return _Entry(
            reply,
            role=str(row.get("role") or ""),
            round=int(row.get("round") or 0),
            unit=str(row.get("unit") or ""),
            request=str(row.get("request") or ""),
        )
    if isinstance(row.get("response"), str) and "kind" in row:
        role = _NANO_KINDS.get(row["kind"])
        if role is None or not row.get("chunk_id"):
            return None
        default = 1 if row["kind"] == "extract_glean" else 0
        turn = row.get("round")
        reply = _Recorded(row["response"], str(row.get("model") or ""))
        return _Entry(reply, role=role, round=default if turn is None else int(turn), about=str(row["chunk_id"]))
    if isinstance(row.get("triples"), list) and "passage_id" in row:
        text, n_bad = _openie_reply(row.get("entities") or [], row["triples"])
        reply = _Recorded(text, str(row.get("model") or "openie"))
        return _Entry(reply, about=str(row["passage_id"]), bad_triples=n_bad)
    return None


def _openie_reply(entities: Sequence[object], triples: Sequence[object]) -> tuple[str, int]:
    """Return triples as delimited records, and how many were not three strings."""
    records = [FIELD.join(("entity", _value(name), "unknown", "")) for name in entities if isinstance(name, str)]
    n_bad = 0
    for triple in triples:
        if isinstance(triple, list) and len(triple) == 3 and all(isinstance(part, str) for part in triple):
            subject, verb, thing = (_value(part) for part in triple)
            records.append(FIELD.join(("relation", subject, thing, f"{subject} {verb} {thing}", "1")))
        else:
            n_bad += 1
    return "\n".join([*records, DONE]), n_bad


def _value(text: str) -> str:
    """Return a text that breaks no record: one line, without the marks between fields and records."""
    return one_line(text.replace(FIELD, " ").replace(DONE, " ").replace("##", "# #"))


def _units_of(text: str, title: object) -> list[str]:
    """Return the units that a recorded text may be asked about: as it is, as reading cleans it, under its title."""
    texts = [text, clean_text(text)]
    if isinstance(title, str) and title:
        texts.append(f"{title}\n{clean_text(text)}")
    return list(dict.fromkeys(unit_id(each) for each in texts))


def _files(path: str) -> tuple[fs.FileSystem, list[str], list[str]]:
    """Return the file system of a path, the files whose replies are wanted, and the *.jsonl files of their folder."""
    try:
        is_uri = "://" in path
        filesystem, inner = fs.FileSystem.from_uri(store_uri(path)) if is_uri else (fs.LocalFileSystem(), path)
        info = filesystem.get_file_info(inner)
        if info.type == fs.FileType.NotFound:
            raise ConfigError(f"recorded: there is no {path}")
        is_folder = info.type == fs.FileType.Directory
        folder = inner if is_folder else inner.rpartition("/")[0] or "."
        listed = filesystem.get_file_info(fs.FileSelector(folder))
    except (OSError, pa.ArrowInvalid) as error:
        raise ConfigError(f"recorded: {path} cannot be read: {error}") from error
    beside = sorted(each.path for each in listed if ".jsonl" in each.base_name and each.type == fs.FileType.File)
    return filesystem, beside if is_folder else [inner], beside


def _rows(filesystem: fs.FileSystem, path: str) -> Iterator[dict[str, Any]]:
    try:
        with filesystem.open_input_stream(path) as stream:
            data = stream.read()
    except OSError as error:
        raise ConfigError(f"recorded: {path} cannot be read: {error}") from error
    for number, line in enumerate(data.split(b"\n"), start=1):
        if line.strip():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ConfigError(f"recorded: {path}, line {number}, is not JSON: {error}") from error
            if isinstance(row, dict):
                yield row
