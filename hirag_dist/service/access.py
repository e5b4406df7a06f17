"""One log line a request."""

from __future__ import annotations

import logging
import re
import time
import uuid
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import grpc

from hirag_dist.service.status import REQUEST_ID_KEY

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]

_LOG = logging.getLogger("hirag_dist.service.access")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclass(slots=True)
class Access:
    """What the log says of a request; written once, when it ends.

    The record carries the same fields as attribute `access`, for formatters that write JSON.
    """

    method: str
    peer: str
    request_id: str
    caller: str = ""
    code: str = "OK"
    mode: str = ""
    snapshot: str = ""
    partial: str = ""
    reason: str = ""
    started: float = field(default_factory=time.perf_counter)

    @classmethod
    def of(cls, method: str, context: Context) -> Access:
        """Begin the record of a call, with the request id that it brings or a new one."""
        given = next((value for key, value in context.invocation_metadata() or () if key == REQUEST_ID_KEY), "")
        if not isinstance(given, str) or not _REQUEST_ID.fullmatch(given):
            given = uuid.uuid4().hex
        return cls(method=method, peer=context.peer(), request_id=given)

    def write(self) -> None:
        """Write the line."""
        fields = {
            "method": self.method,
            "code": self.code,
            "ms": round((time.perf_counter() - self.started) * 1000, 1),
            "mode": self.mode,
            "snapshot": self.snapshot,
            "partial": self.partial,
            "reason": self.reason,
            "peer": self.peer,
            "caller": self.caller,
            "request_id": self.request_id,
        }
        line = " ".join(f"{name}={value}" for name, value in fields.items() if value != "")
        _LOG.info("%s", line, extra={"access": fields})
