"""Estimates of a retry against the retry itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hirag_dist.application.retry import estimate_retry
from tests.refusing_index import RefusingIndex


@pytest.fixture
def index(tmp_path: Path) -> Iterator[RefusingIndex]:
    found = RefusingIndex(tmp_path)
    yield found
    found.endpoint.close()


def test_a_retry_keeps_between_its_bounds(index: RefusingIndex) -> None:
    index.refused = "Brunel"
    index.build("engine.txt", "bridge.txt")
    index.asked.clear()
    made = estimate_retry(index.uri, index.config)
    assert not index.asked
    assert (dict(made.letters), made.dropped, made.finished) == ({"extract": 1}, 0, True)
    (stage,) = made.stages
    assert (stage.stage, stage.endpoint, stage.calls) == ("extract", "chat", 1)
    assert stage.input_tokens > 50  # the prompt of the letter
    assert "reports" in {one.stage for one in made.later}
    index.refused = ""
    index.retry()
    chat = sum(one.calls for one in made.later if one.stage != "embed")
    assert made.calls[0] <= len(index.asked) <= 1 + chat + 1  # a report of the new entities is one more
    assert estimate_retry(index.uri, index.config).calls == (0, 0)
