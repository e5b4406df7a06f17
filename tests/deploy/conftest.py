"""The chart, copied once."""

from __future__ import annotations

import pytest

from tests.deploy.charts import Chart


@pytest.fixture(scope="session")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Chart:
    """The chart as the real Helm renders it."""
    return Chart(tmp_path_factory.mktemp("chart"))
