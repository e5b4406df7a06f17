"""The chart, copied once."""

from __future__ import annotations

import pytest

from tests.deploy.charts import Chart, Object, only
from tests.deploy.promtool import ALERTS


@pytest.fixture(scope="session")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Chart:
    """The chart as the real Helm renders it."""
    return Chart(tmp_path_factory.mktemp("chart"))


@pytest.fixture(scope="module")
def rules(chart: Chart) -> Object:
    """The groups of alerts of a release with all of them."""
    return only(chart.render(ALERTS), "PrometheusRule")["spec"]
