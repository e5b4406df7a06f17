"""Errors → statuses → errors."""

from __future__ import annotations

import inspect

import grpc
import pytest
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2

from hirag_dist import errors
from hirag_dist.errors import HiragError, InvalidQuery, ModelUnavailable, RateLimited, ServiceError
from hirag_dist.wire import error_status

PUBLIC = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, HiragError)]
KINDS = [kind for kind, _ in error_status.STATUS]


def details(trailers: tuple[tuple[str, str | bytes], ...]) -> status_pb2.Status:
    return status_pb2.Status.FromString(dict(trailers)[error_status.DETAILS_KEY])


@pytest.mark.parametrize("kind", sorted({*PUBLIC, *KINDS}, key=lambda kind: kind.__name__))
def test_every_error_has_a_row_and_comes_back(kind: type[HiragError]) -> None:
    error = kind("what to do")
    code, trailers = error_status.status_of(error), error_status.trailers_of(error, "r1", None)
    back = error_status.error_of(code, error_status.message_of(error), trailers)
    assert type(back) is kind
    assert str(back) == "what to do"
    assert code is not grpc.StatusCode.OK
    assert details(trailers).code == code.value[0]


def test_a_wrong_field_is_named() -> None:
    found = details(error_status.trailers_of(InvalidQuery("top_n must be at least 1, got 0"), "r1", None))
    bad, info, request = error_details_pb2.BadRequest(), error_details_pb2.ErrorInfo(), error_details_pb2.RequestInfo()
    assert sum(detail.Unpack(bad) for detail in found.details) == 1
    assert [(v.field, v.description) for v in bad.field_violations] == [
        ("query.top_n", "top_n must be at least 1, got 0")
    ]
    assert sum(detail.Unpack(info) for detail in found.details) == 1
    assert (info.reason, info.domain) == ("INVALID_QUERY", "hirag_dist")
    assert sum(detail.Unpack(request) for detail in found.details) == 1
    assert request.request_id == "r1"
    assert error_status.field_of(InvalidQuery("the index has no level 9")) == "query"


@pytest.mark.parametrize(
    ("error", "remaining_s", "delay_ms", "pushback"),
    [
        (RateLimited("429", 2.5), None, 2500, "2500"),
        (RateLimited("429", 2.5), 1.0, 2500, "-1"),  # the caller would meet its deadline instead of the error
        (RateLimited("429"), 30.0, 1000, "1000"),
        (ModelUnavailable("down"), 30.0, 1000, "-1"),  # the service has tried several times itself
        (error_status.Overloaded("full"), 30.0, 200, "200"),
        (
            error_status.QuotaExceeded("used up", "quota", "web", 43_200.0),
            None,
            43_200_000,
            "-1",
        ),  # no caller waits that long by default
        (errors.BackendUnavailable("no Milvus"), 30.0, None, "-1"),
        (InvalidQuery("no"), 30.0, None, None),
    ],
)
def test_when_to_ask_again(
    error: HiragError, remaining_s: float | None, delay_ms: int | None, pushback: str | None
) -> None:
    trailers = error_status.trailers_of(error, "r1", remaining_s)
    retry = error_details_pb2.RetryInfo()
    told = any(detail.Unpack(retry) for detail in details(trailers).details)
    assert (retry.retry_delay.ToMilliseconds() if told else None) == delay_ms
    assert dict(trailers).get(error_status.PUSHBACK_KEY) == pushback


@pytest.mark.parametrize("after", [None, 0.0, 12.5])
def test_what_an_endpoint_asked_for_reaches_the_client(after: float | None) -> None:
    error = RateLimited("429", after)
    back = error_status.error_of(error_status.status_of(error), "429", error_status.trailers_of(error, "r", None))
    assert isinstance(back, RateLimited)
    assert back.retry_after_s == after


def test_a_long_message_is_cut_to_fit_a_header() -> None:
    for text in ("x" * 5000, "灯" * 5000, "\ud800" * 5000):
        message = error_status.message_of(HiragError(text))
        assert len(message.encode()) <= 1024
    assert error_status.message_of(HiragError("灯台")) == "灯台"


def test_statuses_that_are_not_ours() -> None:
    unavailable = grpc.StatusCode.UNAVAILABLE
    foreign = status_pb2.Status(code=14, message="m")
    foreign.details.add().Pack(error_details_pb2.ErrorInfo(reason="INVALID_QUERY", domain="example.com"))
    later = status_pb2.Status(code=14, message="m")
    later.details.add().Pack(error_details_pb2.ErrorInfo(reason="FROM_THE_FUTURE", domain="hirag_dist"))
    assert error_status.error_of(unavailable, "m", ()) is None
    assert error_status.error_of(unavailable, "m", ((error_status.DETAILS_KEY, b"\xff\xff"),)) is None
    assert error_status.error_of(unavailable, "m", ((error_status.DETAILS_KEY, foreign.SerializeToString()),)) is None
    assert (
        type(error_status.error_of(unavailable, "m", ((error_status.DETAILS_KEY, later.SerializeToString()),)))
        is ServiceError
    )


def test_details_of_google_rpc_are_read() -> None:
    status = status_pb2.Status(code=8, message="full")
    retry = error_details_pb2.RetryInfo()
    retry.retry_delay.FromMilliseconds(61_250)
    info = error_details_pb2.ErrorInfo(reason="OVERLOADED", domain="hirag_dist", metadata={"a": "1", "b": ""})
    status.details.add(type_url="type.googleapis.com/example.RetryInfo", value=b"\xff")  # of another package
    for detail in (info, error_details_pb2.BadRequest(), error_details_pb2.RequestInfo(request_id="r 灯"), retry):
        status.details.add().Pack(detail)
    found = error_status.details_of(status.SerializeToString())
    assert found.keys() == {"ErrorInfo", "RequestInfo", "RetryInfo"}
    assert (found["ErrorInfo"].reason, found["ErrorInfo"].domain) == ("OVERLOADED", "hirag_dist")
    assert {one.key: one.value for one in found["ErrorInfo"].metadata} == {"a": "1", "b": ""}
    assert found["RequestInfo"].request_id == "r 灯"
    assert (found["RetryInfo"].retry_delay.seconds, found["RetryInfo"].retry_delay.nanos) == (61, 250_000_000)


@pytest.mark.parametrize("broken", [b"\xff\xff", b"\x1a\x7f"])
def test_what_is_no_status_is_an_error(broken: bytes) -> None:
    with pytest.raises(DecodeError):
        error_status.details_of(broken)


def test_health_checks() -> None:
    request = error_status.HealthCheckRequest(service="hirag.query.v1.QueryService").SerializeToString()
    assert health_pb2.HealthCheckRequest.FromString(request).service == "hirag.query.v1.QueryService"
    for name, number in health_pb2.HealthCheckResponse.ServingStatus.items():
        sent = health_pb2.HealthCheckResponse(status=number).SerializeToString()
        assert (error_status.HealthCheckResponse.FromString(sent).status == error_status.SERVING) == (name == "SERVING")
