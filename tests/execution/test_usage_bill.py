"""Usage of a build, summed from its events."""

from hirag_dist.execution.events import StageFailedEvent, StageFinished, TaskFinished, UsageRecorded
from hirag_dist.execution.usage_bill import UsageBill
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.types import ChatReply


def usage(tokens: int) -> UsageMeter:
    meter = UsageMeter()
    meter.count("extract", "m", "llm", ChatReply("", input_tokens=tokens), 0.0, from_ledger=False)
    return meter


def test_a_reused_stage_is_on_the_bill_and_not_in_what_was_sent() -> None:
    bill = UsageBill()
    bill(StageFinished("extract", True, 1, 0, 0.0, usage(5)))
    assert bill.by_stage["extract"].spent() == (5, 0.0)
    assert bill.sent.spent() == (0, 0.0)


def test_tasks_and_failures_were_sent() -> None:
    bill = UsageBill()
    for event in (TaskFinished("extract", 1, 0, 0.0, usage(1)), StageFailedEvent("extract", usage(100))):
        bill(event)
    assert (bill.by_stage, bill.sent.spent()) == ({}, (101, 0.0))


def test_usage_outside_any_stage_is_on_the_bill_and_was_sent() -> None:
    bill = UsageBill()
    bill(UsageRecorded("probes", usage(3)))
    assert bill.by_stage["probes"].spent() == bill.sent.spent() == (3, 0.0)
