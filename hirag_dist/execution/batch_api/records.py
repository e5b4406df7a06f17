"""Records of submitted batches in the store, and the counts of their calls when they end."""

from __future__ import annotations

from dataclasses import dataclass, field

from hirag_dist.llm.batch_api import BatchLine
from hirag_dist.storage.layout import BATCHES
from hirag_dist.storage.store import Store


@dataclass(frozen=True)
class OpenBatch:
    """A submitted batch, as the store has it.

    Attributes:
        id: assigned by this package.
        run: of the build that asked for it.
        created_at: seconds since the epoch.
        most_tokens, most_usd: its largest possible usage.
        file, batch: the endpoint's ids; None where they are not known to be there.
    """

    id: str
    endpoint: str
    stage: str
    role: str
    run: str
    lines: int
    created_at: float
    most_tokens: int
    most_usd: float
    file: str | None = None
    batch: str | None = None

    @property
    def path(self) -> str:
        """Path in the store."""
        return f"{BATCHES}/{self.id}.json"


def open_batches(store: Store) -> list[OpenBatch]:
    """Return the submitted batches of an index, oldest first."""
    found = [OpenBatch(**store.read_json(f"{BATCHES}/{name}")) for name in store.names(BATCHES)]
    return sorted(found, key=lambda out: (out.created_at, out.id))


@dataclass(slots=True)
class ClosedBatch:
    """Counts of the calls of batches that have ended.

    Attributes:
        later: calls that were not answered because of a time-out or a failure of the endpoint.
        refused: calls that the endpoint will not answer.
        problems: reasons of batches that failed.
    """

    replies: int = 0
    later: int = 0
    refused: int = 0
    problems: list[str] = field(default_factory=list)

    def count(self, line: BatchLine) -> None:
        """Count a call."""
        self.replies += line.reply is not None
        self.refused += line.refused
        self.later += line.reply is None and not line.refused
