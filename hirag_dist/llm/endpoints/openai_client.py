"""One OpenAI-compatible endpoint: its settings, one HTTP client for it, and its errors in our words.

Bodies are plain dicts in both directions, and the events of a stream are read from its lines: the SDK's models would
take most of the CPU time of a call. Retries are the pool's business.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import Any, Literal
from urllib.parse import urlsplit

import aiohttp
import httpx2
import openai

from hirag_dist.config.sections import is_http_url, public_url
from hirag_dist.core.text.normalize import one_line, shorten
from hirag_dist.errors import (
    ConfigError,
    ContextLengthExceeded,
    EndpointUnreachable,
    ModelError,
    ModelUnavailable,
    RateLimited,
    RequestRejected,
    TimedOut,
    UnusableReply,
)
from hirag_dist.llm.endpoints.openai_connection import (
    MAX_REPLY_BYTES,
    HttpGuards,
    connection_problem,
    is_loopback,
    refused_window,
    through_proxy,
)
from hirag_dist.llm.endpoints.openai_replies import ReportedUsage, UnusableField, name, parse_object
from hirag_dist.types import RateLimits

logger = logging.getLogger(__name__)
DONE = b"[DONE]"  # the last event of a stream
_SAID_CHARS = 300
_READ_BYTES = 2000  # of what is no reply, for a message
_CONNECT_S = 10.0
_FULL_BLOCK_BYTES = 4096  # a block of this size or more is no trickle of tokens: the next is read at once
_MAX_RETRY_AFTER_S = 86_400.0
_MAX_CONNECTIONS = 10_000  # how many calls are in flight is for the pool to say, not for the connector
_NO_MONEY = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})
BATCH_TOKENS = 250_000
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
_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)")  # several make a span: 1m2.5s
_SPAN_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class EndpointSettings:
    """One model behind one address. What is a key of an endpoint in the configuration has its meaning there.

    Attributes:
        name: what the configuration calls the endpoint; for messages.
        api_key: empty where the endpoint wants none; never shown.
        max_reply_tokens: Maximum tokens of any reply; requests may have a lower limit of their own.
        structured: whether `json_schema` is asked for; auto: `OpenAiChat.supports_forms` finds out.
        key_header: the header that carries api_key; empty for `Authorization: Bearer`.
        batch_tokens: tokens in one embedding request.
        text_tokens: tokens of one embedded text; a longer one is cut.

    Raises:
        ConfigError: base_url or api_key cannot be used.
    """

    name: str
    base_url: str
    api_key: str = field(repr=False)
    model: str
    silence_timeout_s: float = 60.0
    first_token_timeout_s: float = 600.0
    temperature: float | None = 0.0
    max_reply_tokens: int | None = None
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    context_window: int | None = None
    structured: Literal["auto", "json_schema", "none"] = "auto"
    key_header: str = ""
    extra_query: Mapping[str, str] = field(default_factory=dict)
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    batch_size: int = 128
    batch_tokens: int = BATCH_TOKENS
    text_tokens: int = 8191

    def __post_init__(self) -> None:
        if not is_http_url(self.base_url):
            shown = public_url(self.base_url)
            raise ConfigError(f"endpoint {self.name}: base_url {shown!r} must look like https://host/v1")
        if "@" in urlsplit(self.base_url).netloc:
            raise ConfigError(f"endpoint {self.name}: base_url holds credentials; give the key as api_key")
        if any(not 32 < ord(ch) < 127 for ch in self.api_key):
            raise ConfigError(f"endpoint {self.name}: api_key holds a space, a line end or another unusual character")


class EndpointRefused(RequestRejected):
    """A 4xx with what the endpoint said, for the callers that may do without what it names.

    Attributes:
        code: the endpoint's code for the error, or "".
        said: its message and the parameter that it names.
        detail: the error object.
    """

    code: str = ""
    said: str = ""
    detail: Mapping[str, Any] = MappingProxyType({})


class EndpointClient:
    """Sends bodies, returns bodies, raises our errors. The connection is opened by the first call, in its loop.

    A client belongs to the loop of its calls: close it there before another loop uses it.
    """

    def __init__(self, settings: EndpointSettings, max_reply_bytes: int = MAX_REPLY_BYTES) -> None:
        self.settings = settings
        self._max_reply_bytes = max_reply_bytes
        self._http: httpx2.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._headers: Mapping[str, str] = {}
        self._warned = False  # of a usage that cannot be true
        self._heard_at = -math.inf  # time of the last token or answer of any call, by the loop's clock

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
            ModelUnavailable: no connection, no answer within `first_token_timeout_s`, 408, 409, 425, 5xx.
            UnusableReply: an answer without a JSON object, or too large.
            EndpointRefused: another 4xx, 501, or a 429 that says that the money is gone.
            ContextLengthExceeded: the prompt is larger than the model's window.
            RequestRejected: a redirect to another host.
        """
        content = await self._answer("POST", path, self.encode(body), self.settings.first_token_timeout_s)
        is_list = list_key and content.lstrip()[:1] == b"["
        return self.parse(b'{"%s":%s}' % (list_key.encode(), content) if is_list else content)

    async def ask(self, url: str, body: Mapping[str, Any] | None = None, *, timeout_s: float) -> dict[str, Any]:
        """Return the JSON object at a path, or at a URL of the same host: by GET, with a body by POST.

        Raises as `post`.
        """
        content = None if body is None else json.dumps(body).encode()
        return self.parse(await self._answer("GET" if body is None else "POST", url, content, timeout_s))

    async def _answer(self, method: str, path: str, content: bytes | None, timeout_s: float) -> bytes:
        progress = _Progress(asyncio.get_running_loop().time())
        with self._in_our_words(progress, timeout_s):
            async with asyncio.timeout(timeout_s), self._response(method, path, content) as response:
                answer = await response.aread()
        self._heard_at = asyncio.get_running_loop().time()
        return answer

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
            hint = "; check base_url" if start.lstrip().startswith("<") else ""
            raise kind(f"{self.who} answered {problem}: {self.plain(start)}{hint}") from None
        self.raise_error_in(data)
        return data

    async def stream(
        self, path: str, body: Mapping[str, Any], *, at_leisure: bool = False
    ) -> AsyncGenerator[list[bytes]]:
        """Yield the data of the events of a server-sent stream, as many at a time as have come; DONE too.

        An answer that is no stream is yielded whole, with DONE after it.

        Args:
            at_leisure: wait a little between two readings, 2 % of the time that has passed and 0.1 s at most, so that
                more events come at a time: a wake for every token would take most of the CPU time of a call.

        Raises: as `post`; TimedOut when no token came for so long as the settings say.
        """
        clock = asyncio.get_running_loop().time
        progress = _Progress(clock())
        limit_s = self.settings.first_token_timeout_s
        events = EventLines()
        with self._in_our_words(progress, limit_s):
            async with asyncio.timeout(limit_s) as limit, self._response("POST", path, self.encode(body)) as response:
                limit.reschedule(None)  # from here on each reading has its own
                if not response.headers.get("content-type", "").startswith("text/event-stream"):
                    async with asyncio.timeout(limit_s):
                        answer = await response.aread()
                    self._heard_at = clock()
                    # Some gateways hand a stream on whole, as if it were JSON.
                    is_stream = answer.lstrip()[:5] in (b"data:", b"event")
                    yield events.feed(answer) + events.finish() if is_stream else [answer, DONE]
                    return
                async with aclosing(response.aiter_bytes()) as blocks:
                    while True:
                        give_up_at = progress.heard_at + self.settings.silence_timeout_s
                        if progress.n_events <= 1:  # the first may hold no token
                            give_up_at = max(give_up_at, progress.sent_at + limit_s)
                        async with asyncio.timeout_at(give_up_at):
                            block = await anext(blocks, None)
                        if block is None:
                            break
                        if found := events.feed(block):
                            progress.n_events += len(found)
                            progress.heard_at = self._heard_at = clock()
                            yield found
                        if at_leisure and not events.done and len(block) < _FULL_BLOCK_BYTES:
                            await asyncio.sleep(min(0.1, 0.02 * (clock() - progress.sent_at)))
                if found := events.finish():
                    yield found

    @asynccontextmanager
    async def _response(self, method: str, path: str, content: bytes | None) -> AsyncIterator[httpx2.Response]:
        """Lend the response to a request, not read yet. Raises an error in our words for a status of 400 or more."""
        http = self._open()
        url = path if "://" in path else f"{self.settings.base_url.rstrip('/')}{path}"
        request = http.build_request(method, url, params=self.settings.extra_query or None, content=content)
        response = await http.send(request, stream=True)
        try:
            self._headers = response.headers
            if response.status_code >= 400:
                raise self._of_status(response.status_code, _detail(await response.aread()), response.headers)
            yield response
        finally:
            await response.aclose()

    @contextmanager
    def _in_our_words(self, progress: _Progress, limit_s: float) -> Iterator[None]:
        """Raise the errors of the block as ours, as `post` says."""
        try:
            yield
        except Exception as error:
            raised = error if isinstance(error, ModelError) else self._translate(error, progress, limit_s)
            if raised is None:
                raise
            if isinstance(raised, ModelUnavailable):
                now = asyncio.get_running_loop().time()
                heard = max(self._heard_at, progress.heard_at)
                raised.is_alive = heard > max(progress.sent_at, now - 2 * self.settings.silence_timeout_s)
            if raised is error:
                raise
            raise raised from (None if "***" in str(raised) else error)  # a cause would show what was taken out

    def encode(self, body: Mapping[str, Any]) -> bytes:
        """Return the JSON that the endpoint is sent for a body."""
        merged = {**body, **self.settings.extra_body}
        return json.dumps(merged, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")

    @property
    def rate_limits(self) -> RateLimits | None:
        """The limits that the last answer named; None before the first, or if it named none."""
        requests, tokens = (_number(self._headers.get(f"x-ratelimit-limit-{kind}")) for kind in ("requests", "tokens"))
        return None if requests is None and tokens is None else RateLimits(requests, tokens)

    async def close(self) -> None:
        """Close connections; a later call opens new ones."""
        http, self._http, self._loop = self._http, None, None
        if http is not None:
            await http.aclose()

    def _open(self) -> httpx2.AsyncClient:
        loop = asyncio.get_running_loop()
        if self._http is None or self._loop is not loop:
            settings = self.settings
            host = urlsplit(settings.base_url).hostname or ""
            direct = {f"all://[{host}]" if ":" in host else f"all://{host}": None} if is_loopback(host) else {}
            self._loop = loop
            self._http = openai.DefaultAioHttpClient(
                timeout=httpx2.Timeout(None, connect=_CONNECT_S),
                limits=httpx2.Limits(max_connections=_MAX_CONNECTIONS, keepalive_expiry=5.0),
                headers={
                    "Authorization": f"Bearer {settings.api_key or 'none'}",
                    "Content-Type": "application/json",
                    "User-Agent": "hirag-dist",
                },
                mounts=direct,
                **HttpGuards(self.who, settings.base_url, self._max_reply_bytes, settings.key_header).client_options(),
            )
        return self._http

    @contextmanager
    def unusable(self) -> Iterator[None]:
        """Raise an `UnusableField` of the block as an UnusableReply of this endpoint."""
        try:
            yield
        except UnusableField as problem:
            raise UnusableReply(f"{self.who} answered {problem}") from None

    def warn_of(self, usage: ReportedUsage) -> None:
        """Log, once, that the endpoint reports a usage that cannot be true."""
        if usage.problem and not self._warned:
            self._warned = True
            logger.warning(
                "%s reports a usage that cannot be true (%s): such counts are estimated from the texts",
                self.who,
                usage.problem,
            )

    def raise_error_in(self, data: Mapping[str, Any]) -> None:
        """Raise the error that an object holds in place of an answer."""
        error = data.get("error")
        if not error or "choices" in data or "data" in data:
            return
        detail = error if isinstance(error, dict) else {"message": error}
        code = _number(detail.get("code"))
        status = int(code) if code is not None and 400 <= code < 600 else 502  # a gateway's, where none is named
        raise self._of_status(status, detail, {})

    def _translate(self, error: Exception, progress: _Progress, limit_s: float) -> ModelError | None:
        """Return the error in our words, None where it is no trouble of the endpoint's."""
        problem = connection_problem(error, self.settings.base_url)
        if problem is not None:
            return EndpointUnreachable(f"{self.who} is out of reach: {self.plain(problem)}")
        # A lost connection is a httpx2.ConnectTimeout too: the cause tells.
        if isinstance(error, TimeoutError) or isinstance(error.__cause__, TimeoutError):
            seen = f"nothing came in {limit_s:g} s"
            if progress.n_events > 1:
                lasted_s = progress.heard_at - progress.sent_at
                seen = f"{progress.n_events:,} tokens were received in {lasted_s:.3g} s, then none for "
                seen += f"{self.settings.silence_timeout_s:g} s"
            return TimedOut(f"{self.who}: {seen}")
        if isinstance(error, httpx2.HTTPError | aiohttp.ClientError | OSError):
            cause = error.__cause__ or error
            said = self.plain(str(cause)) or type(cause).__name__
            return ModelUnavailable(f"{self.who} broke off: {said}", was_sent=True)
        if isinstance(error, ValueError | RecursionError):  # no JSON, or no UTF-8
            return UnusableReply(f"{self.who} gave an answer that cannot be read: {self.plain(str(error))}")
        return None

    def _of_status(self, status: int, detail: Mapping[str, Any], headers: Mapping[str, str]) -> ModelError:
        said = self.plain(_message(detail))
        proxy = "" if status < 500 and status not in (403, 407) else through_proxy(self.settings.base_url)
        text = f"{self.who} answered {status}{proxy}: {said}"
        codes = error_codes(detail)
        window = refused_window(status, detail, codes, said)
        if window is not None:
            return ContextLengthExceeded(text, *window)
        if status == 429 and not _NO_MONEY.intersection(codes):
            return RateLimited(text, retry_after_s(headers, time.time()), _limited_kind(headers, said))
        if (status >= 500 and status != 501) or status in _ASK_AGAIN:
            return ModelUnavailable(text, status=status)
        hint = "check the account's quota and billing" if status == 429 else _HINTS.get(status)
        refused = EndpointRefused(f"{text}; {hint}" if hint else text, fatal=hint is not None)
        refused.status = status
        refused.code = next(iter(codes), "")
        refused.said = f"{said} {name(detail.get('param'))}"
        refused.detail = detail
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


@dataclass(slots=True)
class _Progress:
    """The progress of one call, by the loop's clock."""

    sent_at: float
    n_events: int = 0  # events of its stream that have come, about one for each token
    heard_at: float = -math.inf  # time of the last one


class EventLines:
    """Reads the data of server-sent events from blocks of bytes that are cut anywhere."""

    def __init__(self) -> None:
        self.done = False
        self._rest: list[bytes] = []  # pieces of a line that has not ended: joined once, however long it becomes
        self._data: list[bytes] = []

    def feed(self, block: bytes) -> list[bytes]:
        """Return the data of the events that end in a block."""
        first, *others = block.split(b"\n")
        self._rest.append(first)
        if not others:
            return []
        *lines, rest = (b"".join(self._rest), *others)
        self._rest = [rest]
        return self._events(lines)

    def finish(self) -> list[bytes]:
        """Return the data of a last event that no empty line ends."""
        return self._events([b"".join(self._rest), b""])

    def _events(self, lines: list[bytes]) -> list[bytes]:
        events: list[bytes] = []
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[5:].strip())
            elif self._data and not line.strip():
                event = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
                self.done = self.done or event == DONE
                events.append(event)
                self._data = []
        return events


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
    spans = [_SPAN.findall(headers.get(f"x-ratelimit-reset-{kind}", "")) for kind in spent]
    return max((sum(float(amount) * _SPAN_S[unit] for amount, unit in span) for span in spans), default=0.0) or None


