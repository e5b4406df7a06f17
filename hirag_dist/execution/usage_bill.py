"""Usage of one build, summed from its events: by stage, and what the run itself sent."""

from __future__ import annotations

from hirag_dist.execution.events import StageFailedEvent, StageFinished, StagesRepeated, TaskFinished, UsageRecorded
from hirag_dist.llm.usage import UsageMeter


class UsageBill:
    """Event listener that adds up usage.

    Attributes:
        by_stage: label → usage of the replies that the stage's output rests on, whenever they were paid.
        sent: usage of this run alone.
    """

    def __init__(self) -> None:
        self.by_stage: dict[str, UsageMeter] = {}
        self._finished: set[str] = set()  # labels
        self.sent = UsageMeter()

    def __call__(self, event: object) -> None:
        """Add the usage of an event."""
        if isinstance(event, StageFinished | UsageRecorded):
            self.by_stage.setdefault(event.label, UsageMeter()).add(event.usage)
        if isinstance(event, StageFinished):
            self._finished.add(event.label)
        if isinstance(event, StagesRepeated):  # each stage reports its usage again
            self.by_stage = {label: meter for label, meter in self.by_stage.items() if label not in self._finished}
        if isinstance(event, TaskFinished | UsageRecorded | StageFailedEvent):
            self.sent.add(event.usage)

    def total(self) -> UsageMeter:
        """Return the usage of all stages together."""
        usage = UsageMeter()
        for meter in self.by_stage.values():
            usage.add(meter)
        return usage
