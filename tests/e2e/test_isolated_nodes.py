"""A build on Ray nodes that share no network, of which one dies or is cut off: the snapshot is the same.

No node reaches the loopback of another, as on separate machines, so that a wrong address would fail.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hirag_dist.testing.simulator import SimulatorOptions
from hirag_dist.testing.simulator.run import SimulatorThread
from tests.e2e.conftest import ENVIRONMENT, check_stderr
from tests.e2e.isolated_nodes import Network, missing

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
IN_FLIGHT = 8  # calls: max_concurrent of both endpoints


@pytest.fixture
def network() -> Iterator[Network]:
    """A head, and two nodes of one CPU."""
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    with Network(ENVIRONMENT) as made:
        yield made


def calls(thread: SimulatorThread) -> int:
    return int(thread.stats()["total"]["calls"])


@pytest.mark.parametrize("trouble", ["killed", "cut off"])
def test_a_node_goes_and_the_snapshot_is_the_same(
    trouble: str,
    network: Network,
    forked: Any,
    corpus: Path,
    built: Any,
    paid: Callable[..., dict[str, Any]],
    until: Callable[..., None],
    tmp_path: Path,
) -> None:
    thread = SimulatorThread(SimulatorOptions(listen=f"{network.gateway}:0", latency_ms=100))
    with thread as url:
        config = yaml.safe_load(built.config.read_text("utf-8")) | {"llm": paid(url)}
        config["llm"]["outage_timeout_s"] = 60
        whole = forked.build(inputs=[str(corpus)], config=config, index=tmp_path / "whole")
        alone = calls(thread)
        config["execution"] = {"executor": "ray", "ray_address": network.address, "workers": 2}
        file = tmp_path / "isolated.yaml"
        file.write_text(yaml.safe_dump(config), encoding="utf-8")
        network.start(0)
        until(lambda: network.reaches(0, 0), "head", 60)
        for number in (1, 2):
            network.start(number)
        command = [sys.executable, "-m", "hirag_dist", "index", str(corpus), "-i", str(tmp_path / "index")]
        command += ["-c", str(file), "--executor", "ray", "--json"]
        driver = network.run(
            0, *command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )  # fmt: skip
        until(lambda: calls(thread) > alone + alone // 4 or driver.poll() is not None, "a quarter of the calls", 120)
        assert driver.poll() is None, driver.communicate()[1]
        assert calls(thread) < 2 * alone  # there is something left to lose
        if trouble == "killed":
            network.kill(2)
            assert not network.processes(2)
        else:
            network.cut(2)
            assert not network.reaches(2, 0)
            assert network.processes(2)  # it lives, and knows of nothing
        said, err = driver.communicate(timeout=300)
        assert driver.returncode == 0, err
        check_stderr(err)
        report = json.loads(said)
        assert report["snapshot"] == whole["snapshot"]
        assert calls(thread) <= 2 * alone + IN_FLIGHT
