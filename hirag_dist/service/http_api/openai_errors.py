"""Errors in the form of OpenAI's API: {"error": {"message", "type", "param", "code"}}. Pure functions."""

from __future__ import annotations

import math
from typing import Any

import grpc

from hirag_dist.service.http_api.openai_requests import BadRequest
from hirag_dist.service.http_api.requests import BodyTooLarge
from hirag_dist.service.http_api.status_error import StatusError, error_headers, http_status

_REQUEST, _SERVER, _RATE = "invalid_request_error", "server_error", "rate_limit_error"
_CODES = {
    grpc.StatusCode.UNAUTHENTICATED: ("authentication_error", "invalid_api_key"),
    grpc.StatusCode.PERMISSION_DENIED: ("permission_error", "permission_denied"),
    grpc.StatusCode.NOT_FOUND: (_REQUEST, "model_not_found"),
    grpc.StatusCode.INVALID_ARGUMENT: (_REQUEST, "invalid_value"),
    grpc.StatusCode.RESOURCE_EXHAUSTED: (_RATE, "rate_limit_exceeded"),
    grpc.StatusCode.DEADLINE_EXCEEDED: (_SERVER, "timeout"),
}
_TOO_LARGE = "REQUEST_TOO_LARGE"  # reason of a reply that is larger than a message


def error_body(error: Exception) -> dict[str, Any]:
    """Return an error as a JSON object."""
    kind, param, code = _REQUEST, None, None
    match error:
        case BadRequest():
            param, code = error.param, error.code
        case BodyTooLarge():
            code = "request_too_large"
        case StatusError():
            kind, code = _CODES.get(error.code, (_SERVER, error.reason.lower() or error.code.name.lower()))
            if error.code is grpc.StatusCode.NOT_FOUND:
                param = "model"
            elif error.code is grpc.StatusCode.INVALID_ARGUMENT:
                field = error.field.removeprefix("query").lstrip(".")
                param = {"": None, "question": "messages", "mode": "model"}.get(field, f"hirag.{field}")
            elif error.reason == "QUOTA_EXCEEDED":
                code = "insufficient_quota"
        case _:
            kind = _SERVER
    return {"error": {"message": str(error), "type": kind, "param": param, "code": code}}


def error_status(error: Exception) -> int:
    """Return the HTTP status of an error."""
    match error:
        case BadRequest():
            return error.status
        case BodyTooLarge():
            return 413
        case StatusError():
            return 413 if error.reason == _TOO_LARGE else http_status(error.code)
    return 500


def retry_headers(error: Exception) -> dict[str, str]:
    """Return the headers that say when to ask again, in seconds and in milliseconds, and how to authenticate."""
    if not isinstance(error, StatusError):
        return {}
    headers = error_headers(error)
    if error.retry_after_s is not None:
        headers["Retry-After-Ms"] = str(math.ceil(error.retry_after_s * 1000))
    return headers
