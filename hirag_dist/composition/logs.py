"""Logging of a process: levels, format and destination (stderr)."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_NOISY = ("httpx", "httpx2", "openai", "pymilvus", "milvus_lite", "ray")


class _CurrentStderr:
    """The stderr of the moment: while a display of progress lives, it prints what is written above itself."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


def log_messages_only(logger: str) -> None:
    """Send the messages of one logger to stderr without a prefix, one per line, for machines to read."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    logging.getLogger(logger).addHandler(handler)
    logging.getLogger(logger).propagate = False


def configure_logging(levels: Mapping[str, int], name: str = "") -> None:
    """Send the log to stderr.

    Args:
        levels: logger → level; "" is the root.
        name: of this process where it is one of several; it precedes each message.
    """
    prefix = f"[{name}] " if name else ""
    logging.basicConfig(format=_FORMAT.replace("%(message)s", f"{prefix}%(message)s"), stream=_CurrentStderr())
    for noisy in _NOISY:
        logging.getLogger(noisy).setLevel(logging.ERROR)
    for logger, level in levels.items():
        logging.getLogger(logger).setLevel(level)
