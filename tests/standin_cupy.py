"""CuPy on a machine without a GPU: numpy behind CuPy's rules, so that code for it can be tested anywhere.

As with CuPy, an array of the device and one of the host do not mix: neither in an operation, nor in a function, nor as
an index; only `asarray` takes one to the device, and only `asnumpy` brings it back. Reductions give arrays of the
device without a dimension, not scalars. A function that is not in `FUNCTIONS` is not there. Kernels of CUDA code are
compiled by g++ and run by threads.
"""

from __future__ import annotations

import ctypes
import importlib
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import networkx as nx
import numpy as np
import pytest

FUNCTIONS = (  # all of them are in CuPy 14, with the arguments that are used
    *("arange", "argsort", "bincount", "concatenate", "cumsum", "exp", "full", "log", "maximum", "minimum"),
    *("nan_to_num", "nonzero", "searchsorted", "sqrt", "square", "unique", "where", "zeros"),
)
TYPES = ("float64", "int32", "int64")


class DeviceArray(np.ndarray):
    """An array that refuses the company of plain numpy arrays."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        _same_side((inputs, options))
        if out is not None:
            _same_side(out, strict=True)
            options["out"] = tuple(_plain(each) for each in out)
        found = getattr(ufunc, method)(*_plain(inputs), **_plain(options))
        return out[0] if out is not None else _to_device(found)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        raise TypeError(f"numpy.{func.__name__} was given an array of the device; call the array module's")

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed: use asnumpy")

    def __getitem__(self, key: Any) -> Any:
        _same_side(key, strict=True)
        return _to_device(_plain(self)[_plain(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        _same_side((key, value), strict=True)
        _plain(self)[_plain(key)] = _plain(value)


def _same_side(values: Any, strict: bool = False) -> None:
    """Raise TypeError for a host array among the values; numpy scalars are taken by CuPy too."""
    if isinstance(values, dict):
        values = tuple(values.values())
    if isinstance(values, tuple | list):
        for each in values:
            _same_side(each, strict)
    elif isinstance(values, np.ndarray) and not isinstance(values, DeviceArray) and (strict or values.ndim):
        raise TypeError("Unsupported type <class 'numpy.ndarray'>")


def _plain(value: Any) -> Any:
    if isinstance(value, DeviceArray):
        return value.view(np.ndarray)
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return type(value)(_plain(each) for each in value) if isinstance(value, tuple | list) else value


def _to_device(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_to_device(each) for each in value)
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value).view(DeviceArray)
    return value


def _function(name: str) -> Callable[..., Any]:
    numpys = getattr(np, name)

    def call(*args: Any, **options: Any) -> Any:
        _same_side((args, options), strict=True)
        return _to_device(numpys(*_plain(args), **_plain(options)))

    return call


def _reduction(name: str) -> Callable[..., Any]:
    def call(self: DeviceArray, *args: Any, **options: Any) -> Any:
        return _to_device(getattr(_plain(self), name)(*args, **options))

    return call


for _name in ("any", "argmax", "argmin", "max", "mean", "min", "sum"):
    setattr(DeviceArray, _name, _reduction(_name))


class CUDARuntimeError(RuntimeError):
    """The error of CuPy without a driver."""


class OutOfMemoryError(MemoryError):
    """The error of CuPy without free memory."""


_SHIM = """
#include <algorithm>
#include <cmath>
#include <pthread.h>
using std::max;
using std::min;
struct Place { int x; };
static thread_local Place threadIdx, blockIdx, blockDim, gridDim;
static pthread_barrier_t barrier;
#define __device__ static
#define __global__
#define __shared__ static
static void __syncthreads() { pthread_barrier_wait(&barrier); }
extern "C" void set_threads(int n_threads) { pthread_barrier_init(&barrier, nullptr, n_threads); }
extern "C" void set_place(int thread, int block, int n_threads, int n_blocks) {
    threadIdx.x = thread; blockIdx.x = block; blockDim.x = n_threads; gridDim.x = n_blocks;
}
"""
_N_THREADS = 4  # of a block


@cache
def _compiled(code: str, defined: tuple[str, ...]) -> ctypes.CDLL:
    """Return CUDA code, compiled by a C++ compiler for threads of this machine: a block after the other."""
    if shutil.which("g++") is None:
        pytest.skip("the kernels of a GPU are compiled for the CPU by g++, which is not here")
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "kernels.cpp", Path(folder) / "kernels.so"
        source.write_text(_SHIM + code, encoding="utf-8")
        flags = ("-O2", "-ffp-contract=off", "-shared", "-fPIC", "-pthread")
        subprocess.run(["g++", *flags, *defined, str(source), "-o", str(library)], check=True)
        return ctypes.CDLL(str(library))


class RawModule:
    """CuPy's, for kernels that take blocks of one dimension."""

    def __init__(self, *, code: str, options: tuple[str, ...] = ()) -> None:
        without_fused_products, *defined = options
        assert without_fused_products == "--fmad=false"
        self._library = _compiled(code, tuple(defined))

    def get_function(self, name: str) -> Callable[[tuple[int], tuple[int], tuple[Any, ...]], None]:
        """Return a kernel as CuPy calls it, with few threads a block in place of those that are asked for."""
        kernel, library = getattr(self._library, name), self._library

        def launch(grid: tuple[int], block: tuple[int], arguments: tuple[Any, ...]) -> None:
            given = [_as_c(each) for each in arguments]
            library.set_threads(_N_THREADS)

            def run(thread: int) -> None:
                for number in range(grid[0]):
                    library.set_place(thread, number, _N_THREADS, grid[0])
                    kernel(*given)
                    waiting.wait()  # the threads of a block share its memory

            waiting = threading.Barrier(_N_THREADS)
            with ThreadPoolExecutor(_N_THREADS) as threads:
                list(threads.map(run, range(_N_THREADS)))

        return launch


