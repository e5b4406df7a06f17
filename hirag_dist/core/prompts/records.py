"""Records of replies as they were read."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class EntityRecord:
    """An entity as the model gave it."""

    name: str
    type: str
    description: str


@dataclass(frozen=True, slots=True)
class RelationRecord:
    """A relation as the model gave it; `strength` is at least 0.1 and at most 10, or 0 where it gave none."""

    source: str
    target: str
    description: str
    strength: float


@dataclass(frozen=True, slots=True)
class ExtractionReply:
    """All records of one reply, in its order.

    Attributes:
        n_dropped: Records left out: relations by numbers of no entity, and what is beyond the longest list.
    """

    entities: tuple[EntityRecord, ...]
    relations: tuple[RelationRecord, ...]
    n_dropped: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class MemberLink:
    """A member (its number, from 0) covered by a summary entity (its place in `entities`)."""

    member: int
    entity: int
    description: str
    strength: float


@dataclass(frozen=True, slots=True)
class SummaryReply:
    """The summary entities of a cluster and which member each covers."""

    entities: tuple[EntityRecord, ...]
    covers: tuple[MemberLink, ...]


@dataclass(frozen=True, slots=True)
class ReportFinding:
    """One finding of a report, with the references as they were written."""

    summary: str
    explanation: str
    references: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReportRecord:
    """A community report as the model gave it; the forms ask for no rating, which is None then."""

    title: str
    summary: str
    rating: float | None
    rating_explanation: str
    findings: tuple[ReportFinding, ...]


@dataclass(frozen=True, slots=True)
class SameEntityReply:
    """Decision of the model on whether two entities are one."""

    same: bool
    reason: str
