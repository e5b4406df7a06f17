"""Tasks on a Ray cluster: an actor for each worker, and one for the quota coordinator. The driver moves names."""

from __future__ import annotations

import os

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # read by Ray when it is imported
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

from hirag_dist.execution.ray.cluster import describe_cluster
from hirag_dist.execution.ray.executor import RayExecutor
from hirag_dist.execution.ray.worker_pool import GpuWorkers

__all__ = ["GpuWorkers", "RayExecutor", "describe_cluster"]
