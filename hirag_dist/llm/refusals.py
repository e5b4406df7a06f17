"""The stop of a role whose replies are all refused: the cause is the model or the prompt, not the unit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from hirag_dist.core.prompts.reply_validation import NOT_SENT
from hirag_dist.errors import RequestRejected

MIN_UNITS = 8  # refused to their last attempt, with none accepted
MIN_SLOW_UNITS = 3  # where the refusals have taken SLOW_S: a slow model must not fail for an hour before it is stopped
SLOW_S = 60.0  # seconds since the first refused reply


class NotSent(RequestRejected):
    """The request was not sent, because those before it were all refused."""


@dataclass(slots=True)
class _Outcomes:
    """Outcomes of the units of a role.

    Attributes:
        accepted: whether a reply was usable.
        suspect: the first units with a refused reply, at most `MIN_UNITS`.
        refused: units refused to their last attempt.
        first_at: time of the first refused reply, in seconds.
        stopped: whether enough units were refused, before any was accepted.
        reason: the last one.
        decided: set once a reply was usable, once calls stop, or once a unit is divided.
    """

    accepted: bool = False
    suspect: set[str] = field(default_factory=set)
    refused: int = 0
    first_at: float | None = None
    stopped: bool = False
    reason: str = ""
    decided: asyncio.Event = field(default_factory=asyncio.Event)


class SystematicRefusals:
    """Outcomes of units by role, as far as they come from new replies: stored ones cost nothing.

    After the first `MIN_UNITS` units with a refused reply and none with a usable one, calls for other units wait until
    these units have had all their attempts. If all are refused, no further request of the role is sent; where the
    refusals have taken `SLOW_S`, `MIN_SLOW_UNITS` units are enough. One usable reply is enough for the calls to go on.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._roles: dict[str, _Outcomes] = {}

    def note_accepted(self, role: str) -> None:
        """Record that a reply of a role was usable."""
        outcomes = self._of(role)
        outcomes.accepted = True
        outcomes.decided.set()

    def note_refused(self, role: str, unit: str, reason: str, *, final: bool = False) -> None:
        """Record that a reply of a role was refused.

        Args:
            unit: hash of what the request is about.
            final: whether it was the unit's last attempt.
        """
        outcomes, now = self._of(role), self._clock()
        if outcomes.first_at is None:
            outcomes.first_at = now
        if len(outcomes.suspect) < MIN_UNITS:
            outcomes.suspect.add(unit)
        outcomes.reason = reason
        outcomes.refused += final
        enough = MIN_SLOW_UNITS if now - outcomes.first_at >= SLOW_S else MIN_UNITS
        if final and outcomes.refused >= enough:
            outcomes.stopped = True
            outcomes.decided.set()

    def note_divided(self, role: str) -> None:
        """Record that a unit was too long, and is asked about in parts: calls no longer wait for what becomes of it."""
        self._of(role).decided.set()

    def check(self, role: str) -> None:
        """Return if a request of a role may be sent.

        Raises:
            NotSent: enough units of the role were refused, and none was accepted.
        """
        outcomes = self._of(role)
        if outcomes.stopped and not outcomes.accepted:
            raise NotSent(
                f"{NOT_SENT}the first {outcomes.refused} units of role {role} were all refused; the last "
                f"reason: {outcomes.reason}"
            )

    def undecided(self, role: str, unit: str) -> asyncio.Event | None:
        """Return the event that a call for a unit has to wait for; None if it need not wait."""
        outcomes = self._of(role)
        waits = not outcomes.decided.is_set() and len(outcomes.suspect) == MIN_UNITS and unit not in outcomes.suspect
        return outcomes.decided if waits else None

    def _of(self, role: str) -> _Outcomes:
        return self._roles.setdefault(role, _Outcomes())
