"""Settings and budget of an update, and the choice of the due texts that it writes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hirag_dist.config.model import Config, shares
from hirag_dist.execution.events import UsageBill
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
