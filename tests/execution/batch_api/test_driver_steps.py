"""Batches against an endpoint in memory: answers that get lost, deaths between two steps, batches that are given up."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO, ClassVar

import pyarrow as pa
import pytest

from hirag_dist.errors import (
    BackendUnavailable,
    BudgetReached,
    ModelError,
    ModelUnavailable,
    RateLimited,
    RequestRejected,
)
from hirag_dist.execution.batch_api.driver import Batches, BatchSettings, BatchTarget
from hirag_dist.execution.batch_api.input_files import SpendingGuard, input_files
from hirag_dist.execution.batch_api.records import open_batches
from hirag_dist.execution.dataset import Dataset, TableSet
from hirag_dist.execution.events import BatchesSubmitted, UsageRecorded
from hirag_dist.execution.inline import InlineExecutor
from hirag_dist.execution.runner import StageRunner
from hirag_dist.execution.stage import ByRows, Services, Tables
from hirag_dist.execution.task import Task, TaskResult
from hirag_dist.llm.batch_api import BatchCall, BatchLine, BatchState, Collector, OversizedFile
from hirag_dist.llm.endpoints.scripted import ScriptedModel
from hirag_dist.llm.priced_model import PricedModel
from hirag_dist.llm.reply_store import ledger_size
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.storage.store import Store
from hirag_dist.types import ChatReply

PRICE = (1e6, 1e6, 1e6)  # a dollar a token


class Died(BaseException):
    """The driver's death: nothing after it runs."""


class Memory:
    """An endpoint that does a batch when it is looked at for the `looks`-th time.

    `at` is called with the name of each step before and after it, and may raise.
    """

    def __init__(self, looks: int = 1) -> None:
        self.at: Callable[[str], None] = lambda step: None
        self.looks = looks
        self.files: dict[str, bytes] = {}
        self.batches: dict[str, tuple[str, str]] = {}  # id → custom id, input
        self.seen: dict[str, int] = {}
        self.problem = ""
        self.counted = 6
        self.n_made = 0

    def _id(self, kind: str) -> str:
        self.n_made += 1
        return f"{kind}-{self.n_made}"

    async def check(self) -> None:
        self.at("check")

    async def upload(self, file_name: str, content: BinaryIO) -> str:
        self.at("upload")
        content.seek(0)
        own = self._id("file")
        self.files[own] = content.read()
        self.at("uploaded")
        return own

    async def create(self, file_id: str, own_id: str) -> BatchState:
        self.at("create")
        own = self._id("batch")
        self.batches[own] = own_id, file_id
        self.at("created")
        return BatchState(own, False, "", ())

    async def find(self, own_id: str, since: float) -> BatchState | None:
        found = [batch for batch, (own, _) in self.batches.items() if own == own_id]
        return BatchState(found[0], False, "", ()) if found else None

    async def state(self, batch_id: str) -> BatchState:
        self.at("state")
        if batch_id not in self.batches:
            raise RequestRejected(f"there is no batch {batch_id}")
        self.seen[batch_id] = self.seen.get(batch_id, 0) + 1
        if self.seen[batch_id] < self.looks:
            return BatchState(batch_id, False, "", ())
        if self.problem:
            return BatchState(batch_id, True, self.problem, ())
        output = f"{batch_id}-output"
        self.files[output] = self.files[self.batches[batch_id][1]]
        return BatchState(batch_id, True, "", (output,))

    async def download(self, file_id: str, to: BinaryIO, max_bytes: int) -> None:
        to.seek(0)
        to.truncate()
        to.write(self.files[file_id])
        self.at("downloaded")

    async def remove(self, file_id: str) -> None:
        self.at("remove")
        del self.files[file_id]

    def read(self, line: bytes) -> BatchLine:
        key = json.loads(line)["custom_id"].partition(".")[0]
        return BatchLine(key, ChatReply("done", input_tokens=6, output_tokens=4), counted=self.counted)

    async def close(self) -> None:
        pass


def call(number: int, usd: float = 1.0, endpoint: str = "e", tokens: int = 100) -> BatchCall:
    return BatchCall(f"{number:040x}", endpoint, "extract", tokens, usd)


WORDS = pa.schema([pa.field("word", pa.string(), nullable=False)])


