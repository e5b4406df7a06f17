"""Ray's start on a machine that is slow, or where it cannot start."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray

from hirag_dist.errors import BackendUnavailable
from hirag_dist.execution.ray import GpuWorkers, RayExecutor
from hirag_dist.execution.task import Slice, Task
from hirag_dist.indexing.stages.merge import JoinDescriptions
from hirag_dist.llm.limits.coordinator import QuotaCoordinator
from hirag_dist.llm.limits.protocol import CallTotals
from hirag_dist.schemas import ENTITIES
from hirag_dist.storage.store import Store


class SlowNode:
    """The first node starts, and is not found within the time that Ray gives it."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.nodes: list[Any] = []
        self._find = ray._private.services.get_node
        patch.setattr("ray._private.services.get_node", self)

    def __call__(self, *args: Any) -> Any:
        if self.nodes:
            return self._find(*args)
        self.nodes.append(sys._getframe(1).f_locals["self"])
        assert self.nodes[-1].any_processes_alive()
        raise Exception("The current node timed out during startup.")  # what Ray raises after 30 s

    def none_is_left(self) -> bool:
        return not any(node.any_processes_alive() for node in self.nodes)


def start() -> RayExecutor:
    return RayExecutor(lambda client, holder: None, lambda: QuotaCoordinator({}), workers=1)  # type: ignore[arg-type, return-value]


@pytest.mark.integration
def test_a_node_that_is_slow_to_start_is_started_again_and_nothing_of_it_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = SlowNode(monkeypatch)
    executor = start()
    assert ray.is_initialized()
    assert len(slow.nodes) == 1
    assert slow.none_is_left()
    ray.shutdown()  # by other code
    assert executor.call_totals() == CallTotals()
    executor.close()
    assert not ray.is_initialized(), "another Ray was started for it"


@pytest.mark.integration
def test_work_ends_with_an_error_where_the_only_node_has_died(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("hirag_dist.execution.ray.worker_pool._NODE_CHECK_S", 0.5)
    store = Store(str(tmp_path))
    store.write_table("in.parquet", ENTITIES.empty_table())
    task = Task(JoinDescriptions(400, "o200k_base"), 0, {"entities": (Slice("in.parquet", 0, 0),)}, "work", store)
    executor = start()
    try:
        (raylet,) = (each for each in psutil.Process().children(recursive=True) if each.name() == "raylet")
        raylet.kill()
        with pytest.raises(BackendUnavailable, match="the Ray node of this process has died"):
            list(executor.map([task]))
    finally:
        executor.close()
    assert not ray.is_initialized()


@pytest.mark.integration
def test_workers_with_a_gpu_on_a_machine_that_has_none_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(BackendUnavailable, match="gpu_workers: Ray sees no GPU on this machine"):
        RayExecutor(lambda client, holder: None, lambda: QuotaCoordinator({}), workers=1, gpu=GpuWorkers(1))  # type: ignore[arg-type, return-value]
    assert not ray.is_initialized()


def test_a_machine_where_ray_does_not_start_is_told_what_does_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[dict[str, Any]] = []

    def init(**options: Any) -> None:
        tries.append(options)
        raise Exception("The current node timed out during startup.")

    monkeypatch.setattr("ray.init", init)
    with pytest.raises(BackendUnavailable, match=r"does not start.*timed out.*--executor inline"):
        start()
    assert len(tries) == 3
