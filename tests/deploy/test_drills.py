"""The parts of the drills on a cluster (`tests/cluster`) that need none: their releases, objects and readings."""

from __future__ import annotations

import doctest
import hashlib

import yaml

from tests.cluster import kube, releases
from tests.deploy.charts import ROOT, Chart
from tests.deploy.policies import release_faults
from tests.deploy.schemas import VERSIONS, faults


def test_the_releases_of_the_drills(chart: Chart) -> None:
    for name, objects in zip(releases.RELEASES, chart.render_many(list(releases.RELEASES.values())), strict=True):
        wrong = [fault for found in objects for fault in faults(found, VERSIONS[-1])]
        assert wrong + release_faults(objects) == [], name


def test_the_objects_of_the_drills() -> None:
    made = [*releases.prerequisites(), releases.clients("rag:50051"), *releases.slow_models()]
    made += [*releases.small_storage(), releases.on_volume("fill", "small", "true")]
    assert [fault for found in made for fault in faults(found, VERSIONS[-1])] == []
    assert hashlib.sha256(releases.TOKEN.encode()).hexdigest() == releases.TOKEN_SHA256


def test_readings_of_objects() -> None:
    assert doctest.testmod(kube).failed == 0


def test_the_nodes_of_kind_share_the_folders_of_the_volumes() -> None:
    nodes = yaml.safe_load((ROOT / "tests/cluster/kind.yaml").read_text(encoding="utf-8"))["nodes"]
    made = [*releases.storage(), *releases.small_storage()]
    volumes = {volume["spec"]["hostPath"]["path"] for volume in made if volume["kind"] == "PersistentVolume"}
    assert [{mount["containerPath"] for mount in node["extraMounts"]} for node in nodes] == [volumes] * 3
