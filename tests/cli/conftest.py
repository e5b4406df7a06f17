"""Reset of the changes that `--json` makes to the process, after each test."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from hirag_dist.cli import _output
from tests.service.fixtures import certificates

__all__ = ["certificates"]


@pytest.fixture(autouse=True)
def _stdout_is_given_back() -> Iterator[None]:
    """Put back what `claim_stdout` takes: the file descriptor 1, and where `emit` writes."""
    before, stdout = dict(_output._state), os.dup(1)
    yield
    if (claimed := _output._state["stdout"]) not in (None, before["stdout"]):
        os.close(claimed)
        os.dup2(stdout, 1)
    os.close(stdout)
    _output._state.update(before)
