"""Output of `status` about stages."""

from __future__ import annotations

from typing import Any

from hirag_dist.cli.status import _steps_as_one


def stage(label: str, state: str = "done", **more: Any) -> dict[str, Any]:
    return {"stage": label, "state": state, "kept": False, "rows": 5, "rejects": 1, "seconds": 2.0, "usage": []} | more


def test_finished_steps_of_a_stage_are_one_line_with_their_sum() -> None:
    steps = [
        stage("merge layer 1: links", rows=7, usage=[{"a": 1}]),
        stage("merge layer 1: entities", usage=[{"b": 2}]),
    ]
    (line, following) = _steps_as_one([*steps, stage("merge layer 2: links")])
    assert (line["stage"], line["rows"], line["rejects"], line["seconds"]) == ("merge layer 1", 7, 2, 4.0)
    assert line["usage"] == [{"a": 1}, {"b": 2}]
    assert following["stage"] == "merge layer 2"
    assert steps[0]["usage"] == [{"a": 1}], "what is printed elsewhere is left as it was"


def test_a_step_that_is_not_done_stands_by_itself() -> None:
    steps = [stage("merge layer 1: links"), stage("merge layer 1: entities", "stopped")]
    assert [line["stage"] for line in _steps_as_one(steps)] == ["merge layer 1", "merge layer 1: entities"]


def test_stages_of_the_same_name_that_are_no_steps_stay_apart() -> None:
    assert len(_steps_as_one([stage("meta types"), stage("meta types")])) == 2
