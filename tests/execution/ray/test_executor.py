"""A real cluster of several nodes on this machine: tasks spread, processes and nodes die, the snapshot is the same."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pyarrow as pa
import pytest
import ray
from ray import cloudpickle
from ray.cluster_utils import Cluster

from hirag_dist.composition.build import make_executor, make_services
from hirag_dist.composition.models import make_coordinator
from hirag_dist.config.model import Config
from hirag_dist.errors import BudgetReached, StageFailed
from hirag_dist.execution.dataset import Dataset, TableSet
from hirag_dist.execution.events import TaskFinished
from hirag_dist.execution.executors import InlineExecutor
from hirag_dist.execution.ray import RayExecutor
from hirag_dist.execution.ray.quota_actor import DeclaredDead, QuotaActor
from hirag_dist.execution.runner import StageRunner
from hirag_dist.execution.stage import ByKey, ByRows, Services, Tables
from hirag_dist.execution.task import Slice, Task
from hirag_dist.indexing.pipeline import BuildResult
from hirag_dist.llm.limits.adaptive import EndpointLimits
from hirag_dist.llm.limits.coordinator import QuotaCoordinator
from hirag_dist.llm.limits.protocol import CallDemand, WorkerReport
from hirag_dist.protocols import Executor
from hirag_dist.storage.store import Store
from hirag_dist.testing.simulator import SimulatorOptions
from tests.bare_services import SERVICES
from tests.execution.ray.indexing import SAMPLES, indexed
from tests.ray_nodes import started
from tests.simulator_thread import SimulatorThread

FILES = ("newton-whiteness-from-colours.md", "jefferson-1803-louisiana.md")
HASHING = {"builtin-embedder": {"kind": "hashing"}}  # in all processes
SMALL = {
    "chunk_tokens": 100,
    "chunk_overlap_tokens": 0,
    "clustering": {"target_size": 6},
    "execution": {"executor": "inline"},
    "llm": {"endpoints": HASHING},
}
WHERE = pa.schema([pa.field("node", pa.string(), nullable=False), pa.field("pid", pa.int64(), nullable=False)])
WORDS = pa.schema([pa.field("word", pa.string(), nullable=False)])
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import a test module


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    for name in FILES:
        shutil.copy(SAMPLES / name, folder / name)
    return folder


def over_ray(config: Config, store: Store, max_tokens: int | None = None, **options: Any) -> RayExecutor:
    services = partial(make_services, config, store, max_tokens is not None)
    return RayExecutor(services, partial(make_coordinator, config, None, max_tokens), **options)


def build(
    config: Config, corpus: Path, index: Path, make: Callable[[Config, Store], Executor], *listen: Any, **base: Any
) -> BuildResult:
    store = Store(str(index))
    return indexed(config, store, make(config, store), corpus, *listen, **base)


def inline(config: Config, store: Store) -> Executor:
    return make_executor(config, store, None, None)


@dataclass(frozen=True)
class Report:
    """A row with the node and process that the task ran in. Kills its process while the file `fatal` is there.

    Where there is a folder `meeting`, a task waits there until tasks of two nodes have come.
    """

    name: ClassVar[str] = "report_place"
    version: ClassVar[int] = 1
    split: ClassVar[ByRows] = ByRows(1)

    class Inputs(TableSet):
        anything: Annotated[Dataset, WHERE]

    class Outputs(TableSet):
        places: Annotated[Dataset, WHERE]

    fatal: str = ""
    meeting: str = ""

    async def run(self, tables: Tables, services: Services) -> Tables:
        if self.fatal and Path(self.fatal).exists():
            os.kill(os.getpid(), signal.SIGKILL)
        node = ray.get_runtime_context().get_node_id()
        if self.meeting:
            (Path(self.meeting) / node).touch()
            async with asyncio.timeout(200):
                while len(list(Path(self.meeting).iterdir())) < 2:
                    await asyncio.sleep(0.05)
        return {"places": pa.table({"node": [node], "pid": [os.getpid()]}, schema=WHERE)}


def places(executor: RayExecutor, store: Store, stage: Report, n: int) -> list[tuple[str, int]]:
    """Run n tasks and return (node, process) of each."""
    store.write_table("in.parquet", WHERE.empty_table())
    tasks = [Task(stage, at, {"anything": (Slice("in.parquet", 0, 0),)}, "work", store) for at in range(n)]
    numbers = [result.number for result in executor.map(tasks)]
    assert sorted(numbers) == list(range(n))
    tables = [store.read_table(f"work/places/part-{at:06d}.parquet") for at in range(n)]
    return [(table["node"][0].as_py(), table["pid"][0].as_py()) for table in tables]


@pytest.fixture
def plain(ray_cluster: Cluster) -> Iterator[RayExecutor]:
    """An executor that holds the CPUs of the cluster only during its test: others build on the same two."""
    executor = RayExecutor(lambda client, holder: SERVICES, lambda: QuotaCoordinator({}), in_flight=lambda n_workers: 2)
    yield executor
    executor.close()


def test_tasks_spread_over_the_nodes(plain: RayExecutor, ray_cluster: Cluster, tmp_path: Path) -> None:
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    nodes = {node for node, _ in places(plain, Store(str(tmp_path)), Report(meeting=str(meeting)), 12)}
    assert nodes == {node["NodeID"] for node in ray.nodes() if node["Alive"]}
    assert len(nodes) == 2


def test_a_task_that_kills_every_worker_fails_the_stage(plain: RayExecutor, tmp_path: Path) -> None:
    fatal = tmp_path / "fatal"
    fatal.touch()
    with pytest.raises(StageFailed, match="5 workers died over the same task"):
        places(plain, Store(str(tmp_path)), Report(fatal=str(fatal)), 1)
    fatal.unlink()
    assert places(plain, Store(str(tmp_path)), Report(fatal=str(fatal)), 2)  # they come back


def test_the_cluster_gives_the_inline_snapshots_of_a_build_and_an_update(
    ray_cluster: Cluster, corpus: Path, tmp_path: Path
) -> None:
    joined = {"enabled": True, "aliases": [("Congress", "New Orleans", True)]}
    config = Config.model_validate(SMALL | {"resolution": joined})
    smaller = tmp_path / "smaller"
    smaller.mkdir()
    shutil.copy(corpus / FILES[0], smaller)
    over = partial(over_ray, workers=2, in_flight=lambda _: 4)
    found = []
    for name, make in (("inline", inline), ("ray", over)):
        first = build(config, smaller, tmp_path / name, make)
        second = build(config, corpus, tmp_path / name, make, base_id="")
        assert second.update is not None
        assert second.manifest.counts["aliases"], "else no name was joined"
        found.append((first.manifest.snapshot_id, second.manifest.snapshot_id))
    assert found[0] == found[1]
    assert build(config, corpus, tmp_path / "ray", inline, base_id="").stages_run == 0


@dataclass(frozen=True)
class Regroup:
    """Words by their hash. Kills its process once while rows are sent, and once when they have come."""

    name: ClassVar[str] = "regroup"
    version: ClassVar[int] = 1
    split: ClassVar[ByKey] = ByKey("word", 20)

    class Inputs(TableSet):
        words: Annotated[Dataset, WORDS]

    class Outputs(TableSet):
        words: Annotated[Dataset, WORDS]

    fatal: tuple[str, str] = ("", "")

    def combine(self, name: str, rows: pa.Table) -> pa.Table:
        self.die_at(0)
        return rows

    async def run(self, tables: Tables, services: Services) -> Tables:
        self.die_at(1)
        return {"words": tables["words"]}

    def die_at(self, which: int) -> None:
        if self.fatal[which] and Path(self.fatal[which]).exists():
            Path(self.fatal[which]).unlink()
            os.kill(os.getpid(), signal.SIGKILL)


def test_rows_reach_the_tasks_of_their_keys_though_workers_die(plain: RayExecutor, tmp_path: Path) -> None:
    table = pa.table({"word": [f"word {n % 37}" for n in range(200)]}, schema=WORDS)
    fatal = (str(tmp_path / "first"), str(tmp_path / "second"))
    found = []
    inline = InlineExecutor(lambda: SERVICES)
    for executor, stage in ((inline, Regroup()), (plain, Regroup()), (plain, Regroup(fatal))):
        for file in stage.fatal if stage.fatal[0] else ():
            Path(file).touch()
        runner = StageRunner(Store(f"{tmp_path}/{len(found)}"), executor, (), 0.0)
        words = runner.datasets.put("words", table)
        found.append([part.digest for part in runner.run(stage, "regroup", words=words).words.parts])
    inline.close()
    assert len(found[0]) == 10
    assert found[1] == found[0]
    assert found[2] == found[0]
    assert not any(Path(file).exists() for file in fatal)


def slow_endpoint(url: str, max_concurrent: int = 64) -> Config:
    """Extraction over HTTP, slow enough that a killed worker has calls in flight."""
    chat = {"base_url": url, "model": "extractive", "output": "json_schema", "max_concurrent": max_concurrent}
    return Config.model_validate(SMALL | {"llm": {"endpoints": HASHING | {"slow": chat}, "roles": {"extract": "slow"}}})


def chat_calls(thread: SimulatorThread) -> int:
    return int(thread.stats()["endpoints"]["/v1/chat/completions"]["calls"])


def test_a_killed_worker_and_a_killed_node_change_nothing(ray_cluster: Cluster, corpus: Path, tmp_path: Path) -> None:
    """Also where nothing takes the node's place: the workers that are left do its tasks."""
    thread = SimulatorThread(SimulatorOptions(listen="127.0.0.1:0", latency_ms=400))
    with thread as url:
        config = slow_endpoint(url)
        whole = build(config, corpus, tmp_path / "whole", inline)
        paid = chat_calls(thread)
        doomed = started(lambda: ray_cluster.add_node(num_cpus=1))
        ray_cluster.wait_for_nodes()
        killed: list[str] = []

        def kill(event: object) -> None:
            if isinstance(event, TaskFinished) and event.label == "extract" and not killed:
                killed.append(event.label)
                ray_cluster.remove_node(doomed, allow_graceful=False)

        make = partial(over_ray, workers=3, in_flight=lambda n_workers: 1)
        made = build(config, corpus, tmp_path / "index", make, kill)
        assert killed
        assert made.manifest.snapshot_id == whole.manifest.snapshot_id
        assert paid <= chat_calls(thread) - paid <= paid + 16  # a task's chunks were in flight, no more


