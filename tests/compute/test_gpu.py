"""GPU kernels: detection, memory limits, failures, and the calls of cuGraph."""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import networkx as nx
import numpy as np
import pytest

from hirag_dist.cli.doctor import DoctorFinding, examine
from hirag_dist.composition.build import make_services, resolve
from hirag_dist.compute.kernels import CpuKernels, make_kernels, resolve_kernels
from hirag_dist.config.model import Config, ExecutionConfig
from hirag_dist.core.graph.bfs import frontier_hops, hop_distances
from hirag_dist.errors import BackendUnavailable, ConfigError, StageFailed
from hirag_dist.execution.stage import Services
from hirag_dist.llm.limits.coordinator import QuotaCoordinator
from hirag_dist.storage.store import Store
from hirag_dist.types import LabelledCell
from tests.core.graphs import csr, order_keys
from tests.core.planted_rows import blobs, fitted_mixture
from tests.standin_cupy import FUNCTIONS, TYPES, CUDARuntimeError, OutOfMemoryError, StandInCupy, standin_gpu

RING = csr(nx.cycle_graph(30))


@pytest.mark.parametrize("free", [0, 48 * 30 * 4 * 7, 1 << 30])
def test_sources_are_walked_from_as_far_as_memory_allows(free: int) -> None:
    """None fit, seven do, all do: the hops are the same."""
    sources = np.arange(0, 30, 2)
    with standin_gpu(StandInCupy(free=free)) as gpu:
        found = gpu.CupyKernels().bfs(RING, sources)
    assert np.array_equal(found, hop_distances(RING, sources))


@pytest.mark.parametrize("most_entries", [1, 7])
def test_a_frontier_may_be_expanded_in_parts(most_entries: int) -> None:
    sources = np.arange(0, 30, 5)
    assert np.array_equal(frontier_hops(np, RING, sources, most_entries), hop_distances(RING, sources))


def test_what_is_small_never_reaches_the_card() -> None:
    """A card needs longer to launch its kernels than the CPU needs for the mixture of a cell."""
    cupy = StandInCupy()
    with standin_gpu(cupy) as gpu:
        kernels = gpu.CupyKernels()
        cupy.zeros = cupy.asarray = None  # type: ignore[attr-defined, method-assign, assignment]
        kernels.assign(SMALL_ROWS, fitted_mixture(SMALL_ROWS, 4, 0), 0.1)
        kernels.kmeans(SMALL_ROWS, 4, 0)
        kernels.nearest_sums(SMALL_ROWS, SMALL_ROWS[:5])
        kernels.trees([SMALL_ROWS], None)
        kernels.memberships([LabelledCell(SMALL_ROWS, np.arange(320) % 4, np.ones(320, bool))], 0.1)


SMALL_ROWS = blobs(4, 80, 3, seed=1)[0]


def test_cells_in_many_batches_are_those_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = (1, 30, 31, 2, 90)
    cells = [LabelledCell(SMALL_ROWS[:n], np.arange(n) % min(n, 3), np.arange(n) % 2 == 0) for n in sizes]
    with standin_gpu() as gpu:
        kernels = gpu.CupyKernels(0)
        whole = kernels.trees([cell.rows for cell in cells], None), kernels.memberships(cells, 0.1)
        monkeypatch.setattr(gpu.cells, "_BATCH_BYTES", 8 * 31 * (31 + 3))
        parts = kernels.trees([cell.rows for cell in cells], None), kernels.memberships(cells, 0.1)
    for one, other in zip(whole[0], parts[0], strict=True):
        assert np.array_equal(one, other)
    for one, other in zip(whole[1], parts[1], strict=True):
        assert all(np.array_equal(getattr(one, name), getattr(other, name)) for name in one.__slots__)


@pytest.mark.parametrize(
    ("raised", "message"),
    [(OutOfMemoryError("8 GiB"), "memory is full.*execution.workers"), (CUDARuntimeError("lost"), "nvidia-smi")],
)
def test_what_cuda_raises_fails_the_stage_and_says_what_to_do(raised: Exception, message: str) -> None:
    cupy = StandInCupy()

    def fail(*arguments: Any, **options: Any) -> None:
        raise raised

    with standin_gpu(cupy) as gpu:
        kernels = gpu.CupyKernels()
        cupy.zeros = fail  # type: ignore[attr-defined]
        with pytest.raises(StageFailed, match=message):
            kernels.moments(np.ones((3, 2), np.float32))


def test_kernels_are_chosen_once_by_what_is_there() -> None:
    assert resolve_kernels("cpu") == "cpu"
    with standin_gpu():
        assert (resolve_kernels("auto"), resolve_kernels("gpu"), resolve_kernels("cpu")) == ("cupy", "gpu", "cpu")
        assert make_kernels("gpu").name == "gpu"
        assert resolve(Config(kernels="gpu")).kernels == "gpu"
    with standin_gpu(with_cugraph=False):
        assert (resolve_kernels("auto"), resolve_kernels("gpu")) == ("cupy", "cupy")
        assert make_kernels("cupy").name == "cupy"
        ours, cpus = (
            each.leiden(csr(nx.cycle_graph(60)), 10, 1.0, order_keys(60, 3))
            for each in (make_kernels("cupy"), CpuKernels())
        )
        assert [labels.tolist() for labels in ours] == [labels.tolist() for labels in cpus]
    for devices in (None, 0):
        with standin_gpu(StandInCupy(devices)):
            assert resolve_kernels("auto") == "cpu"
            with pytest.raises(BackendUnavailable, match="kernels: gpu needs a visible GPU"):
                resolve_kernels("gpu")
            with pytest.raises(BackendUnavailable, match="every worker of a build needs the same kernels"):
                make_kernels("cupy")


