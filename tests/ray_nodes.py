"""A real Ray cluster of several nodes on this machine: started once for all tests that need one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster

from hirag_dist.execution.ray.cluster import kill_half_started

HEALTH = {  # a killed node refuses connections and is noticed within a few seconds; one that is slow to answer lives
    "health_check_initial_delay_ms": 10_000,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 20_000,
    "health_check_failure_threshold": 3,
}
WITHOUT = {"include_dashboard": False, "include_log_monitor": False, "no_monitor": True}  # processes that nobody asks
ROOT = Path(__file__).parents[1]


def started(start: Callable[[], Any]) -> Any:
    """Start a node; a loaded machine may not start it within the 30 s that Ray allows, so try twice."""
    try:
        return start()
    except Exception as error:
        kill_half_started(error)
        return start()


class SharedCluster:
    """A head and a second node, with one CPU each and no GPU. A test that adds or kills nodes leaves these two."""

    def __init__(self) -> None:
        self._cluster: Cluster | None = None
        self._patch = pytest.MonkeyPatch()

    def get(self) -> Cluster:
        """Return the cluster, which is started and connected to by the first call."""
        if self._cluster is None:
            self._patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
            # Workers import test helpers: they inherit the path.
            self._patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
            head = {"num_cpus": 1, "_system_config": HEALTH} | WITHOUT
            made = started(lambda: Cluster(initialize_head=True, head_node_args=head))
            started(lambda: made.add_node(num_cpus=1))
            ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
            self._cluster = made
        return self._cluster

    def stop(self) -> None:
        """Stop the cluster, if it runs."""
        if self._cluster is not None:
            ray.shutdown()
            self._cluster.shutdown()
            self._cluster = None
            self._patch.undo()


shared = SharedCluster()