@dataclass(frozen=True)
class Echo:
    """A stage that asks models."""

    name: ClassVar[str] = "echo"
    version: ClassVar[int] = 1
    split: ClassVar[ByRows] = ByRows(1)

    class Inputs(TableSet):
        words: Annotated[Dataset, WORDS]

    class Outputs(TableSet):
        echoed: Annotated[Dataset, WORDS]

    models: tuple[str, ...]

    async def run(self, tables: Tables, services: Services) -> Tables:
        raise NotImplementedError


def leave(store: Store, *calls: BatchCall, task: int = 0, folder: str = "calls") -> None:
    collector = Collector("run")
    for each in calls:
        collector.add(each, b'{"model":"m"}', 6)
    store.write_bytes(f"{folder}/{task:06d}.jsonl", collector.content())


class Driver:
    """The batches of a build, with the reports on them."""

    def __init__(self, store: Store, api: Memory, **settings: Any) -> None:
        self.slept: list[float] = []
        self.home = UsageMeter()
        self.sent: list[tuple[int, int]] = []
        self._now = 0.0
        self.store = store
        target = BatchTarget(PricedModel("e", ScriptedModel(lambda request: ""), price=PRICE), api)
        settings = {"wanted": True, "poll_s": 5.0, "outage_timeout_s": 100.0} | settings
        self.batches = Batches(
            store, lambda name: target, BatchSettings(**settings), clock=lambda: self._now, sleep=self._sleep
        )

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self._now += seconds

    def ask(self, spent: tuple[int, float] = (0, 0.0)) -> Any:
        try:
            return self.batches.ask("extract", "calls", spent, self._home, lambda label, *n: self.sent.append(n))
        finally:
            self.batches.close()

    def collect(self) -> None:
        try:
            self.batches.collect(self._home, open_batches(self.store))
        finally:
            self.batches.close()

    def _home(self, label: str, usage: UsageMeter) -> None:
        assert label == "extract"
        self.home.add(usage)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path))


def n_replies(store: Store) -> int:
    return ledger_size(store).records


def test_a_batch_comes_home_and_leaves_nothing_behind(store: Store) -> None:
    api = Memory(looks=3)
    leave(store, call(1), call(2))
    driver = Driver(store, api)
    returned = driver.ask()
    assert (returned.replies, returned.later, returned.refused) == (2, 0, 0)
    assert driver.slept == [5.0, 5.0]  # between looks, not before the first or after the last
    assert driver.home.spent() == (20, 10.0)  # ten tokens each, at half a dollar
    assert driver.sent == [(1, 2)]
    assert n_replies(store) == 2
    assert not open_batches(store)
    assert not api.files


@pytest.mark.parametrize("step", ["upload", "uploaded", "create", "created", "state", "downloaded", "remove"])
def test_killed_at_any_step_nothing_is_begun_twice(store: Store, step: str) -> None:
    """Batches that were sent are collected; those that were not are forgotten, and their tasks ask again."""
    api = Memory()
    leave(store, call(1), call(2))

    def die(at: str) -> None:
        if at == step:
            raise Died

    api.at = die
    with pytest.raises(Died):
        Driver(store, api).ask()
    api.at = lambda step: None
    driver = Driver(store, api)
    driver.collect()
    begun = step not in ("upload", "uploaded", "create")
    assert len(api.batches) == begun
    assert n_replies(store) == (2 if begun else 0)
    assert driver.home.spent()[0] == (20 if begun and step != "remove" else 0)
    assert not open_batches(store)


@pytest.mark.parametrize("step", ["upload", "create", "created", "state", "downloaded"])
def test_a_step_whose_answer_is_lost_is_made_again_and_no_batch_twice(store: Store, step: str) -> None:
    api = Memory()
    lost = []

    def lose(at: str) -> None:
        if at == step and len(lost) < 3:
            lost.append(at)
            raise ModelUnavailable("no answer")

    api.at = lose
    leave(store, call(1))
    driver = Driver(store, api)
    assert driver.ask().replies == 1
    assert len(api.batches) == 1
    assert n_replies(store) == 1
    assert driver.home.spent() == (10, 5.0)
    assert driver.slept == ([1.0, 2.0, 4.0] if step != "created" else [1.0])  # found at the second try