def test_left_to_choose_the_kernels_of_the_index_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    with standin_gpu():
        assert resolve_kernels("auto", "cpu") == "cpu"
        assert resolve_kernels("auto", "gpu") == "gpu"
        assert resolve_kernels("gpu", "cpu") == "gpu"
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    with standin_gpu(StandInCupy(devices=None)):
        assert resolve_kernels("auto", "gpu") == "cpu"
    assert "built with kernels: gpu, which this machine does not have" in caplog.text


@pytest.mark.parametrize(
    ("kernels", "before", "name"),
    [
        ("auto", None, "cupy"),
        ("auto", "cpu", "cpu"),
        ("auto", "gpu", "gpu"),
        ("gpu", None, ""),
        ("gpu", "cpu", ""),
        ("gpu", "cupy", "cupy"),  # resolved by a worker without cuGraph
        ("gpu", "gpu", "gpu"),
        ("cupy", None, "cupy"),
        ("cpu", "gpu", "cpu"),
    ],
)
def test_where_workers_have_the_gpus_this_machine_needs_none_and_asks_only_what_it_must(
    kernels: Literal["auto", "cpu", "gpu", "cupy"], before: str | None, name: str
) -> None:
    with standin_gpu(StandInCupy(devices=None)):
        assert resolve(Config(kernels=kernels, execution=ExecutionConfig(gpu_workers=2)), None, before).kernels == name


def test_a_worker_makes_the_kernels_that_a_stage_names(tmp_path: Path) -> None:
    def lent(kernels: str | None = None) -> Services:
        return make_services(Config(), Store(str(tmp_path)), False, QuotaCoordinator({}), "", kernels)

    with standin_gpu(with_cugraph=False):
        services = lent()
        assert [services.kernels(name).name for name in ("cpu", "cupy")] == ["cpu", "cupy"]
        assert services.kernels("cupy") is services.kernels("cupy")
        with pytest.raises(BackendUnavailable, match="need cuGraph"):
            services.kernels("gpu")
    with standin_gpu(StandInCupy(devices=None)):
        assert lent().kernels("cpu").name == "cpu"
        with pytest.raises(BackendUnavailable, match="every worker of a build needs the same kernels"):
            lent("cupy")  # raised before anything is paid


@pytest.mark.skipif(find_spec("cupy") is not None, reason="CuPy is installed")
def test_without_cupy_a_gpu_by_name_is_an_error_that_says_what_to_install() -> None:
    assert resolve_kernels("auto") == "cpu"
    with pytest.raises(BackendUnavailable, match=r"pip install 'hirag-dist\[gpu-cu12\]'"):
        resolve_kernels("gpu")


def gpu_lines(kernels: Literal["auto", "gpu"] = "auto") -> dict[str, DoctorFinding]:
    """Return the findings of doctor about kernels and GPU, by subject."""
    config = Config(kernels=kernels, execution=ExecutionConfig(executor="inline"))
    return {found.subject: found for found in examine(config, None) if found.subject in ("GPU", "kernels")}


def test_doctor_says_what_a_gpu_would_do() -> None:
    with standin_gpu():
        seen = gpu_lines()["GPU"].seen
        assert "Stand-in, 8 GiB, CuPy 14.2.0" in seen
        assert "by cuGraph with kernels: gpu" in seen
    with standin_gpu(with_cugraph=False):
        assert "cuGraph" not in gpu_lines()["GPU"].seen
        assert "UMAP by cuML" in gpu_lines()["GPU"].seen
    with standin_gpu(with_cuml=False):
        assert "cuml not installed" in gpu_lines()["GPU"].seen


def test_umap_needs_a_gpu_and_cuml_before_anything_is_paid() -> None:
    config = Config.model_validate({"kernels": "auto", "clustering": {"reduction": "umap", "reduce_dims": 10}})
    with standin_gpu():
        assert resolve(config).kernels == "cupy"
    with standin_gpu(with_cuml=False), pytest.raises(ConfigError, match=r"umap-cu12.*reduction: pca"):
        resolve(config)
    with standin_gpu(StandInCupy(devices=None)), pytest.raises(ConfigError, match="umap needs a GPU and cuML"):
        resolve(config)


def test_what_cugraph_raises_fails_the_stage_and_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any) -> None:
        raise MemoryError("std::bad_alloc")

    with standin_gpu() as gpu:
        monkeypatch.setattr(sys.modules["pylibcugraph"], "leiden", fail)
        with pytest.raises(StageFailed, match=r"60 nodes and 60 edges.*bad_alloc.*kernels: cupy"):
            gpu.GpuKernels().leiden(csr(nx.cycle_graph(60)), 10, 1.0, order_keys(60, 3))


@pytest.mark.skipif(find_spec("cupy") is None, reason="needs CuPy, not a GPU")
def test_cupy_has_what_the_stand_in_has() -> None:
    cupy = importlib.import_module("cupy")
    missing = [name for name in (*FUNCTIONS, *TYPES, "asarray", "asnumpy", "ndarray") if not hasattr(cupy, name)]
    assert not missing
