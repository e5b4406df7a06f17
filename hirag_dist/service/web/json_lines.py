"""JSON messages between browser and page: one object per request, one object per line of the reply."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import asdict
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hirag_dist.errors import HiragError, InvalidQuery, RateLimited
from hirag_dist.types import Answer, IndexInfo, Query, Retrieval
from hirag_dist.wire.error_status import AccessRefused

_MAX_LABELS = 64


class PageQuestion(BaseModel):
    """A question from the browser. Missing fields take the service's default.

    Attributes:
        answer: whether a model answers; otherwise the reply is the retrieval, level by level.
        timeout_s: seconds; the server's limit applies too.
        index: name of the index; empty for the service's default.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    question: str
    mode: str | None = None
    top_n: int | None = None
    top_m: int | None = None
    top_c: int | None = None
    community_level: str | None = None
    context_tokens: int | None = None
    labels: list[str] = Field(default_factory=list, max_length=_MAX_LABELS)
    filter: str = ""
    as_of: str = ""
    answer: bool = True
    timeout_s: float | None = Field(None, gt=0)
    index: str = ""

    def query(self) -> Query:
        """Return the query for the client."""
        return Query(
            question=self.question,
            mode=self.mode,
            top_n=self.top_n,
            top_m=self.top_m,
            top_c=self.top_c,
            community_level=self.community_level,
            context_tokens=self.context_tokens,
            labels=tuple(self.labels),
            filter=self.filter,
            as_of=self.as_of,
        )


class PageIndex(BaseModel):
    """The index that a browser asks about.

    Attributes:
        index: name of the index; empty for the service's default.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    index: str = ""


_Body = TypeVar("_Body", bound=BaseModel)


def read_body(model: type[_Body], body: bytes) -> _Body:
    """Return the content of a request.

    Raises:
        InvalidQuery: it is not JSON, or a field is wrong.
    """
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(map(str, fault["loc"])) or "the request"
        raise InvalidQuery(f"{where}: {fault['msg']}") from error


def level_line(level: str, retrieval: Retrieval) -> bytes:
    """Return the result up to a level ("done" for all) as a line of JSON of type `retrieval`."""
    return _line({"type": "retrieval", "level": level, "retrieval": asdict(retrieval)})


def text_line(text: str) -> bytes:
    """Return the next piece of an answer's text as a line of JSON of type `text`."""
    return _line({"type": "text", "text": text})


def answer_line(answer: Answer) -> bytes:
    """Return a complete answer, without its retrieval, as a line of JSON of type `answer`."""
    fields = {field.name: getattr(answer, field.name) for field in dataclasses.fields(answer)}
    del fields["retrieval"]
    return _line({"type": "answer", "answer": fields | {"citations": [asdict(one) for one in answer.citations]}})


def error_line(error: HiragError) -> bytes:
    """Return an error that ends a reply as a line of JSON."""
    return _line({"type": "error"} | error_body(error))


def error_body(error: HiragError) -> dict[str, Any]:
    """Return an error for the page: its class, its message, and the seconds after which a retry may succeed."""
    after = retry_after_s(error)
    return {"error": {"kind": type(error).__name__, "message": str(error), "retry_after_s": after}}


def retry_after_s(error: HiragError) -> float | None:
    """Return the seconds after which a retry may succeed, None if the error has none."""
    return error.retry_after_s if isinstance(error, RateLimited | AccessRefused) else None


def info_body(info: IndexInfo) -> bytes:
    """Return the description of the index as JSON."""
    return _line({"info": asdict(info)})


def _line(value: Any) -> bytes:
    return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def _plain(value: Any) -> Any:
    """Return a value for JSON: numbers that are not finite become null."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {str(key): _plain(one) for key, one in value.items()}
        case list() | tuple():
            return [_plain(one) for one in value]
    return value