def test_an_endpoint_that_stays_away(store: Store) -> None:
    api = Memory()
    leave(store, call(1))

    def gone(at: str) -> None:
        if at == "state":
            raise RateLimited("slower", retry_after_s=30.0)

    api.at = gone
    driver = Driver(store, api)
    with pytest.raises(RateLimited):
        driver.ask()
    assert driver.slept == [30.0] * 4  # until a hundred seconds of patience are over
    assert [out.batch for out in open_batches(store)] == ["batch-2"]  # it is out all the same


def test_a_batch_that_failed_is_forgotten_and_the_others_are_home_first(store: Store) -> None:
    api = Memory()
    leave(store, call(1), call(2))
    driver = Driver(store, api, lines=1)

    def second_fails(at: str) -> None:
        api.problem = "too many tokens are queued" if at == "state" and api.seen else ""

    api.at = second_fails
    with pytest.raises(ModelError, match="too many tokens are queued"):
        driver.ask()
    assert n_replies(store) == 1
    assert driver.home.spent()[0] == 10
    assert not open_batches(store)


def test_a_batch_that_the_endpoint_does_not_know_any_more(store: Store) -> None:
    api = Memory()
    leave(store, call(1), call(2))
    driver = Driver(store, api, lines=1)
    api.at = lambda step: api.batches.pop("batch-2", None) if step == "state" else None
    with pytest.raises(ModelError, match=r"batch batch-2 \(1 call of extract\).*delete .*/batches/.*\.json"):
        driver.ask()
    assert [out.batch for out in open_batches(store)] == ["batch-2"]
    assert n_replies(store) == 1  # the other is home


def test_an_endpoint_without_batches_gets_nothing(store: Store) -> None:
    api = Memory()
    leave(store, call(1))

    def refuse(at: str) -> None:
        if at == "check":
            raise BackendUnavailable("endpoint e takes no batches")

    api.at = refuse
    with pytest.raises(BackendUnavailable):
        Driver(store, api).ask()
    assert not api.files
    assert not open_batches(store)


def test_a_refused_upload_leaves_no_record(store: Store) -> None:
    api = Memory()
    leave(store, call(1))

    def refuse(at: str) -> None:
        if at == "upload":
            raise RequestRejected("no")

    api.at = refuse
    with pytest.raises(RequestRejected):
        Driver(store, api).ask()
    assert not open_batches(store)


def test_a_run_counts_what_it_brings_home_as_sent_and_against_its_limits(store: Store) -> None:
    api = Memory()
    leave(store, call(1), call(2))

    def die(at: str) -> None:
        if at == "state":
            raise Died

    api.at = die
    with pytest.raises(Died):
        Driver(store, api).ask()
    api.at = lambda step: None
    charged: list[tuple[int, float]] = []
    executor = InlineExecutor(lambda: None, charge=lambda tokens, usd: charged.append((tokens, usd)))
    driver = Driver(store, api)
    events: list[object] = []
    runner = StageRunner(store, executor, (events.append,), 1.0, batches=driver.batches)
    runner.collect_batches()
    runner.collect_batches()  # nothing is out any more
    driver.batches.close()
    executor.close()
    assert charged == [(20, 10.0)]
    assert runner.bill.sent.spent() == (20, 10.0)
    assert events == [BatchesSubmitted("extract", 1, 2), UsageRecorded("extract", runner.bill.sent)]


def test_workers_may_go_while_a_batch_is_out(store: Store) -> None:
    """They may be nodes that are paid for, and a batch is out for up to a day."""
    steps: list[str] = []

    class Leaving(InlineExecutor):
        """Its first pass leaves a call, its second does the task."""

        def map(self, tasks: Iterable[Task]) -> Iterator[TaskResult]:
            for task in tasks:
                steps.append("map")
                if "upload" in steps:
                    yield TaskResult(task.number, {"echoed": (0, "")}, [], 0.0)
                else:
                    leave(store, call(1), folder=task.calls)
                    yield TaskResult(task.number, {}, [], 0.0, n_deferred=1)

        def release_idle(self) -> None:
            steps.append("rest")

    api = Memory(looks=2)
    api.at = steps.append
    executor, driver = Leaving(lambda: None), Driver(store, api)
    runner = StageRunner(store, executor, (), 1.0, batches=driver.batches)
    words = pa.table({"word": ["a"]}, schema=WORDS)
    runner.run(Echo(("m",)), "echo", words=runner.datasets.put("words", words))
    driver.batches.close()
    executor.close()
    assert steps[:3] == ["map", "rest", "check"]
    assert (steps[-1], steps.count("rest"), steps.count("state")) == ("map", 1, 2)


