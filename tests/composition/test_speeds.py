"""How fast endpoints replied in the builds of an index."""

from __future__ import annotations

from typing import Any

from hirag_dist.composition.build_records import measured_speeds


def stage(seconds: float, tokens: int, *, kept: bool = False, ledger_hits: int = 0) -> dict[str, Any]:
    usage = {"endpoint": "local", "output_tokens": tokens, "ledger_hits": ledger_hits}
    return {"stage": "extract", "seconds": seconds, "kept": kept, "usage": [usage]}


def test_the_speed_is_that_of_all_stages_together() -> None:
    assert measured_speeds([stage(100, 300), stage(50, 300)]) == {"local": 4.0}


def test_stages_whose_replies_were_there_before_tell_no_speed() -> None:
    assert measured_speeds([stage(1, 9000, kept=True), stage(1, 9000, ledger_hits=3), stage(100, 400)]) == {
        "local": 4.0
    }


def test_a_few_tokens_tell_no_speed() -> None:
    assert measured_speeds([stage(10, 12)]) == {}