def _limited_kind(headers: Mapping[str, str], said: str) -> Literal["requests", "tokens", "concurrency", ""]:
    """Return the limit that a 429 names: by its message, else by the header without any remaining."""
    for kind, pattern in _KINDS:
        if pattern.search(said):
            return kind
    for kind, _ in _KINDS[1:]:
        if _number(headers.get(f"x-ratelimit-remaining-{kind}")) == 0:
            return kind
    return ""


def error_codes(detail: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the code and the type that an error object names, as far as it names them."""
    return tuple(found for key in ("code", "type") if (found := name(detail.get(key))))


def _number(value: object) -> float | None:
    if not isinstance(value, str | int | float):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _detail(content: bytes) -> Mapping[str, Any]:
    """Return the error object of an answer's body, in whatever it is wrapped; else one with the body's text."""
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        return {"message": content[:_READ_BYTES].decode("utf-8", "replace")}
    if isinstance(body, list) and body:
        body = body[0]
    if isinstance(body, dict):
        error = body.get("error", body)
        return error if isinstance(error, dict) else {"message": error} if error else body
    return {"message": str(body)}


def _message(detail: Mapping[str, Any]) -> str:
    said = detail.get("message") or detail.get("detail") or dict(detail)
    try:
        return said if isinstance(said, str) else json.dumps(said, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        return "an error that cannot be shown"