def _as_c(value: Any) -> Any:
    """Return an argument of a kernel: the address of an array of the device, or a number of a stated size."""
    if isinstance(value, DeviceArray):
        assert value.flags.c_contiguous
        return ctypes.c_void_p(value.ctypes.data)
    return {np.int32: ctypes.c_int, np.int64: ctypes.c_longlong, np.float32: ctypes.c_float}[type(value)](value)


class StandInCupy(ModuleType):
    """The module. `devices` is how many GPUs it shows, None for no driver; `free` the bytes that a card has left."""

    def __init__(self, devices: int | None = 1, free: int = 1 << 30) -> None:
        super().__init__("cupy")
        self.__version__ = "14.2.0"
        self.__spec__ = ModuleSpec("cupy", None)
        self._devices, self.free = devices, free
        for name in FUNCTIONS:
            setattr(self, name, _function(name))
        for name in TYPES:
            setattr(self, name, getattr(np, name))
        self.ndarray, self.RawModule = DeviceArray, RawModule
        self.cuda = SimpleNamespace(
            runtime=SimpleNamespace(
                CUDARuntimeError=CUDARuntimeError,
                getDeviceCount=self._count,
                getDeviceProperties=lambda number: {"name": b"Stand-in", "totalGlobalMem": 8 << 30},
                memGetInfo=lambda: (self.free, 8 << 30),
            ),
            memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
        )

    def _count(self) -> int:
        if self._devices is None:
            raise CUDARuntimeError("cudaErrorInsufficientDriver")
        return self._devices

    @staticmethod
    def asarray(value: Any, dtype: Any = None) -> DeviceArray:
        """Copy to the device."""
        return np.array(_plain(value), dtype=dtype).view(DeviceArray)

    @staticmethod
    def asnumpy(value: DeviceArray) -> Any:
        """Copy to the host."""
        if not isinstance(value, DeviceArray):
            raise TypeError("asnumpy takes an array of the device here")
        return np.array(_plain(value))

    @staticmethod
    def get_default_memory_pool() -> Any:
        """An empty pool."""
        return SimpleNamespace(free_bytes=lambda: 0, free_all_blocks=lambda: None)


