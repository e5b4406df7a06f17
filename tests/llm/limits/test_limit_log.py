"""What is said about an endpoint's limits: once, and again only when it goes on."""

from __future__ import annotations

import logging

import pytest

from hirag_dist.llm.limits.limit_log import LimitLog


def test_what_goes_on_is_said_again_and_the_end_of_it_too(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log = LimitLog("e")
    for now in range(0, 100, 5):
        log.on_report(float(now), 0, 1, 0.0)
    log.on_report(100.0, 1, 0, 0.0)
    log.on_report(101.0, 1, 1, 0.0)
    said = [record.message.partition(";")[0] for record in caplog.records]
    assert said == [
        "endpoint e has answered nothing but 429 for 15 s (4 times)",
        "endpoint e has answered nothing but 429 for 75 s (16 times)",
        "endpoint e answers again",
    ]


def test_pauses_waits_and_limits_are_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log = LimitLog("e")
    for now in (0.0, 1.0):
        log.on_report(now, 0, 0, 30.0)
        log.on_wait(now, 40.0, (2.0, None))
        log.on_disbelieved({"tokens": 1.0})
    log.on_report(2.0, 0, 0, 1.0)
    log.on_wait(3.0, 5.0, (2.0, None))
    log.on_rates((1.0, None), (1.1, 10.0))
    said = [record.message for record in caplog.records]
    assert len(said) == 4
    for text, words in zip(said, ("30 s (429)", "40 s for 120 requests a minute", "`tpm`", "600 tokens"), strict=True):
        assert words in text
