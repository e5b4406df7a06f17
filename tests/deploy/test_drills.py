"""The parts of the drills on a cluster (`tests/cluster`) that need none: their releases, objects and readings."""

from __future__ import annotations

import hashlib

from tests.cluster import releases
from tests.deploy.charts import Chart
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
