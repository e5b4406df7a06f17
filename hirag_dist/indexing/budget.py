"""An update in numbers: settings, budget, the choice of due texts, the outcome, and the bill of an index."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hirag_dist.config.model import Config, shares
from hirag_dist.errors import StoreError
from hirag_dist.execution.events import UsageBill
from hirag_dist.indexing.changed_documents import DocumentCounts
from hirag_dist.llm.usage import added, usage_rows
from hirag_dist.schemas import USAGE
from hirag_dist.storage.layout import BUILD
from hirag_dist.storage.snapshot.reader import Snapshot, current_id
from hirag_dist.types import FloatVector, IntVector

EXTRACT_AGAIN, CLAIMS_AGAIN = "extract: dead letters", "claims: dead letters"  # labels: chunks refused in the base
_EXTRACTION = ("extract", EXTRACT_AGAIN, "claims", CLAIMS_AGAIN)  # stages whose cost the budget is a multiple of
LLM_TOKENS_PER_TOKEN = 2.5  # what method llm costs, in and out, for each token of text
_CHAT_ROLES = ("extract", "summarise", "report")


@dataclass(frozen=True)
class UpdateBudget:
    """Tokens that an update may spend, in terms of the replies that it rests on, whenever these were paid.

    So a run that was killed and resumed decides as one that was not.

    Attributes:
        max_ratio: of all that is spent to the extraction of the changed documents; None: no bound.
        removed_tokens: what the extraction of removed documents has cost.
        max_tokens: a limit in tokens, for a refresh; None: no limit.
        least_extraction: tokens that the extraction counts at least, where the method costs less than method llm.
    """

    bill: UsageBill
    max_ratio: float | None
    removed_tokens: int = 0
    max_tokens: int | None = None
    least_extraction: int = 0

    @property
    def extraction(self) -> int:
        """Tokens of the extraction of changed documents."""
        found = sum(chat_tokens(self.bill, label) for label in _EXTRACTION)
        return max(max(found, 0) + self.removed_tokens, self.least_extraction)

    @property
    def total(self) -> float:
        """Tokens that the update may spend in all."""
        if self.max_tokens is not None:
            return float(self.max_tokens)
        return np.inf if self.max_ratio is None else self.max_ratio * self.extraction

    @property
    def spent(self) -> int:
        """Tokens of all chat replies until now."""
        return sum(chat_tokens(self.bill, label) for label in self.bill.by_stage)

    @property
    def left(self) -> float:
        """Tokens that may still be spent."""
        return max(self.total - self.spent, 0.0)


@dataclass(frozen=True)
class UpdateSettings:
    """Settings and budget of one update.

    Attributes:
        staleness: share of a text's inputs that may change before it is due.
        removed_keys: `text_key` of the texts that are in no chunk any more.
        has_provenance: whether the snapshot has the sources of summary entities, for labels or metadata.
        labelled: whether documents carry labels, now or in the base: then a text must not outlive any input that it was
            written from.
        reply_tokens: Tokens of the reply of a summary and of a report, on average.
        all_reports: whether reports are written too that `communities.report_share` leaves out.
        is_refresh: whether texts are due, and clusters loose, without a change of documents.
    """

    budget: UpdateBudget
    number: int
    staleness: float
    removed_keys: IntVector
    labelled: bool
    has_provenance: bool
    reply_tokens: tuple[float, float]
    all_reports: bool = False
    is_refresh: bool = False


def chat_tokens(bill: UsageBill, label: str) -> int:
    """Return the tokens of a stage's chat replies."""
    meter = bill.by_stage.get(label)
    if meter is None:
        return 0
    return sum(use.input_tokens + use.output_tokens for (role, _, _), use in meter.uses.items() if role in _CHAT_ROLES)


def is_unbounded(config: Config) -> bool:
    """Return whether none has to be put off: the built-in model writes, and the configuration sets no bound."""
    if "max_ratio" in config.update.model_fields_set:
        return False
    writers = (*shares(config.llm.roles.summarise), *shares(config.llm.roles.report))
    return all(config.llm.endpoints[name].kind == "extractive" for name, _ in writers)


def least_extraction(method: str, n_tokens: int) -> int:
    """Return the tokens that the extraction of chunks counts at least, in the bound of an update.

    Under a method that costs less than `llm` the bound is about that of `llm`: otherwise it would put off more, and
    `nlp` everything.

    Args:
        n_tokens: of the text of chunks that were added, changed or removed.

    >>> least_extraction("llm", 1000), least_extraction("nlp", 1000)
    (0, 2500)
    """
    return 0 if method == "llm" else int(n_tokens * LLM_TOKENS_PER_TOKEN)


