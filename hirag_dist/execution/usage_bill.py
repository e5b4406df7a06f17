"""Usage of one build, summed from its events: by stage, and what the run itself sent."""

from __future__ import annotations

from hirag_dist.execution.events import StageFailedEvent, StageFinished, TaskFinished, UsageRecorded
from hirag_dist.llm.usage import UsageMeter


class UsageBill:
    """Event listener that adds up usage.

    Attributes:
        by_stage: label → usage of the replies that the stage's output rests on, whenever they were paid.
        sent: usage of this run alone.
    """

    def __init__(self) -> None:
        self.by_stage: dict[str, UsageMeter] = {}
        self.sent = UsageMeter()

    def __call__(self, event: object) -> None:
        """Add the usage of an event."""
        if isinstance(event, StageFinished) or (isinstance(event, UsageRecorded) and event.outside):
            self.by_stage.setdefault(event.label, UsageMeter()).add(event.usage)
        if isinstance(event, TaskFinished | UsageRecorded | StageFailedEvent):
            self.sent.add(event.usage)
