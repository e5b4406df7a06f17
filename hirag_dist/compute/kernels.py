"""Kernels by name, chosen once at the start of a build by the devices of this machine."""

from __future__ import annotations

import logging
from importlib.util import find_spec

from hirag_dist.compute.cpu import CpuKernels
from hirag_dist.config.model import Config
from hirag_dist.errors import BackendUnavailable
from hirag_dist.protocols import CPU, Kernels

log = logging.getLogger(__name__)


def resolve_kernels(choice: str, before: str | None = None) -> str:
    """Return the name of the kernels that a configured choice means on this machine, for `make_kernels`.

    `gpu` where CuPy and cuGraph are installed and a GPU is visible, `cupy` where cuGraph is missing: communities are
    then found on the CPU, as they are where `cupy` is chosen. `auto` keeps those that the index was built with where
    it can, since others give other clusters, whose summaries are paid for again; it takes the CPU where no GPU can be
    used.

    Args:
        before: the kernels of the index as it is.

    Raises:
        BackendUnavailable: a GPU was asked for by name, and cannot be used.
    """
    if choice == "cpu" or (choice == "auto" and before == CpuKernels.name):
        return CpuKernels.name
    found = _found(choice)
    if found == "gpu" and "cupy" in (choice, before if choice == "auto" else ""):
        return "cupy"
    if choice == "auto" and before not in (None, found):
        log.warning(
            "the index was built with kernels: %s, which this machine does not have; with %s layers are clustered "
            "anew, and summaries and reports of clusters that differ are new calls",
            before,
            found,
        )
    return found


def _found(choice: str) -> str:
    reason = _no_gpu()
    if reason is not None:
        if choice != "auto":
            raise BackendUnavailable(f"kernels: {choice} {reason}")
        log.info("kernels: cpu (auto: a GPU %s)", reason)
        return CpuKernels.name
    from hirag_dist.compute.gpu import CupyKernels, GpuKernels, describe_device, has_cugraph

    if has_cugraph():
        log.info("kernels: gpu (%s)", describe_device())
        return GpuKernels.name
    log.info("kernels: cupy (%s; cuGraph is not installed, so communities are found on the CPU)", describe_device())
    return CupyKernels.name


def _no_gpu() -> str | None:
    """Return what is missing for a GPU to be used, None where nothing is."""
    if find_spec("cupy") is None:
        return "needs CuPy: pip install 'hirag-dist[gpu-cu12]' (or gpu-cu13)"
    from hirag_dist.compute.gpu import device_count  # RAPIDS imports without a GPU and fails at first use

    return None if device_count() else "needs a visible GPU: see `nvidia-smi` and CUDA_VISIBLE_DEVICES"


def has_gpu_workers(config: Config) -> bool:
    """Whether kernels are for workers of their own, and what they have is not for this machine to say."""
    return config.execution.executor == "ray" and config.execution.gpu_workers > 0 and config.kernels != CPU


def known_kernels(config: Config, before: str | None) -> str:
    """Return the name of the kernels, empty where only a worker with a GPU knows it.

    Such a worker is asked for no more than has to be known: where the index has kernels that the configuration
    means, they are taken, so that a build with nothing left to compute needs no GPU. `gpu` means `cupy` too, which is
    what a worker without cuGraph made of it: one that has it now would find other communities.

    Args:
        before: the kernels of the index as it is; None where they need not be kept.
    """
    if not has_gpu_workers(config):
        return resolve_kernels(config.kernels, before)
    if config.kernels == "cupy":
        return config.kernels
    if config.kernels == "gpu" and before == CPU:
        return ""
    return before or ""


def gpu_kernels(services: object, data: None, argument: None) -> str:
    """Return the name of the kernels that a worker with a GPU has: a step of such a worker (`ports.Held`).

    Raises:
        BackendUnavailable: it cannot use its GPU.
    """
    return resolve_kernels("gpu")


def make_kernels(name: str) -> Kernels:
    """Return the kernels of a name that `resolve_kernels` gave.

    Raises:
        BackendUnavailable: this machine, perhaps another than the one that gave the name, has not what they need.
    """
    if name == CpuKernels.name:
        return CpuKernels()
    reason = _no_gpu()
    if reason is not None:
        raise BackendUnavailable(f"kernels: {name} {reason}; every worker of a build needs the same kernels")
    from hirag_dist.compute.gpu import CupyKernels, GpuKernels

    return GpuKernels() if name == GpuKernels.name else CupyKernels(CpuKernels())
