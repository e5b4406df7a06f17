"""A cluster with and without a node that has a GPU: what kernels compute is done there, and all else is not.

Kernels are the program's own over the stand-in for CuPy; only a worker that Ray gave a GPU has that. Which node asked a
model or called a kernel is written down by the workers.
"""

from __future__ import annotations

import logging
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import ray
from ray import cloudpickle
from ray.cluster_utils import Cluster

from hirag_dist.composition.build import make_services
from hirag_dist.composition.models import make_coordinator
from hirag_dist.compute.kernels import gpu_kernels
from hirag_dist.config.model import Config
from hirag_dist.errors import BackendUnavailable
from hirag_dist.execution.events import KernelsResolved, StageFinished, TaskFinished
from hirag_dist.execution.executors import InlineExecutor
from hirag_dist.execution.ray import GpuWorkers, RayExecutor
from hirag_dist.execution.runner import StageRunner
from hirag_dist.execution.stage import Services
from hirag_dist.indexing.pipeline import BuildResult
from hirag_dist.llm.call import CallContext
from hirag_dist.llm.limits.coordinator import QuotaCoordinator
from hirag_dist.llm.limits.protocol import QuotaClient
from hirag_dist.protocols import Kernels
from hirag_dist.storage.store import Store
from tests.execution.ray.indexing import SAMPLES, indexed
from tests.ray_nodes import started
from tests.standin_cupy import standin_gpu

DOCUMENT = SAMPLES / "newton-whiteness-from-colours.md"
CONFIG = Config.model_validate(
    {
        "kernels": "gpu",
        "chunk_tokens": 100,
        "chunk_overlap_tokens": 0,
        "clustering": {"target_size": 12},  # one layer of summaries
        "execution": {"executor": "ray", "gpu_workers": 1},
        "llm": {"endpoints": {"builtin-embedder": {"kind": "hashing"}}},  # in all processes
    }
)
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import a test module


@pytest.fixture
def gpu_node(ray_cluster: Cluster) -> Iterator[Callable[[], Any]]:
    """Add a node with a GPU, and with a CPU, which must stay unused; gone after the test."""
    added: list[Any] = []

    def add() -> Any:
        added.append(started(lambda: ray_cluster.add_node(num_cpus=1, num_gpus=1)))
        ray_cluster.wait_for_nodes(timeout=120)  # until a node that was killed is known to be dead, too
        return added[-1]

    before = ray.cluster_resources().get("GPU", 0)
    yield add
    for node in added:
        if node in ray_cluster.worker_nodes:
            ray_cluster.remove_node(node)
    until(lambda: ray.cluster_resources().get("GPU", 0) == before, "node gone")


def until(condition: Callable[[], object], what: str, seconds: float = 120.0) -> None:
    give_up_at = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up_at, f"no {what} within {seconds:g} s"
        time.sleep(0.05)


class Seen:
    """Passes calls on, and writes down on which node they were made; the first call of `fatal` never ends."""

    def __init__(self, inner: Any, kind: str, trace: Path, fatal: str) -> None:
        self._inner, self._kind, self._trace, self._fatal = inner, kind, trace, fatal

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def call(*args: Any, **options: Any) -> Any:
            with open(self._trace, "ab") as trace:
                trace.write(f"{self._kind} {name} {ray.get_runtime_context().get_node_id()}\n".encode())
            if name == self._fatal and not (self._trace.parent / "stuck").exists():
                (self._trace.parent / "stuck").touch()
                while True:
                    time.sleep(1)
            return found(*args, **options)

        return call


def watched(services: Services, trace: Path, fatal: str) -> Services:
    """Services of a worker: the stand-in is there where Ray gave it a GPU, and what it does is written down."""
    if ray.get_runtime_context().get_accelerator_ids()["GPU"]:
        standin = standin_gpu()
        standin.__enter__()
        sys.modules["the stand-in of this process"] = standin  # type: ignore[assignment]  # for as long as it lives

    def kernels(name: str) -> Kernels:
        return Seen(services.kernels(name), "kernel", trace, fatal)

    assert services.bind is not None
    bind = services.bind

    def bind_watched(context: CallContext) -> tuple[Any, Any]:
        chat, embedder = bind(context)
        return Seen(chat, "model", trace, ""), Seen(embedder, "model", trace, "")

    return replace(services, kernels=kernels, bind=bind_watched)


