"""One OpenAI-compatible endpoint: its settings, one HTTP client for it, and its errors in our words.

`chat.completions.create` of the SDK spends most of its time on building and reading pydantic models (1.1 ms of CPU
a call, against 0.5 ms for `AsyncOpenAI.post`, its documented way to undocumented paths), so bodies are plain dicts
here in both directions. Retries are the pool's business: the SDK's are off.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, Literal
from urllib.parse import urlsplit

import aiohttp
import httpx2
import openai

from hirag_dist.config.base import public_url
from hirag_dist.core.text.normalize import one_line, shorten
from hirag_dist.errors import (
    ConfigError,
    ContextLengthExceeded,
    ModelError,
    ModelUnavailable,
    RateLimited,
    RequestRejected,
    TimedOut,
    UnusableReply,
)
from hirag_dist.llm.endpoints.http_guards import MAX_REPLY_BYTES, HttpGuards
from hirag_dist.llm.endpoints.openai_replies import UnusableField, name, parse_object
from hirag_dist.llm.endpoints.window_refusals import refused_window
from hirag_dist.types import RateLimits

_SAID_CHARS = 300
_READ_BYTES = 2000  # of what is no reply, for a message
_CONNECT_S = 10.0
_MAX_RETRY_AFTER_S = 86_400.0
_MAX_CONNECTIONS = 10_000  # how many calls are in flight is for the pool to say, not for the connector
_NO_MONEY = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})
_ASK_AGAIN = frozenset({408, 409, 425})
_HINTS = {
    401: "check api_key",
    402: "check the account's balance",
    403: "check what api_key may do",
    404: "check base_url and model",
}
_SECRET = re.compile(r"\b(sk-|Bearer )[\w*.\-]{4,}")
_KINDS: tuple[tuple[Literal["requests", "tokens", "concurrency"], re.Pattern[str]], ...] = (
    ("concurrency", re.compile(r"concurren|parallel|simultaneous|in flight", re.IGNORECASE)),
    ("tokens", re.compile(r"tokens per|\bTPM\b|\bTPD\b", re.IGNORECASE)),
    ("requests", re.compile(r"requests per|\bRPM\b|\bRPD\b", re.IGNORECASE)),
)
_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)")
_SPAN_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class EndpointSettings:
    """One model behind one address.

    Attributes:
        name: what the configuration calls the endpoint; for messages.
        base_url: up to and with `/v1`.
        api_key: empty where the endpoint wants none; never shown.
        model: the name that the endpoint knows the model by.
        timeout_s: for a whole call; between two pieces of a stream.
        temperature: None is not sent (reasoning models refuse it).
        max_reply_tokens: Maximum tokens of any reply; requests may have a lower limit of their own.
        max_tokens_field: the name of the reply limit in the request.
        context_window: Tokens of a prompt and its reply together; None where it is not known.
        structured: whether `json_schema` is asked for; auto: `OpenAiChat.supports_forms` finds out.
        key_header: the header that carries api_key; empty for `Authorization: Bearer`.
        extra_query: parameters of the query of every request.
        extra_body: sent with every request as it is; wins over our fields.
        encoding: of the model's tokens, for the counting function.
        batch_size: texts in one embedding request.
        batch_tokens: tokens in one embedding request.
        text_tokens: tokens of one embedded text; a longer one is cut.

    Raises:
        ConfigError: base_url or api_key cannot be used.
    """

    name: str
    base_url: str
    api_key: str = field(repr=False)
    model: str
    timeout_s: float = 180.0
    temperature: float | None = 0.0
    max_reply_tokens: int | None = None
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    context_window: int | None = None
    structured: Literal["auto", "json_schema", "none"] = "auto"
    key_header: str = ""
    extra_query: Mapping[str, str] = field(default_factory=dict)
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    encoding: str = "o200k_base"
    batch_size: int = 128
    batch_tokens: int = 250_000
    text_tokens: int = 8191

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.base_url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            usable = False
        if not usable:
            shown = public_url(self.base_url)
            raise ConfigError(f"endpoint {self.name}: base_url {shown!r} must look like https://host/v1")
        if "@" in parts.netloc:
            raise ConfigError(f"endpoint {self.name}: base_url holds credentials; give the key as api_key")
        if any(not 32 < ord(ch) < 127 for ch in self.api_key):
            raise ConfigError(f"endpoint {self.name}: api_key holds a space, a line end or another unusual character")


class EndpointRefused(RequestRejected):
    """A 4xx with what the endpoint said, for the callers that may do without what it names.

    Attributes:
        status: the HTTP status.
        code: the endpoint's code for the error, or "".
        said: its message and the parameter that it names.
    """

    status: int = 0
    code: str = ""
    said: str = ""


class EndpointClient:
    """Sends bodies, returns bodies, raises our errors. The connection is opened by the first call, in its loop.

    A client belongs to the loop of its calls: close it there before another loop uses it.
    """

    def __init__(self, settings: EndpointSettings, max_reply_bytes: int = MAX_REPLY_BYTES) -> None:
        self.settings = settings
        self._max_reply_bytes = max_reply_bytes
        self._client: openai.AsyncOpenAI | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._headers: Mapping[str, str] = {}

    def __getstate__(self) -> tuple[EndpointSettings, int]:
        return self.settings, self._max_reply_bytes

    def __setstate__(self, state: tuple[EndpointSettings, int]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    async def post(self, path: str, body: Mapping[str, Any], *, list_key: str = "") -> dict[str, Any]:
        """Return the JSON object that the endpoint answers.

        Args:
            list_key: an answer that is a list becomes an object with the list under this key; empty: it is unusable.

        Raises:
            RateLimited: 429.
            ModelUnavailable: no connection, no answer within `timeout_s`, 408, 409, 425, 5xx.
            UnusableReply: an answer without a JSON object, or too large.
            EndpointRefused: another 4xx, or a 429 that says that the money is gone.
            RequestRejected: a redirect to another host.
        """
        with self.calling() as client:
            async with asyncio.timeout(self.settings.timeout_s):
                response = await client.post(path, cast_to=httpx2.Response, content=self.encode(body))
        self._headers = response.headers
        is_list = list_key and response.content.lstrip()[:1] == b"["
        content = b'{"%s":%s}' % (list_key.encode(), response.content) if is_list else response.content
        return self.parse(content)

    def parse(self, content: bytes) -> dict[str, Any]:
        """Return the JSON object of an answer.

        Raises:
            UnusableReply: it is none.
            ModelUnavailable: it is nothing, or a gateway's page.
            ModelError: it is an error in spite of its status, as some gateways answer.
        """
        try:
            data = parse_object(content)
        except UnusableField as problem:
            start = content[:_READ_BYTES].decode("utf-8", "replace")
            is_page = start.lstrip()[:1] in ("", "<")
            kind = ModelUnavailable if is_page else UnusableReply
            raise kind(f"{self.who} answered {problem}: {self.plain(start)}") from None
        self._raise_error_in(data)
        return data

    async def stream(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        """Yield the JSON objects of a server-sent stream. Raises as `post` does."""
        with self.calling() as client:
            events = await client.post(
                path,
                cast_to=object,
                content=self.encode(body),
                stream=True,
                stream_cls=openai.AsyncStream[object],
            )
            async with events:
                async for event in events:
                    if isinstance(event, dict):
                        yield event

    @contextmanager
    def calling(self) -> Iterator[openai.AsyncOpenAI]:
        """Lend the SDK's client; what it raises in the block comes out in our words, as `post` says."""
        client = self._open()
        try:
            yield client
        except Exception as error:
            raised = self._translate(error)
            if raised is None:
                raise
            raise raised from (None if "***" in str(raised) else error)  # a cause would show what was taken out

    def encode(self, body: Mapping[str, Any]) -> bytes:
        """Return the JSON that the endpoint is sent for a body."""
        merged = {**body, **self.settings.extra_body}
        return json.dumps(merged, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")

    @property
    def rate_limits(self) -> RateLimits | None:
        """The limits that the last answer named; None before the first, or if it named none."""
        found = {
            kind: _number(self._headers.get(f"x-ratelimit-{kind}"))
            for kind in ("limit-requests", "limit-tokens", "remaining-requests", "remaining-tokens")
        }
        return RateLimits(*found.values()) if any(value is not None for value in found.values()) else None

    async def close(self) -> None:
        """Close connections; a later call opens new ones."""
        client, self._client, self._loop = self._client, None, None
        if client is not None:
            await client.close()

    def _open(self) -> openai.AsyncOpenAI:
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            settings = self.settings
            timeout = httpx2.Timeout(settings.timeout_s, connect=min(_CONNECT_S, settings.timeout_s))
            limits = httpx2.Limits(max_connections=_MAX_CONNECTIONS, keepalive_expiry=5.0)
            guards = HttpGuards(self.who, settings.base_url, self._max_reply_bytes, settings.key_header)
            self._loop = loop
            self._client = openai.AsyncOpenAI(
                default_query=settings.extra_query or None,
                api_key=settings.api_key or "none",
                base_url=settings.base_url,
                max_retries=0,
                timeout=timeout,
                http_client=openai.DefaultAioHttpClient(timeout=timeout, limits=limits, **guards.client_options()),
            )
        return self._client

    def _raise_error_in(self, data: Mapping[str, Any]) -> None:
        error = data.get("error")
        if not error or "choices" in data or "data" in data:
            return
        detail = error if isinstance(error, dict) else {"message": error}
        raise self._of_status(_status(detail), detail, {})

    def _translate(self, error: Exception) -> ModelError | None:
        """Return the error in our words, None where it is no trouble of the endpoint's."""
        if isinstance(error, openai.APIStatusError):
            detail = error.body if isinstance(error.body, dict) else {"message": error.body or error.message}
            return self._of_status(error.status_code, detail, error.response.headers)
        if isinstance(error, openai.APITimeoutError | httpx2.TimeoutException | TimeoutError):
            cause = error.__cause__
            if isinstance(cause, httpx2.ConnectTimeout):  # what the aiohttp transport makes of a broken connection
                return ModelUnavailable(f"{self.who} is out of reach: {self.plain(str(cause)) or 'no connection'}")
            within = f"{self.settings.timeout_s:g} s a call, {_CONNECT_S:g} s to connect"
            return TimedOut(f"{self.who} did not answer in time ({within})")
        if isinstance(error, openai.APIConnectionError | httpx2.HTTPError | aiohttp.ClientError | OSError):
            cause = error.__cause__ or error
            return ModelUnavailable(f"{self.who} is out of reach: {self.plain(str(cause)) or type(cause).__name__}")
        if isinstance(error, openai.APIError):  # an error event in the middle of a stream
            detail = error.body if isinstance(error.body, dict) else {"message": error.message}
            return self._of_status(_status(detail), detail, {})
        if isinstance(error, openai.OpenAIError | ValueError | RecursionError):  # ValueError: no JSON, or no UTF-8
            return UnusableReply(f"{self.who} gave an answer that cannot be read: {self.plain(str(error))}")
        return None

    def _of_status(self, status: int, detail: Mapping[str, Any], headers: Mapping[str, str]) -> ModelError:
        said = self.plain(_message(detail))
        text = f"{self.who} answered {status}: {said}"
        codes = error_codes(detail)
        window = refused_window(status, detail, codes, said)
        if window is not None:
            return ContextLengthExceeded(text, *window)
        if status == 429 and not _NO_MONEY.intersection(codes):
            return RateLimited(text, retry_after_s(headers, time.time()), _limited_kind(headers, said))
        if status >= 500 or status in _ASK_AGAIN:
            return ModelUnavailable(text)
        hint = "check the account's quota and billing" if status == 429 else _HINTS.get(status)
        refused = EndpointRefused(f"{text}; {hint}" if hint else text, fatal=hint is not None)
        refused.status = status
        refused.code = next(iter(codes), "")
        refused.said = f"{said} {name(detail.get('param'))}"
        return refused

    def plain(self, text: str) -> str:
        """Return a message that may be shown: one short line, without secrets."""
        key = self.settings.api_key
        if key:
            text = text.replace(key, "***") if len(key) >= 8 else re.sub(rf"(?<!\w){re.escape(key)}(?!\w)", "***", text)
        return shorten(one_line(_SECRET.sub("***", text)), _SAID_CHARS)

    @property
    def who(self) -> str:
        """The endpoint, for messages."""
        return f"endpoint {self.settings.name} ({self.settings.model})"


def retry_after_s(headers: Mapping[str, str], now: float) -> float | None:
    """Return how many seconds a 429 asks to wait, a day at most, or None if it does not say.

    Args:
        headers: `retry-after-ms`, `retry-after` (seconds or an HTTP date), or, where both are missing, the
            `x-ratelimit-reset-…` of what has none remaining; names in lower case, or in any with httpx.
        now: seconds since the epoch.

    >>> retry_after_s({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "1m2.5s"}, 0.0)
    62.5
    """
    asked = _asked_wait_s(headers, now)
    return None if asked is None else min(max(asked, 0.0), _MAX_RETRY_AFTER_S)


def _asked_wait_s(headers: Mapping[str, str], now: float) -> float | None:
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    written = headers.get("retry-after")
    if written is not None:
        seconds = _number(written)
        if seconds is not None:
            return seconds
        try:
            return parsedate_to_datetime(written).timestamp() - now
        except (ValueError, OverflowError, TypeError, IndexError, OSError):
            return None  # neither seconds nor a date
    spent = [kind for kind in ("requests", "tokens") if _number(headers.get(f"x-ratelimit-remaining-{kind}")) == 0]
    waits = [_span_s(headers.get(f"x-ratelimit-reset-{kind}", "")) for kind in spent]
    return max(waits, default=0.0) or None


def _limited_kind(headers: Mapping[str, str], said: str) -> Literal["requests", "tokens", "concurrency", ""]:
    """Return the limit that a 429 names: by its message, else by the header without any remaining."""
    for kind, pattern in _KINDS:
        if pattern.search(said):
            return kind
    for kind, _ in _KINDS[1:]:
        if _number(headers.get(f"x-ratelimit-remaining-{kind}")) == 0:
            return kind
    return ""


def _span_s(text: str) -> float:
    """Return the seconds of a span like 1m2.5s or 20ms; 0 if there is none in the text."""
    return sum(float(amount) * _SPAN_S[unit] for amount, unit in _SPAN.findall(text))


def error_codes(detail: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the code and the type that an error object names, as far as it names them."""
    return tuple(found for key in ("code", "type") if (found := name(detail.get(key))))


def _status(detail: Mapping[str, Any]) -> int:
    """Return the status that an error object names as its code; 502 where it is none of an error."""
    code = _number(detail.get("code"))
    return int(code) if code is not None and 400 <= code < 600 else 502


def _number(value: object) -> float | None:
    if not isinstance(value, str | int | float):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _message(detail: Mapping[str, Any]) -> str:
    said = detail.get("message") or detail.get("detail") or dict(detail)
    try:
        return said if isinstance(said, str) else json.dumps(said, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        return "an error that cannot be shown"
