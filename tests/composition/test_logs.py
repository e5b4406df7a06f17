"""The log goes to the stderr of the moment, which a display of progress may have replaced."""

from __future__ import annotations

import io
import logging
import sys

import pytest

from hirag_dist.composition.logs import configure_logging


def test_a_message_goes_to_the_stderr_that_there_is_when_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])  # as at the start of a process
    monkeypatch.setattr(root, "level", root.level)
    before, now = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", before)
    configure_logging({"": logging.WARNING})
    monkeypatch.setattr(sys, "stderr", now)
    logging.getLogger("hirag_dist.some").warning("the endpoint is slow")
    assert before.getvalue() == ""
    assert "the endpoint is slow" in now.getvalue()