def test_the_budget_holds_for_all_workers(ray_cluster: Cluster, corpus: Path, tmp_path: Path) -> None:
    thread = SimulatorThread(SimulatorOptions(listen="127.0.0.1:0", latency_ms=20))
    with thread as url:
        config = slow_endpoint(url, max_concurrent=3)
        build(config, corpus, tmp_path / "index", partial(over_ray, workers=2))
        assert thread.stats()["endpoints"]["/v1/chat/completions"]["most_in_flight"] <= 3
        before = chat_calls(thread)
        with pytest.raises(BudgetReached, match="the limit of 12000 tokens"):
            build(config, corpus, tmp_path / "capped", partial(over_ray, max_tokens=12_000, workers=2))
        assert 0 < chat_calls(thread) - before < before


CALL = CallDemand(1, 1, 0.0)


async def test_permits_of_a_dead_worker_return() -> None:
    coordinator = QuotaActor(lambda: QuotaCoordinator({"x": EndpointLimits(None, None, 2)}))
    grant = await coordinator.acquire("0/first life", "x", WorkerReport(), (CALL,) * 2)
    assert not isinstance(grant, Exception)
    assert grant.calls == 2
    second = asyncio.ensure_future(coordinator.acquire("1/another", "x", WorkerReport(), (CALL,) * 2))
    await asyncio.sleep(0)
    assert not second.done()
    await coordinator.forget(0)
    assert (await asyncio.wait_for(second, 5)).calls == 2  # type: ignore[union-attr]
    third = asyncio.ensure_future(coordinator.acquire("1/its next life", "x", WorkerReport(), (CALL,) * 2))
    assert (await asyncio.wait_for(third, 5)).calls == 2  # type: ignore[union-attr]


