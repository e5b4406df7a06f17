"""Steps of units: each done once, whatever ends a run; failures are reported and retried."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hirag_dist.core.prompts.reply_parsing import MalformedReply
from hirag_dist.errors import BudgetReached, ConfigError, InvalidQuery, ModelUnavailable, RequestRejected
from hirag_dist.evaluation.session import Session
from hirag_dist.evaluation.work_units import Outcomes
from hirag_dist.execution.events import StageFailedEvent, StageFinished, StageStarted, TaskFinished
from hirag_dist.types import ChatReply, ChatRequest, Message, Rejected
from tests.evaluation.sessions import session, units
from tests.scripted_endpoint import Endpoint


class Squares:
    """Work that remembers its items, and fails by a table: item → what is raised or returned."""

    def __init__(self, failures: dict[int, Any] | None = None) -> None:
        self.done: list[int] = []
        self.failures = failures or {}

    async def __call__(self, item: int) -> Any:
        self.done.append(item)
        made = self.failures.get(item, {"square": item * item})
        if isinstance(made, BaseException):
            raise made
        return made


async def values(outcomes: Outcomes[Any]) -> list[tuple[Any, Any]]:
    return [(outcome.item, outcome.value["square"]) async for outcome in outcomes]


async def test_outcomes_come_in_the_order_of_their_units(tmp_path: Path) -> None:
    async def slow_first(item: int) -> dict[str, int]:
        for _ in range(10 - item):
            await asyncio.sleep(0)
        return {"square": item * item}

    async with session(tmp_path) as opened:
        outcomes = await opened.map("step", units([3, 1, 2]), slow_first)
        assert await values(outcomes) == [(3, 9), (1, 1), (2, 4)]
        assert len(outcomes) == 3


async def test_equal_units_are_done_once_and_come_twice_and_a_second_run_does_nothing_again(tmp_path: Path) -> None:
    told = list[object]()
    for expected in ([1, 2], []):
        work = Squares()
        async with session(tmp_path, (told.append,)) as opened:
            outcomes = await opened.map("step", units([1, 1, 2]), work)
            assert await values(outcomes) == [(1, 1), (1, 1), (2, 4)]
            assert len(outcomes) == 3
            assert (opened.n_new, opened.n_reused) == ((3, 0) if expected else (0, 3))
        assert sorted(work.done) == expected
    assert sum(event.n_rows for event in told if isinstance(event, TaskFinished)) == 3


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (Rejected("u2", "no good", 3, "what was asked", "what came"), "no good"),
        (RequestRejected("too long"), "too long"),
        (InvalidQuery("question: it is empty"), "question: it is empty"),
    ],
)
async def test_a_dead_letter_costs_its_unit_and_is_tried_again(tmp_path: Path, failure: Any, reason: str) -> None:
    async with session(tmp_path) as opened:
        outcomes = await opened.map("step", units([1, 2, 3]), Squares({2: failure}))
        assert await values(outcomes) == [(1, 1), (3, 9)]
        assert [(letter.id, letter.reason) for letter in opened.letters] == [("u2", reason)]
    for expected in ([2], []):
        work = Squares()
        async with session(tmp_path) as opened:
            await opened.map("step", units([1, 2, 3]), work)
            assert not opened.letters
        assert work.done == expected


@pytest.mark.parametrize("error", [ModelUnavailable("nobody"), BudgetReached("too much"), RequestRejected("key", True)])
async def test_what_ends_the_run_leaves_what_was_done(tmp_path: Path, error: Exception) -> None:
    told: list[object] = []
    with pytest.raises(type(error)):
        async with session(tmp_path, (told.append,)) as opened:
            await opened.map("step", units(range(9)), Squares({5: error}), at_once=2)
    assert isinstance(told[-1], StageFailedEvent)
    work = Squares()
    async with session(tmp_path, (told.append,)) as opened:
        outcomes = await opened.map("step", units(range(9)), work)
        assert len(outcomes) == 9
    started = [event for event in told if isinstance(event, StageStarted)][-1]
    assert started.n_done >= 5
    assert sorted(work.done) == list(range(started.n_done, 9)) or 5 in work.done
    assert isinstance(told[-1], StageFinished)
    assert len(work.done) == 9 - started.n_done


@pytest.mark.integration
def test_a_run_that_is_killed_at_every_unit_goes_on(tmp_path: Path) -> None:
    """Each run does one unit and is killed in the next: nothing that is done is done again."""
    script = Path(__file__).with_name("sessions.py")
    for n_before_death in (1, 1, 1, 0):
        command = [sys.executable, script, tmp_path, "3", str(n_before_death)]
        returncode = subprocess.run(command, check=False).returncode
        assert returncode in (-signal.SIGKILL, 0)
    assert (tmp_path / "tried").read_text().split() == ["0", "1", "1", "2", "2"]
    assert returncode == 0


async def test_a_folder_has_one_run_and_is_no_index(tmp_path: Path) -> None:
    (tmp_path / "index" / "current").mkdir(parents=True)
    with pytest.raises(ConfigError, match="is an index"):
        async with session(tmp_path / "index"):
            pass
    async with session(tmp_path):
        with pytest.raises(ConfigError, match="another run evaluates into"):
            async with session(tmp_path):
                pass


@pytest.fixture
def far() -> Iterator[Endpoint]:
    """An endpoint that always says the same."""
    endpoint = Endpoint(lambda asked: "A square.")
    yield endpoint
    endpoint.close()


def judged_by(far: Endpoint, **more: Any) -> dict[str, Any]:
    """A configuration whose judge is at an endpoint."""
    named = {"base_url": far.url, "model": "toy", "price": {"input": 1e6, "output": 1e6}} | more
    return {"llm": {"endpoints": {"far": named}, "roles": {"judge": "far"}, "attempts": 2}}


def judge(opened: Session, accept: Callable[[ChatReply], Any] = lambda reply: {"square": reply.text}) -> Any:
    async def work(item: int) -> Any:
        request = ChatRequest("judge", (Message("user", f"What is {item} by {item}?"),), f"unit {item}")
        return await opened.pool.ask(request, accept)

    return work


async def test_replies_are_paid_once(tmp_path: Path, far: Endpoint) -> None:
    for calls in (3, 0):
        async with session(tmp_path, config=judged_by(far), fresh=True) as opened:
            await opened.map("step", units([1, 2, 3]), judge(opened))
            (row,) = opened.usage["step"].rows()
            assert row["calls"] == 3
            assert row["calls"] - row["ledger_hits"] == calls
            assert opened.sent.spent()[0] == row["sent_tokens"]
    assert len(far.asked) == 3


async def test_a_refused_reply_is_asked_again_by_the_next_run(tmp_path: Path, far: Endpoint) -> None:
    """Two attempts a run, and none is paid twice: the second run makes new calls instead of using the refused ones."""

    def refuse(reply: ChatReply) -> Any:
        raise MalformedReply("not in the form")

    for n_asked in (2, 4):
        async with session(tmp_path, config=judged_by(far)) as opened:
            await opened.map("step", units([1]), judge(opened, refuse))
            assert [(letter.reason, letter.attempts) for letter in opened.letters] == [("not in the form", n_asked)]
        assert len(far.asked) == n_asked


async def test_a_spending_limit_stops_the_run_before_it_is_passed(tmp_path: Path, far: Endpoint) -> None:
    config = judged_by(far, max_reply_tokens=50, max_concurrent=1)
    far.alter = lambda body: body | {"usage": {"prompt_tokens": 20, "completion_tokens": 5}}
    with pytest.raises(BudgetReached):
        async with session(tmp_path, config=config, max_tokens=200) as opened:
            await opened.map("step", units(range(20)), judge(opened))
    assert 0 < 25 * len(far.asked) <= 200
    async with session(tmp_path, config=config) as opened:
        assert len(await opened.map("step", units(range(20)), judge(opened))) == 20
    assert len(far.asked) == 20
