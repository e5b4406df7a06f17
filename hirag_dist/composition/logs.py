"""Logging of a process to stderr: levels, and one format of all lines, for people or as JSON."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

FORMAT_VARIABLE = "HIRAG_LOG_FORMAT"  # of the environment, which child processes inherit: text or json
_NOISY = ("httpx", "httpx2", "openai", "pymilvus", "milvus_lite", "ray")
_PLAIN = re.compile(r"[\x21\x23-\x3c\x3e-\x7e]+")  # what needs no quotes: no space, quote, = or control character
T = TypeVar("T")
logger = logging.getLogger(__name__)


def is_json() -> bool:
    """Return whether this process and its children log JSON."""
    return os.environ.get(FORMAT_VARIABLE) == "json"


def _fields(record: logging.LogRecord) -> Mapping[str, Any]:
    """Return the fields of a record beside its message: `logger.info("request", extra={"fields": {…}})`."""
    fields: Mapping[str, Any] = getattr(record, "fields", {})
    return fields


class TextFormatter(logging.Formatter):
    """Lines for people, after the name of this process if it has one. Fields follow the message as `name=value`."""

    def __init__(self, name: str = "") -> None:
        prefix = f"[{name}] " if name else ""
        super().__init__(f"%(asctime)s %(levelname)s %(name)s: {prefix}%(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is the library's
        """Return the line of a record without its exception."""
        line = super().formatMessage(record)
        for name, value in _fields(record).items():
            text = str(value)
            line += f" {name}={text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=True)}"
        return line


class JsonFormatter(logging.Formatter):
    """One JSON object per line: `time`, `level`, `logger`, `message`, the fields of the record, and its `exception`.

    Args:
        name: Name of this process where it is one of several; the object has it as `process`.
    """

    def __init__(self, name: str = "") -> None:
        super().__init__()
        self._process = {"process": name} if name else {}

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            **self._process,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class _CurrentStderr:
    """The stderr of the moment: while a display of progress lives, it prints what is written above itself."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


def configure_logging(levels: Mapping[str, int], name: str = "") -> None:
    """Send the log to stderr, in the format that the environment names.

    In JSON, warnings of Python and exceptions that end a thread or the process are lines of the log too.

    Args:
        levels: logger → level; "" is the root.
        name: Name of this process where it is one of several.
    """
    handler = logging.StreamHandler(_CurrentStderr())
    handler.setFormatter(JsonFormatter(name) if is_json() else TextFormatter(name))
    logging.basicConfig(handlers=[handler])
    if is_json():
        logging.captureWarnings(True)
        sys.excepthook = lambda *error: logger.critical("the process ends by an exception", exc_info=error)
        threading.excepthook = _log_end_of_thread
    for noisy in map(logging.getLogger, _NOISY):
        noisy.setLevel(logging.ERROR)
        noisy.propagate = True
        noisy.handlers.clear()  # of a library that has been imported: its lines would have another format
    for logger_name, level in levels.items():
        logging.getLogger(logger_name).setLevel(level)


def _log_end_of_thread(end: threading.ExceptHookArgs) -> None:
    if end.exc_value is not None and end.exc_type is not SystemExit:
        exc_info = end.exc_type, end.exc_value, end.exc_traceback
        logger.critical("a thread ends by an exception", exc_info=exc_info)


@dataclass(frozen=True)
class LogSettings:
    """The logging of this process, for a process on another machine, which does not inherit the environment."""

    name: str
    format: str = field(default_factory=lambda: "json" if is_json() else "text")
    level: int = field(default_factory=lambda: logging.getLogger().level)

    def apply(self, make: Callable[..., T], *arguments: Any) -> T:
        """Configure the logging of the process that calls this, and return `make(*arguments)`."""
        os.environ[FORMAT_VARIABLE] = self.format
        configure_logging({"": self.level}, self.name)
        return make(*arguments)
