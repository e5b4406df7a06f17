"""Callers: the file with their tokens, certificates, labels and limits, and the authentication of calls by it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import grpc
import yaml
from google.protobuf.message import DecodeError
from grpc_reflection.v1alpha import reflection, reflection_pb2
from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from hirag_dist.config.service import is_index_pattern, matches_any
from hirag_dist.errors import ConfigError
from hirag_dist.service.access_log import Context, RequestRecord
from hirag_dist.service.file_watch import ReloadingValue
from hirag_dist.wire.error_status import Unauthenticated, message_of, status_of, trailers_of

_REFLECTION: Any = reflection  # the stubs leave out its asynchronous half
Kind: TypeAlias = Literal["anonymous", "token", "certificate"]

_NAMES = ("x509_common_name", "x509_subject_alternative_name")  # of a client's certificate


class Authenticator:
    """Authenticator of calls.

    Args:
        callers: content of the callers file; None accepts every call as `anonymous`.
        anonymous: the caller of all calls if there is no callers file.
        certificates: whether clients present certificates, which then identify callers without a token.
    """

    def __init__(
        self,
        callers: ReloadingValue[Callers] | None,
        anonymous: Caller,
        *,
        certificates: bool = False,
    ) -> None:
        self._callers = callers
        self._anonymous = anonymous
        self._certificates = certificates

    def caller(self, context: Context) -> tuple[Caller, Kind]:
        """Return the caller and the kind of authentication. A token takes precedence over a certificate.

        Raises:
            Unauthenticated: the token is unknown or has expired; or there is none, and the certificate is unknown.
        """
        if self._callers is None:
            return self._anonymous, "anonymous"
        callers = self._callers.value
        given = next((value for key, value in context.invocation_metadata() or () if key == "authorization"), None)
        if given is not None:
            scheme, _, token = (given if isinstance(given, str) else "").partition(" ")
            if scheme.lower() != "bearer" or not token.strip():  # the HTTP server sends an empty one on
                raise Unauthenticated(_REFUSAL, "no_token")
            caller, good = callers.of_token(token.strip(), datetime.now(UTC))
            if caller is not None and good:
                return caller, "token"
            name = "" if caller is None else caller.name
            raise Unauthenticated(_REFUSAL, "expired_token" if name else "unknown_token", name)
        if self._certificates:
            shown = context.auth_context()
            caller = callers.of_certificate(
                value.decode("utf-8", "replace") for key in _NAMES for value in shown.get(key, ())
            )
            if caller is not None:
                return caller, "certificate"
            raise Unauthenticated(_REFUSAL, "unknown_certificate")
        raise Unauthenticated(_REFUSAL, "no_token")


_REFUSAL = (
    "this service needs a bearer token that it knows and that has not expired: give one by --token-file of the command "
    "line, as `token` of a client, or in the header Authorization"
)


def guarded_reflection(
    names: tuple[str, ...],
    authenticator: Authenticator,
    observers: Sequence[Callable[[RequestRecord], None]],
) -> tuple[grpc.GenericRpcHandler, ...]:
    """Return the handlers of gRPC reflection for authenticated callers; observers get the records of rejected calls.

    Version v1 has the messages of v1alpha under another name, and newer tools ask for it first.
    """

    class Guarded(_REFLECTION.aio.ReflectionServicer):  # type: ignore[misc]
        async def ServerReflectionInfo(  # noqa: N802 - the name is the protocol's
            self, request_iterator: AsyncIterator[Any], context: Context
        ) -> AsyncIterator[Any]:
            try:
                authenticator.caller(context)
            except Unauthenticated as error:
                record = RequestRecord.of("ServerReflectionInfo", context)
                record.code, record.reason, record.caller = status_of(error).name, error.reason, error.caller
                record.seconds = record.elapsed_s
                for observer in observers:
                    observer(record)
                trailers = trailers_of(error, record.request_id, None)
                await context.abort(status_of(error), message_of(error), trailers)
            async for reply in super().ServerReflectionInfo(request_iterator, context):
                yield reply

    make: Any = grpc.stream_stream_rpc_method_handler
    handlers = {
        "ServerReflectionInfo": make(
            Guarded(names).ServerReflectionInfo,
            request_deserializer=_reflection_request,
            response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
        )
    }
    versions = (reflection.SERVICE_NAME, reflection.SERVICE_NAME.replace("v1alpha", "v1"))
    return tuple(grpc.method_handlers_generic_handler(version, handlers) for version in versions)


def _reflection_request(raw: bytes) -> Any:
    """Return the request. Undecodable bytes give an empty one, which is refused without a traceback in the log."""
    try:
        return reflection_pb2.ServerReflectionRequest.FromString(raw)
    except DecodeError:
        return reflection_pb2.ServerReflectionRequest()


MAX_CALLERS = 16_384
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


@dataclass(frozen=True, slots=True)
class Caller:
    """A caller and its limits.

    Attributes:
        name: as in the callers file; empty for an anonymous caller.
        reach: labels held, as of `types.Query.reach`; None sees everything.
        per_second, burst: sustained rate of requests, and size of a burst; None for no limit.
        per_day: requests per day (UTC); None for no limit.
        max_concurrent: requests at a time, in all processes together; None for no limit.
        indexes: patterns of the names of the indexes of a catalogue that it may ask; None for all.
    """

    name: str = ""
    reach: frozenset[str] | None = frozenset()
    per_second: float | None = None
    burst: float | None = None
    per_day: int | None = None
    max_concurrent: int | None = None
    indexes: tuple[str, ...] | None = None

    def may_ask(self, index: str) -> bool:
        """Return whether the caller may ask an index of a catalogue."""
        return self.indexes is None or matches_any(index, self.indexes)


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)


def _time(given: Any) -> Any:
    """Return the time of a text: YAML reads a quoted time as a text."""
    return datetime.fromisoformat(given) if isinstance(given, str) else given


def _utc(given: datetime | None) -> datetime | None:
    try:
        return None if given is None else given.astimezone(UTC)
    except OverflowError:
        raise ValueError("in UTC it is after the last year that can be represented") from None


def _pattern(given: str) -> str:
    if not is_index_pattern(given):
        raise ValueError("an index has up to 63 letters, digits and . _ -, and * stands for any of them")
    return given


class _Token(_Part):
    sha256: Annotated[str, Field(pattern=r"^[0-9A-Fa-f]{64}$")]
    expires: Annotated[AwareDatetime | None, BeforeValidator(_time), AfterValidator(_utc)] = None


class _Rate(_Part):
    per_second: Annotated[float, Field(gt=0, allow_inf_nan=False, strict=False)]
    burst: Annotated[float | None, Field(ge=1, allow_inf_nan=False, strict=False)] = None


class _Record(_Part):
    tokens: Annotated[list[_Token], Field(max_length=16)] = []
    certificates: Annotated[list[Annotated[str, Field(min_length=1)]], Field(max_length=64)] = []
    labels: list[Annotated[str, Field(min_length=1)]] | Literal["all"] = []
    indexes: Annotated[list[Annotated[str, AfterValidator(_pattern)]], Field(max_length=1024)] | Literal["all"] = []
    rate: _Rate | None = None
    quota_per_day: Annotated[int | None, Field(ge=1)] = None
    max_concurrent: Annotated[int | None, Field(ge=1)] = None

    def caller(self, name: str) -> Caller:
        rate = self.rate
        return Caller(
            name=name,
            reach=None if self.labels == "all" else frozenset(self.labels),
            per_second=None if rate is None else rate.per_second,
            burst=None if rate is None else max(rate.burst or rate.per_second, 1.0),
            per_day=self.quota_per_day,
            max_concurrent=self.max_concurrent,
            indexes=None if self.indexes == "all" else tuple(self.indexes),
        )


class _File(_Part):
    callers: Annotated[dict[str, _Record], Field(min_length=1, max_length=MAX_CALLERS)]


@dataclass(frozen=True)
class Callers:
    """The callers of a callers file.

    Attributes:
        tokens: SHA-256 of a token → its caller, and its expiry.
        certificates: name in a client's certificate → its caller.
    """

    tokens: Mapping[bytes, tuple[Caller, datetime | None]] = field(default_factory=dict)
    certificates: Mapping[str, Caller] = field(default_factory=dict)

    def __len__(self) -> int:
        return len({caller.name for caller, _ in self.tokens.values()} | {c.name for c in self.certificates.values()})

    def of_token(self, token: str, now: datetime) -> tuple[Caller | None, bool]:
        """Return the caller of a token, None for an unknown one, and whether the token is valid.

        The look-up compares digests. A client cannot choose a token by its digest, so the time of the look-up reveals
        nothing about valid tokens.
        """
        found = self.tokens.get(hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest())
        if found is None:
            return None, False
        caller, expires = found
        return caller, expires is None or now < expires

    def of_certificate(self, names: Iterable[str]) -> Caller | None:
        """Return the caller of a certificate with these names; None for no caller, or for several."""
        found = {id(caller): caller for name in names if (caller := self.certificates.get(name)) is not None}
        return next(iter(found.values())) if len(found) == 1 else None

    def next_expiry(self, now: datetime) -> datetime | None:
        """Return the expiry of the token that expires next, None if none expires."""
        times = (expires for _, expires in self.tokens.values() if expires is not None)
        return min((expires for expires in times if expires > now), default=None)


class NoCallers(ConfigError):
    """The callers file is missing, cannot be read, or is empty."""


def is_name(text: str) -> bool:
    """Return whether a text is a valid caller name: names are written to the log and must not forge its lines."""
    return _NAME.fullmatch(text) is not None


def read_callers(path: str) -> Callers:
    """Return the callers of a YAML file.

    Raises:
        NoCallers: the file cannot be read, or has no callers.
        ConfigError: it is not YAML, has an unknown key or a wrong value, or two callers share a
            token or a certificate's name.
    """
    try:
        data = yaml.load(Path(path).read_text(encoding="utf-8-sig"), Loader=_Loader)
    except OSError as error:
        raise NoCallers(f"the callers file {path} cannot be read: {error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"the callers file {path} cannot be read: {error}") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = "" if mark is None else f" in line {mark.line + 1}, column {mark.column + 1}"
        raise ConfigError(f"the callers file {path} is not YAML: {error.problem or error.context}{where}") from None
    except (yaml.YAMLError, RecursionError):
        raise ConfigError(f"the callers file {path} is not YAML") from None
    except Exception as error:  # a date such as 2027-02-30: the YAML library raises the error of datetime
        cause = f"{type(error).__name__}: {error}"
        raise ConfigError(f"the callers file {path} has a value that cannot be read ({cause})") from error
    if not data or (isinstance(data, dict) and data.keys() == {"callers"} and not data["callers"]):
        raise NoCallers(f"the callers file {path} has no callers; `hirag-dist serve token NAME` makes a token for one")
    try:
        records = _File.model_validate(data).callers
    except ValidationError as error:
        raise ConfigError(f"the callers file {path}: {_explain(error)}") from None
    return _index(path, records)


def _index(path: str, records: Mapping[str, _Record]) -> Callers:
    tokens: dict[bytes, tuple[Caller, datetime | None]] = {}
    certificates: dict[str, Caller] = {}
    for name, record in records.items():
        if not is_name(name):
            raise ConfigError(
                f"the callers file {path}: {name!r} is not a valid caller name; a name has up to 64 letters, digits "
                f"and . _ @ -"
            )
        if not record.tokens and not record.certificates:
            raise ConfigError(
                f"the callers file {path}: {name} has neither tokens nor certificates; "
                f"`hirag-dist serve token {name}` makes a token"
            )
        caller = record.caller(name)
        for token in record.tokens:
            digest = bytes.fromhex(token.sha256)
            if digest in tokens:
                raise ConfigError(f"the callers file {path}: {tokens[digest][0].name} and {name} have the same token")
            tokens[digest] = (caller, token.expires)
        for certificate in record.certificates:
            if certificate in certificates:
                others = certificates[certificate].name
                raise ConfigError(f"the callers file {path}: {others} and {name} both have certificate {certificate!r}")
            certificates[certificate] = caller
    return Callers(tokens, certificates)


class _Loader(yaml.SafeLoader):
    """YAML loader that refuses duplicate keys: of two callers with one name, one would be lost silently."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if key is not None and key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key} occurs twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


_HINTS = {  # last part of the key, or kind of error → hint
    "labels": "give a list of labels, or the word all",
    "indexes": "give a list of names or patterns such as acme-*, or the word all",
    "sha256": "give the SHA-256 of the token as 64 hexadecimal digits, in quotes",
    "expires": "give a time with its zone, such as 2027-01-31T00:00:00Z",
    "model_type": "give keys and values",
    "missing": "is missing",
}


def _explain(error: ValidationError) -> str:
    lines = []
    for fault in error.errors(include_url=False, include_input=False):
        parts = [str(part) for part in fault["loc"]]
        for key in ("labels", "indexes"):  # the rest of the path distinguishes the two types that they may have
            if key in parts[2:]:
                parts = parts[: parts.index(key, 2) + 1]
        where = ".".join(parts)
        if fault["type"] == "extra_forbidden":
            lines.append(f"unknown key {where}; a caller has {', '.join(_Record.model_fields)}")
            continue
        hint = next((_HINTS[key] for key in (fault["type"], *parts[-1:]) if key in _HINTS), fault["msg"])
        lines.append(f"{where or 'callers'}: {hint}")
    return "; ".join(dict.fromkeys(lines))