class TestInput:
    """Deferred calls of tasks, as files."""

    def files(
        self, store: Store, purse: SpendingGuard | None = None, max_lines: int = 100
    ) -> list[tuple[str, list[str]]]:
        found = []
        for each in input_files(store, "calls", purse or SpendingGuard(None, None, 0, 0.0), max_lines):
            each.file.seek(0)
            lines = [json.loads(line) for line in each.file]
            assert all(line["method"] == "POST" and line["body"] == {"model": "m"} for line in lines)
            assert len(lines) == each.n_lines
            found.append((each.endpoint, [line["custom_id"][39] for line in lines]))
        return found

    def test_a_file_an_endpoint_of_limited_length(self, store: Store) -> None:
        leave(store, call(1), call(2, endpoint="other"), call(3))
        leave(store, call(4), call(5), task=1)
        assert self.files(store, max_lines=3) == [("e", ["1", "3", "4"]), ("other", ["2"]), ("e", ["5"])]

    def test_a_call_that_two_tasks_lack_is_asked_once(self, store: Store) -> None:
        leave(store, call(1), call(2))
        leave(store, call(2), call(3), task=1)
        assert self.files(store) == [("e", ["1", "2", "3"])]

    def test_calls_that_do_not_fit_the_purse_are_left_out(self, store: Store) -> None:
        leave(store, call(1, 2.0), call(2, 9.0), call(3, 3.0), call(4, 0.5))
        assert self.files(store, SpendingGuard(10.0, None, 0, 5.0)) == [("e", ["1", "3"])]
        assert self.files(store, SpendingGuard(None, 350, 100, 0.0)) == [("e", ["1", "2"])]

    def test_what_an_endpoint_counts_above_us_is_reckoned_with_from_then_on(self, store: Store) -> None:
        api = Memory()
        api.counted = 4  # and it says six
        driver = Driver(store, api, max_tokens=299)
        sent = []
        for first in (1, 3):  # two calls of a hundred tokens each time: with half as many again, one fits
            leave(store, call(first), call(first + 1))
            driver.batches.ask(
                "extract", "calls", (0, 0.0), lambda label, usage: None, lambda label, *n: sent.append(n)
            )
        driver.batches.close()
        assert sent == [(1, 2), (1, 1)]

    def test_where_nothing_fits(self, store: Store) -> None:
        leave(store, call(1, 2.0))
        with pytest.raises(BudgetReached, match=r"--max-usd 10 was passed \(\$9.0000 spent .* may cost \$2.0000"):
            Driver(store, Memory(), max_usd=10.0).ask(spent=(5, 9.0))
        with pytest.raises(BudgetReached, match=r"--max-tokens 10 was passed \(5 used .* may use 100"):
            Driver(store, Memory(), max_tokens=10).ask(spent=(5, 9.0))


def test_a_file_of_results_that_is_too_large_is_given_up_and_its_calls_are_left(store: Store) -> None:
    api = Memory()
    leave(store, call(1), call(2))

    def refuse(step: str) -> None:
        if step == "downloaded":
            raise OversizedFile("it has over 9 bytes")

    api.at = refuse
    with pytest.raises(ModelError, match="it has over 9 bytes; its calls are asked again by the next run"):
        Driver(store, api).ask()
    assert not open_batches(store), "the next run does not meet it again"
    assert n_replies(store) == 0


def test_no_endpoint_is_waited_for_longer_than_for_an_outage(store: Store) -> None:
    api = Memory()
    leave(store, call(1))
    limited = iter([RateLimited("slow down", 1e9)])

    def limit(step: str) -> None:
        if step == "upload" and (error := next(limited, None)) is not None:
            raise error

    api.at = limit
    driver = Driver(store, api)
    assert driver.ask().replies == 1
    assert max(driver.slept) == 100.0
