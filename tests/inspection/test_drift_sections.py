"""Updates and drift on the page and in the dictionary of an inspection."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from lxml import html

from hirag_dist.core.drift import (
    CommunityDrift,
    DriftReport,
    GroupSizes,
    LayerDrift,
    PartitionDrift,
    StaleTexts,
    UpdateStaleness,
)
from hirag_dist.inspection.page import outline, render_page
from hirag_dist.inspection.summary import inspect_tables

Tables = dict[str, pa.Table]
GROUPS = PartitionDrift(GroupSizes(3, 1, 0), GroupSizes(4, 0, 0), 0.75)
UPDATE = UpdateStaleness(
    number=3,
    base="before",
    documents={"added": 2, "changed": 0, "removed": 1},
    debt={"summaries": {"units": 1, "tokens": 5300}, "reports": {"units": 1, "tokens": 700}},
    summaries=StaleTexts(4, 1, 200, 50, 60),
    reports=StaleTexts(2, 0, 100, 0, 0),
)
DRIFT = DriftReport(
    snapshot_id="s1",
    kernels="cpu",
    index_kernels="gpu",
    layers=(LayerDrift(0, 12, 0, GROUPS, 0.45, 0.5),),
    communities=CommunityDrift(12, 0, GROUPS, GROUPS, 0.8, 0.75),
    update=UPDATE,
    notes=("A note.",),
)


def test_the_page_shows_them_where_they_are_known(tiny: Tables) -> None:
    found = inspect_tables(tiny, {})
    plain = render_page(found, outline(tiny))
    assert "Drift" not in [node.text for node in html.fromstring(plain).iter("h2")]
    page = html.fromstring(render_page(replace(found, update=UPDATE, drift=DRIFT), outline(tiny)))
    headings = [node.text for node in page.iter("h2")]
    assert {"Updates", "Drift"} <= set(headings)
    assert "compactness ratio" in page.text_content()
