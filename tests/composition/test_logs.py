"""The format of the log, for people and as JSON."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from typing import Any

import pytest

from hirag_dist.composition.logs import FORMAT_VARIABLE, JsonFormatter, TextFormatter

FAKED = 'x\nmethod=Retrieve caller="root"\u2028'


def record(message: str, fields: dict[str, Any] | None = None, **more: Any) -> logging.LogRecord:
    made = logging.makeLogRecord({"name": "hirag_dist.x", "levelname": "INFO", "msg": message, **more})
    if fields is not None:
        made.fields = fields
    return made


def test_fields_follow_the_message_of_a_text_line_and_cannot_fake_another() -> None:
    line = TextFormatter("worker 1").format(record("request", {"code": "OK", "ms": 3.5, "question": FAKED}))
    assert line.endswith(
        r'INFO hirag_dist.x: [worker 1] request code=OK ms=3.5 question="x\nmethod=Retrieve caller=\"root\"\u2028"'
    )


def test_a_json_line() -> None:
    line = JsonFormatter("page").format(record("request", {"ms": 3.5, "question": FAKED}, created=1e9 + 0.25))
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2001-09-09T01:46:40.250+00:00",
        "level": "INFO",
        "logger": "hirag_dist.x",
        "process": "page",
        "message": "request",
        "ms": 3.5,
        "question": FAKED,
    }


PROGRAM = """
import logging, threading, warnings
from hirag_dist.composition.logs import LogSettings
library = logging.getLogger("ray")
library.addHandler(logging.StreamHandler())
library.propagate = False
assert LogSettings("ray worker", "json", logging.INFO).apply(lambda word: word, "made") == "made"
library.error("of a library with a handler of its own")
logging.getLogger("uvicorn.error").info("of another library")
warnings.warn("of Python", stacklevel=1)
thread = threading.Thread(target=lambda: 1 / 0)
thread.start()
thread.join()
raise SystemError("the last one")
"""


@pytest.mark.integration
def test_every_line_of_a_process_is_json() -> None:
    environ = {name: value for name, value in os.environ.items() if name != FORMAT_VARIABLE}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environ)
    assert done.returncode == 1
    library, other, warning, thread, end = map(json.loads, done.stderr.splitlines())
    assert (library["level"], library["logger"], library["process"]) == ("ERROR", "ray", "ray worker")
    assert other["message"] == "of another library"
    assert warning["logger"] == "py.warnings"
    assert "UserWarning: of Python" in warning["message"]
    assert thread["exception"].endswith("ZeroDivisionError: division by zero")
    assert end["exception"].endswith("SystemError: the last one")
