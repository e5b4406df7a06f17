"""A batch's input file checked line by line, and its lines found again."""

from __future__ import annotations

import asyncio
import hashlib
import json
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hirag_dist.testing.simulator import openai_schema
from hirag_dist.testing.simulator.handlers import EMBEDDINGS

MAX_LINES = 50_000
MAX_EMBEDDING_INPUTS = 50_000
_MAX_ERRORS = 100  # reading of a file ends there
_LINES_A_TURN = 200  # before other calls get theirs


@dataclass(frozen=True, slots=True)
class InputLine:
    """A line that was found good: what it is called, and the bytes of its body."""

    custom_id: str
    body: bytes


@dataclass(slots=True)
class BatchInput:
    """An input file read.

    Attributes:
        errors: BatchError objects; with any, the batch fails.
        model: the one that all lines name.
        digest: of the file's content.
    """

    path: Path
    errors: list[dict[str, Any]] = field(default_factory=list)
    model: str | None = None
    digest: str = ""
    _offsets: array[int] = field(default_factory=lambda: array("Q"))

    def __len__(self) -> int:
        return len(self._offsets)

    def lines(self, order: list[int]) -> Iterator[InputLine]:
        """Yield lines by their numbers, from 0, one in memory at a time."""
        with self.path.open("rb") as file:
            for number in order:
                file.seek(self._offsets[number])
                data = json.loads(file.readline())
                yield InputLine(data["custom_id"], openai_schema.dump(data["body"]))


class _Checker:
    """Checks of a line against the lines before it."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._ids: set[str] = set()
        self._n_inputs = 0
        self.model: str | None = None

    def fault(self, raw: bytes) -> tuple[str, str, str | None] | None:
        """Return code, message and parameter of what is wrong with a line, or None."""
        try:
            data = json.loads(raw)
        except ValueError:
            return "invalid_json_line", "This line is not parseable as valid JSON.", None
        if not isinstance(data, dict):
            return "invalid_json_line", "This line must be a JSON object.", None
        for name, kind in (("custom_id", str), ("method", str), ("url", str), ("body", dict)):
            if not isinstance(data.get(name), kind) or not data[name]:
                return "missing_required_parameter", f"Missing required parameter: '{name}'.", name
        custom_id, body = data["custom_id"], data["body"]
        if custom_id in self._ids:
            said = f"The custom_id '{custom_id}' for this request is a duplicate of another request."
            return "duplicate_custom_id", f"{said} The custom_id parameter must be unique.", "custom_id"
        self._ids.add(custom_id)
        if data["method"] != "POST":
            return "invalid_method", f"The method '{data['method']}' is not supported: use POST.", "method"
        if data["url"] != self._endpoint:
            said = f"The URL provided for this request does not match the batch endpoint {self._endpoint}."
            return "url_mismatch", said, "url"
        return self._fault_of_body(body)

    def _fault_of_body(self, body: dict[str, Any]) -> tuple[str, str, str | None] | None:
        model = body.get("model")
        if not isinstance(model, str) or not model:
            return "missing_required_parameter", "Missing required parameter: 'body.model'.", "body.model"
        if self.model not in (None, model):
            said = f"The provided model '{model}' does not match the batch model '{self.model}'."
            return "model_mismatch", said, "body.model"
        self.model = model
        texts = body.get("input") if self._endpoint == EMBEDDINGS else None
        self._n_inputs += len(texts) if isinstance(texts, list) else 1
        if self._endpoint == EMBEDDINGS and self._n_inputs > MAX_EMBEDDING_INPUTS:
            return "too_many_tasks", f"The batch has more than {MAX_EMBEDDING_INPUTS} embedding inputs.", "body.input"
        return None


async def read_input(path: Path, endpoint: str) -> BatchInput:
    """Return an input file checked; empty lines are skipped. Other tasks get their turn meanwhile."""
    found, check, hashed, offset = BatchInput(path), _Checker(endpoint), hashlib.sha256(), 0

    def error(code: str, message: str, param: str | None = None, line: int | None = None) -> None:
        found.errors.append({"code": code, "message": message, "param": param, "line": line})

    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            start, offset = offset, offset + len(raw)
            hashed.update(raw)
            if number % _LINES_A_TURN == 0:
                await asyncio.sleep(0)
            if not raw.strip():
                continue
            wrong = check.fault(raw)
            if wrong is not None:
                error(*wrong, line=number)
            else:
                found._offsets.append(start)
            if len(found) > MAX_LINES:
                error("too_many_tasks", f"The batch has more than {MAX_LINES} requests: make several of it.")
            if len(found) > MAX_LINES or len(found.errors) >= _MAX_ERRORS:
                break
    if not found and not found.errors:
        error("empty_file", "The file is empty: it needs at least one request.")
    found.model, found.digest = check.model, hashed.hexdigest()
    return found