@dataclass(frozen=True)
class Watch:
    """Builds of one folder, and what workers wrote down."""

    folder: Path
    fatal: str = ""

    @property
    def trace(self) -> Path:
        return self.folder / "trace"

    def services(self, store: Store, client: QuotaClient, holder: str) -> Services:
        return watched(make_services(CONFIG, store, False, client, holder), self.trace, self.fatal)

    def nodes(self, kind: str) -> set[str]:
        return {line.split()[2] for line in self.lines() if line.startswith(kind)}

    def calls(self, kind: str) -> set[str]:
        return {line.split()[1] for line in self.lines() if line.startswith(kind)}

    def lines(self) -> list[str]:
        return self.trace.read_text().splitlines() if self.trace.exists() else []

    def build(
        self, gpu: GpuWorkers, listen: Callable[[object], None] = lambda event: None, known: str | None = None
    ) -> BuildResult:
        store = Store(str(self.folder / "index"))
        executor = RayExecutor(partial(self.services, store), partial(make_coordinator, CONFIG), gpu=gpu)
        assert len(executor._pool.workers) == 2  # of the first kind: the node with a GPU is not counted
        return indexed(CONFIG, store, executor, DOCUMENT, listen, kernels=known)


@pytest.fixture(scope="module")
def inline(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """An index that was built inline with the same kernels, and the id of its snapshot."""
    folder = tmp_path_factory.mktemp("inline")
    store = Store(str(folder))
    with standin_gpu():
        executor = InlineExecutor(lambda: make_services(CONFIG, store, False, QuotaCoordinator({}), ""))
        made = indexed(CONFIG, store, executor, DOCUMENT, kernels="gpu")
    assert made.manifest.build["kernels"] == "gpu"
    return folder, made.manifest.snapshot_id


@pytest.fixture
def expected(inline: tuple[Path, str]) -> str:
    return inline[1]


def node_ids(with_gpu: bool) -> set[str]:
    return {node["NodeID"] for node in ray.nodes() if node["Alive"] and bool(node["Resources"].get("GPU")) == with_gpu}


def free_gpus() -> float:
    return float(ray.available_resources().get("GPU", 0))


@pytest.fixture
def when_said() -> Iterator[Callable[..., None]]:
    """Do something when a line is logged, in the thread that logs it."""
    added: list[logging.Handler] = []

    def add(line: str, then: Callable[[], object]) -> None:
        handler = logging.Handler()
        handler.addFilter(lambda record: line in record.getMessage())
        handler.emit = lambda record: then()  # type: ignore[method-assign, assignment]
        added.append(handler)
        logging.getLogger("hirag_dist").addHandler(handler)

    yield add
    for handler in added:
        logging.getLogger("hirag_dist").removeHandler(handler)


def test_nothing_to_compute_asks_for_no_gpu(ray_cluster: Cluster, inline: tuple[Path, str], tmp_path: Path) -> None:
    shutil.copytree(inline[0], tmp_path / "index")
    told: list[object] = []
    again = Watch(tmp_path).build(GpuWorkers(1), told.append, known="gpu")  # where no node has one
    assert (again.stages_run, again.manifest.snapshot_id) == (0, inline[1])
    assert not [event for event in told if isinstance(event, KernelsResolved)]


def test_a_build_waits_for_a_gpu_says_so_and_goes_on_when_one_comes(
    ray_cluster: Cluster, gpu_node: Callable[[], Any], expected: str, when_said: Callable[..., None], tmp_path: Path
) -> None:
    watch = Watch(tmp_path)
    before: list[list[str]] = []

    def come() -> None:
        before.append(watch.lines())
        gpu_node()

    when_said("waiting for a GPU: the cluster has 0", come)
    made = watch.build(GpuWorkers(1, notice_s=0.5))
    assert made.manifest.snapshot_id == expected
    assert len(before) == 1
    assert any(line.startswith("model ask") for line in before[0])
    assert not any(line.startswith("kernel") for line in before[0])  # the CPU did not stand in
    assert watch.nodes("kernel") == node_ids(with_gpu=True)


def test_a_node_killed_while_it_computes_is_waited_for_anew(
    ray_cluster: Cluster, gpu_node: Callable[[], Any], expected: str, when_said: Callable[..., None], tmp_path: Path
) -> None:
    """A worker that is slow to start is waited for with the same words: one node comes, once the other is gone."""
    watch = Watch(tmp_path, fatal="leiden")
    doomed = gpu_node()
    lost = node_ids(with_gpu=True)
    replacements: list[Any] = []

    def kill() -> None:
        until((tmp_path / "stuck").exists, "kernel under way", 240.0)
        ray_cluster.remove_node(doomed, allow_graceful=False)

    def replace_it() -> None:
        if (tmp_path / "stuck").exists() and not replacements:
            killer.join()
            replacements.append(gpu_node())

    when_said("waiting for a GPU", replace_it)
    killer = threading.Thread(target=kill)
    killer.start()
    made = watch.build(GpuWorkers(1, notice_s=2.0))
    killer.join()
    assert made.manifest.snapshot_id == expected
    assert watch.nodes("kernel") == lost | node_ids(with_gpu=True)
    assert len(watch.nodes("kernel")) == 2
    assert watch.nodes("model") <= node_ids(with_gpu=False)


@pytest.fixture(scope="module")
def standing_gpu_node(ray_cluster: Cluster) -> Iterator[Any]:
    """A node with a GPU for the tests below: those above begin where there is none."""
    node = started(lambda: ray_cluster.add_node(num_cpus=1, num_gpus=1))
    ray_cluster.wait_for_nodes()
    yield node
    ray_cluster.remove_node(node)


def test_kernels_compute_where_the_gpu_is_and_models_are_called_elsewhere(
    standing_gpu_node: Any, expected: str, tmp_path: Path
) -> None:
    watch = Watch(tmp_path)
    found: list[str] = []
    finished: list[str] = []

    def listen(event: object) -> None:
        if isinstance(event, KernelsResolved):
            assert "embed layer 0" in finished  # not while there was nothing to compute
            found.append(event.name)
        elif isinstance(event, StageFinished):
            finished.append(event.label)
        elif isinstance(event, TaskFinished) and event.label in ("extract", "summarise layer 0", "reports"):
            until(lambda: free_gpus() == 1, f"GPU let go of while models are called ({event.label})")

    made = watch.build(GpuWorkers(1, idle_s=0.0), listen)
    assert made.manifest.snapshot_id == expected
    assert made.manifest.build["kernels"] == "gpu"
    assert found == ["gpu"]
    assert {"extract", "cluster layer 0", "summarise layer 0", "reports"} <= set(finished)
    assert watch.nodes("kernel") == node_ids(with_gpu=True)
    assert {"leiden", "memberships", "project", "trees"} <= watch.calls("kernel")
    assert watch.nodes("model") <= node_ids(with_gpu=False)
    assert {"ask", "embed"} <= watch.calls("model")


def test_a_worker_that_cannot_use_its_gpu_says_what_it_lacks(standing_gpu_node: Any, tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    executor = RayExecutor(  # without the stand-in, so without CuPy
        partial(make_services, CONFIG, store, False), lambda: QuotaCoordinator({}), gpu=GpuWorkers(1)
    )
    try:
        with pytest.raises(BackendUnavailable, match="kernels: gpu needs"):
            StageRunner(store, executor, (), 0.0).ask_kernels(gpu_kernels, "gpu")
    finally:
        executor.close()
