"""Hits of communities: counted by request, added to the file, kept where it cannot be written."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from hirag_dist.service.access_log import RequestRecord
from hirag_dist.service.hit_log import HitLog
from hirag_dist.storage.report_hits import read_hits


def test_hits_of_requests_are_added_to_the_file(tmp_path: Path) -> None:
    path = tmp_path / "hits.jsonl"
    log = HitLog(str(path))
    log.flush()
    assert not path.exists()
    for _ in range(2):
        log.count_request(RequestRecord("Retrieve", "peer", "id", communities=("a", "b")))
    log.count_request(RequestRecord("DescribeIndex", "peer", "id"))
    log.flush()
    log.count_request(RequestRecord("Answer", "peer", "id", communities=("b",)))
    log.flush()
    assert read_hits(path) == {"b": 3, "a": 2}


def test_hits_stay_until_the_file_can_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "hits.jsonl"
    path.write_text("damaged\n")
    log = HitLog(str(path))
    log.count_request(RequestRecord("Retrieve", "peer", "id", communities=("a",)))
    with caplog.at_level(logging.WARNING):
        log.flush()
        log.flush()
    assert len(caplog.records) == 1
    path.unlink()
    log.flush()
    assert read_hits(path) == {"a": 1}
