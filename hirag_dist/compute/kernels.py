"""Kernels by name, chosen once at the start of a build by the devices of this machine."""

from __future__ import annotations

import logging
from importlib.util import find_spec

from hirag_dist.compute.cpu import CpuKernels
from hirag_dist.config.model import Config
from hirag_dist.errors import BackendUnavailable
from hirag_dist.protocols import CPU, Kernels

logger = logging.getLogger(__name__)


def resolve_kernels(choice: str, before: str | None = None) -> str:
    """Return the name of the kernels that a configured choice means on this machine, for `make_kernels`.

    `gpu` where CuPy and cuGraph are installed and a GPU is visible, `cupy` where cuGraph is missing: communities are
    then found on the CPU, as they are where `cupy` is chosen. `auto` keeps those that the index was built with where
    it can, since others give other clusters, whose summaries are paid for again; it takes the CPU where no GPU can be
    used.

    Args:
        before: kernels of the existing index.

    Raises:
        BackendUnavailable: a GPU was asked for by name, and cannot be used.
    """
    if choice == "cpu" or (choice == "auto" and before == CpuKernels.name):
        return CpuKernels.name
    available = _available_kernels(choice)
    if available == "gpu" and "cupy" in (choice, before if choice == "auto" else ""):
        return "cupy"
    if choice == "auto" and before not in (None, available):
        logger.warning(
            "the index was built with kernels: %s, which this machine does not have; with %s layers are clustered "
            "again, and summaries and reports of clusters that differ are new calls",
            before,
            available,
        )
    return available


def _available_kernels(choice: str) -> str:
    reason = _missing_for_gpu()
    if reason is not None:
        if choice != "auto":
            raise BackendUnavailable(f"kernels: {choice} {reason}")
        logger.info("kernels: cpu (auto: a GPU %s)", reason)
        return CpuKernels.name
    from hirag_dist.compute.gpu import CupyKernels, GpuKernels, describe_device, has_cugraph

    if has_cugraph():
        logger.info("kernels: gpu (%s)", describe_device())
        return GpuKernels.name
    logger.info("kernels: cupy (%s; cuGraph is not installed, so communities are found on the CPU)", describe_device())
    return CupyKernels.name


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
    """Return the name of the kernels, empty where only a worker with a GPU knows it.

    A GPU worker is asked only if needed: kernels of the index that match the configuration are kept, so that a build
    with nothing left to compute needs no GPU. `gpu` matches `cupy` too, which a worker without cuGraph resolves it to;
    a worker with cuGraph would find other communities.

    Args:
        before: kernels of the existing index; None if they need not be kept.
    """
    if not has_gpu_workers(config):
        return resolve_kernels(config.kernels, before)
    if config.kernels == "cupy":
        return config.kernels
    if config.kernels == "gpu" and before == CPU:
        return ""
    return before or ""


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
    if name == CpuKernels.name:
        return CpuKernels()
    reason = _missing_for_gpu()
    if reason is not None:
        raise BackendUnavailable(f"kernels: {name} {reason}; every worker of a build needs the same kernels")
    from hirag_dist.compute.gpu import CupyKernels, GpuKernels

    return GpuKernels() if name == GpuKernels.name else CupyKernels(CpuKernels())