@dataclass(frozen=True, slots=True)
class DueTexts:
    """Texts of one kind that are due.

    Attributes:
        urgent: (n,) bool, that derive from removed text.
        since: (n,) int64 update in which each became due.
        weight: (n,) how much each matters: what of it has changed, times its members.
        tokens: (n,) estimated cost.
    """

    urgent: NDArray[np.bool_]
    since: IntVector
    weight: FloatVector
    tokens: FloatVector


def affordable(due: DueTexts, allowance: float) -> NDArray[np.bool_]:
    """Return (n,) which texts are written: urgent ones, then the oldest and weightiest, within the allowance."""
    order = np.lexsort((-due.weight, due.since, ~due.urgent))
    total = np.cumsum(due.tokens[order])
    chosen = np.zeros(len(order), bool)
    chosen[order[total <= allowance]] = True
    return chosen


@dataclass(frozen=True)
class TextCounts:
    """Numbers of texts of one kind after an update.

    Attributes:
        written: Texts that a model wrote in this update.
        kept: Texts that stay as they were.
        deferred: due, and put off.
        stand_ins: Deferred texts that rules wrote.
        deferred_tokens: what writing the deferred ones would cost, about.
        missing: reports that the policy of reports leaves to questions.
        lists: Reports of small communities, which list their members; no model is asked for them.
    """

    written: int = 0
    kept: int = 0
    deferred: int = 0
    stand_ins: int = 0
    deferred_tokens: int = 0
    missing: int = 0
    lists: int = 0

    def __add__(self, other: TextCounts) -> TextCounts:
        pairs = zip(asdict(self).values(), asdict(other).values(), strict=True)
        return TextCounts(*(mine + theirs for mine, theirs in pairs))


@dataclass(frozen=True)
class UpdateSummary:
    """Outcome of an update.

    Attributes:
        base: id of the snapshot that it started from; None of a build from nothing.
        number: Number of updates since the index was built from nothing.
        documents: added, changed and removed.
        descriptions, summaries, reports: numbers that were written, kept and deferred.
        extraction_tokens: Tokens of the extraction of changed documents; of removed ones, what it has cost.
        spent_tokens: Tokens of all chat replies that the update rests on, whenever they were paid.
        budget_tokens: tokens that it may have spent; None for no limit.
        returned: whether the documents are those of a former snapshot, which is the result.
        other_changes: what differs where no document was added, changed or removed: titles, places, metadata.
    """

    base: str | None
    number: int
    documents: DocumentCounts
    descriptions: TextCounts
    summaries: TextCounts
    reports: TextCounts
    extraction_tokens: int
    spent_tokens: int
    budget_tokens: int | None
    returned: bool = False
    other_changes: tuple[str, ...] = ()

    @property
    def debt_tokens(self) -> int:
        """Tokens of the texts that were put off, about."""
        return sum(part["tokens"] for part in self.debt().values())

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return asdict(self) | {"debt": self.debt()}

    def debt(self) -> dict[str, dict[str, int]]:
        """Return units and tokens that were put off, by kind."""
        kinds = {"descriptions": self.descriptions, "summaries": self.summaries, "reports": self.reports}
        return {
            name: {"units": counts.deferred, "stand_ins": counts.stand_ins, "tokens": counts.deferred_tokens}
            for name, counts in kinds.items()
        }

    def cost(self) -> dict[str, int | None]:
        """Return tokens, for the manifest."""
        return {
            "extraction_tokens": self.extraction_tokens,
            "spent_tokens": self.spent_tokens,
            "budget_tokens": self.budget_tokens,
        }


def bill_rows(snapshot: Snapshot) -> list[dict[str, Any]] | None:
    """Return rows of USAGE since the index was built from nothing; None where what was paid before is not known."""
    note = snapshot.manifest.update
    if note is not None and note.bill is not None:
        return [*map(dict, note.bill)]
    own = usage_rows(snapshot.table("usage"))
    if note is None or not note.number:
        return own
    return None if note.earlier_bill is None else added([*map(dict, note.earlier_bill), *own])


def known_bill(snapshot: Snapshot) -> tuple[list[dict[str, Any]], bool]:
    """Return rows of USAGE since the index was built from nothing, or of the last update, and whether it is the former.

    Of the current snapshot, what was paid after it counts too, such as a retry that changed nothing. An index that an
    earlier version updated does not know what was paid before.
    """
    store, rows = snapshot.store, None
    with suppress(StoreError):  # a damaged record is none
        if current_id(store) == snapshot.manifest.snapshot_id and store.exists(BUILD):
            rows = store.read_json(BUILD).get("bill")
    rows = bill_rows(snapshot) if rows is None else rows
    return (usage_rows(snapshot.table("usage")), False) if rows is None else (rows, True)


def usage_table(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return the table USAGE of its rows; a cost that is not known, None, is NaN in it."""
    known = [{name: math.nan if row[name] is None else row[name] for name in USAGE.names} for row in rows]
    return pa.Table.from_pylist(known, USAGE)