class Graph:
    """pylibcugraph's SGGraph, as far as it is used: edges of an undirected graph, given in both directions."""

    def __init__(
        self,
        resource_handle: object,
        graph_properties: Any,
        src_or_offset_array: Any,
        dst_or_index_array: Any,
        weight_array: Any = None,
        renumber: bool = False,
    ) -> None:
        assert graph_properties == {"is_symmetric": True, "is_multigraph": False}
        assert renumber
        ends = [StandInCupy.asnumpy(each).tolist() for each in (src_or_offset_array, dst_or_index_array, weight_array)]
        both = {(head, tail): weight for head, tail, weight in zip(*ends, strict=True)}
        assert all(both[tail, head] == weight for (head, tail), weight in both.items())
        self.edges = nx.Graph()
        self.edges.add_weighted_edges_from((head, tail, weight) for (head, tail), weight in both.items())


def leiden(
    resource_handle: object,
    random_state: int | None,
    graph: Graph,
    max_level: int,
    resolution: float,
    theta: float,
    do_expensive_check: bool,
) -> tuple[DeviceArray, DeviceArray, float]:
    """A flat partition of the nodes that have an edge, in no order: Louvain's, so not always of connected parts."""
    parts = nx.community.louvain_communities(graph.edges, resolution=resolution, seed=random_state)
    found = [(node, number) for number, part in enumerate(parts) for node in sorted(part, reverse=True)]
    nodes, labels = (np.array(column, np.int32).view(DeviceArray) for column in zip(*found, strict=True))
    return nodes, labels, nx.community.modularity(graph.edges, parts, resolution=resolution)


def cugraph() -> ModuleType:
    """Return pylibcugraph, as far as it is used."""
    made = ModuleType("pylibcugraph")
    made.__spec__ = ModuleSpec("pylibcugraph", None)
    vars(made).update(ResourceHandle=object, GraphProperties=dict, SGGraph=Graph, leiden=leiden)
    return made


class UMAP:
    """cuML's, as far as it is used: positions that keep the start, whatever the vectors' neighbours are."""

    def __init__(self, *, n_neighbors: int, n_components: int, init: Any, random_state: int, **options: Any) -> None:
        build = {"build_algo": "brute_force_knn", "output_type": "numpy"}
        assert options == build | {"metric": "cosine", "min_dist": 0.0}
        assert init.shape[1] == n_components
        self._n_neighbors, self._init = n_neighbors, init

    def fit_transform(self, vectors: Any) -> Any:
        """Return the start, for vectors of the host."""
        assert type(vectors) is np.ndarray
        assert len(vectors) == len(self._init) > self._n_neighbors
        return self._init.copy()


def cuml() -> dict[str, ModuleType]:
    """Return cuML and its module of manifolds, as far as they are used."""
    made = {name: ModuleType(name) for name in ("cuml", "cuml.manifold")}
    for name, module in made.items():
        module.__spec__ = ModuleSpec(name, None)
    vars(made["cuml.manifold"]).update(UMAP=UMAP)
    return made


@contextmanager
def standin_gpu(cupy: StandInCupy | None = None, with_cugraph: bool = True, with_cuml: bool = True) -> Iterator[Any]:
    """Lend `hirag_dist.compute.gpu`, loaded with stand-ins for its libraries; all of it is gone afterwards."""
    modules = {"cupy": cupy or StandInCupy(), "pylibcugraph": cugraph() if with_cugraph else None}
    modules |= cuml() if with_cuml else dict.fromkeys(cuml())
    ours = ("hirag_dist.compute.gpu", "hirag_dist.compute.cells")
    before = {name: sys.modules.pop(name, None) for name in (*modules, *ours)}
    sys.modules.update({name: module for name, module in modules.items() if module is not None})
    try:
        yield importlib.import_module(ours[0])
    finally:
        for name, kept in before.items():
            sys.modules.pop(name, None)
            if kept is not None:
                sys.modules[name] = kept
