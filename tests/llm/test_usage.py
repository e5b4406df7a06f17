"""Sums of usage, with costs that are not known."""

from __future__ import annotations

import json
import math

from hirag_dist.indexing.publish import stage_usage
from hirag_dist.llm.call import PricedModel
from hirag_dist.llm.usage import UsageMeter, dollars, total_cost, usage_rows
from hirag_dist.types import ChatReply
from tests.scripted_model import ScriptedModel

REPLY = ChatReply("", input_tokens=1000, output_tokens=100)


def test_a_cost_that_is_not_known_is_unknown_everywhere() -> None:
    meter = UsageMeter()
    for name, price in (("priced", (2.0, 2.0, 8.0)), ("unpriced", None)):
        model = PricedModel(name, ScriptedModel(lambda request: ""), price=price)
        model.count(meter, "answer", REPLY, model.cost(REPLY))
    assert meter.spent() == (2200, 0.0028), "a limit is of what is known"
    assert meter.sent_sums()["usd"] is None
    rows = json.loads(json.dumps(meter.rows(), allow_nan=False))
    assert [row["cost_usd"] for row in rows] == [0.0028, None]
    again = UsageMeter.from_rows(rows)
    assert math.isnan(again.uses[rows[1]["role"], rows[1]["model"], "unpriced"].cost_usd)
    written = usage_rows(stage_usage({"answers": again}))
    assert [row["cost_usd"] for row in written] == [0.0028, None]
    assert total_cost(row["cost_usd"] for row in written) is None
    assert dollars(total_cost([])) == "$0.00"