async def test_a_worker_that_is_taken_for_dead_while_it_waits_is_told_so() -> None:
    """It asks under a new name then, and goes on: a network that was away for a moment ends no build."""
    coordinator = QuotaActor(lambda: QuotaCoordinator({"x": EndpointLimits(None, None, 1)}))
    await coordinator.acquire("0/a", "x", WorkerReport(), (CALL,))
    waits = asyncio.ensure_future(coordinator.acquire("1/b", "x", WorkerReport(), (CALL,)))
    await asyncio.sleep(0)
    await coordinator.forget(1)
    assert isinstance(await asyncio.wait_for(waits, 5), DeclaredDead)


def test_what_the_coordinator_warns_of_reaches_the_log_of_the_driver(
    ray_cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hurried = partial(next, iter(range(0, 10**9, 20)))  # a clock that is 20 s further whenever it is looked at
    executor = RayExecutor(
        lambda client, holder: SERVICES,
        lambda: QuotaCoordinator({"big": EndpointLimits(None, None, 2)}, clock=hurried),
    )
    try:
        refused = WorkerReport(limited=((None, "", 1),))
        for _ in range(2):
            ray.get(executor._coordinator.acquire.remote("0/a", "big", refused))
        while not caplog.records:  # the calls of a driver that waits for nothing pass nothing on
            executor._pool.first_of({})
    finally:
        executor.close()
    assert "endpoint big has answered nothing but 429" in caplog.records[0].getMessage()
