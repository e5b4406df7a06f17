"""Kernels by name, chosen once at the start of a build by the devices of this machine."""

from __future__ import annotations

import logging
from importlib.util import find_spec

from hirag_dist.compute.cpu import NEEDS_UMAP, CpuKernels
from hirag_dist.config.model import Config
from hirag_dist.errors import BackendUnavailable, ConfigError
from hirag_dist.protocols import CPU, Kernels

logger = logging.getLogger(__name__)


def resolve_kernels(choice: str, before: str | None = None) -> str:
    """Return the name of the kernels that a configured choice means on this machine, for `make_kernels`.

    `gpu` finds communities by cuGraph where that is installed, and is `cupy` elsewhere: communities on the CPU, which
    have the higher modularity. `auto` keeps the kernels that the index was built with where it can, since others give
    other clusters, whose summaries are paid for again; for a new index it is `cupy`, or the CPU where no GPU can be
    used.

    Args:
        before: kernels of the existing index.

    Raises:
        BackendUnavailable: a GPU was asked for by name, and cannot be used.
    """
    if choice == CPU or (choice == "auto" and before == CPU):
        return CPU
    available = _available_kernels(choice, with_cugraph="gpu" in (choice, before if choice == "auto" else ""))
    if choice == "auto" and before not in (None, available):
        logger.warning(
            "the index was built with kernels: %s, which this machine does not have; with %s layers are clustered "
            "again, and summaries and reports of clusters that differ are new calls",
            before,
            available,
        )
    return available


def _available_kernels(choice: str, with_cugraph: bool) -> str:
    reason = _missing_for_gpu()
    if reason is not None:
        if choice != "auto":
            raise BackendUnavailable(f"kernels: {choice} {reason}")
        logger.info("kernels: cpu (auto: a GPU %s)", reason)
        return CPU
    from hirag_dist.compute.gpu import describe_device, has_cugraph

    name = "gpu" if with_cugraph and has_cugraph() else "cupy"
    missing = (
        "; cuGraph is not installed, so communities are found on the CPU" if with_cugraph and name != "gpu" else ""
    )
    logger.info("kernels: %s (%s%s)", name, describe_device(), missing)
    return name


def _missing_for_gpu() -> str | None:
    """Return the reason why no GPU can be used, or None."""
    if find_spec("cupy") is None:
        return "needs CuPy: pip install 'hirag-dist[gpu-cu12]' (or gpu-cu13)"
    from hirag_dist.compute.gpu import device_count  # RAPIDS imports without a GPU and fails at first use

    return None if device_count() else "needs a visible GPU: see `nvidia-smi` and CUDA_VISIBLE_DEVICES"


def has_gpu_workers(config: Config) -> bool:
    """Return whether separate GPU workers compute kernels, so that this machine cannot tell which they have."""
    return config.execution.chosen == "ray" and config.execution.gpu_workers > 0 and config.kernels != CPU


def known_kernels(config: Config, before: str | None) -> str:
    """Return the name of the kernels, empty where only a worker with a GPU knows it: `gpu` is `cupy` without cuGraph.

    A GPU worker is asked only if needed: kernels of the index that match the configuration are kept, so that a build
    with nothing left to compute needs no GPU. A worker with cuGraph would find other communities than `cupy`.

    Args:
        before: kernels of the existing index; None if they need not be kept.
    """
    if not has_gpu_workers(config):
        return resolve_kernels(config.kernels, before)
    if config.kernels == "gpu":
        return "" if before in (None, CPU) else before
    return "cupy" if config.kernels == "cupy" else before or "cupy"


def require_umap(config: Config, name: str) -> None:
    """Check that layers can be reduced by UMAP, as far as this machine knows.

    Args:
        name: Name of the kernels, empty where only a worker knows it.

    Raises:
        ConfigError: the kernels are the CPU's, or cuML is not installed where this machine's GPU is used.
    """
    if name == CPU or (not has_gpu_workers(config) and find_spec("cuml") is None):
        raise ConfigError(NEEDS_UMAP)


def gpu_kernels(services: object, data: None, argument: None) -> str:
    """Return the name of the kernels of a GPU worker; runs there as a step (`protocols.ResidentShards`).

    Raises:
        BackendUnavailable: it cannot use its GPU.
    """
    return resolve_kernels("gpu")


def make_kernels(name: str) -> Kernels:
    """Return the kernels of a name that `resolve_kernels` gave.

    Raises:
        BackendUnavailable: this machine, perhaps another one than that which resolved the name, lacks a requirement.
    """
    if name == CPU:
        return CpuKernels()
    reason = _missing_for_gpu()
    if reason is not None:
        raise BackendUnavailable(f"kernels: {name} {reason}; every worker of a build needs the same kernels")
    from hirag_dist.compute.gpu import CupyKernels, GpuKernels

    return GpuKernels() if name == GpuKernels.name else CupyKernels(CpuKernels())
