from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hirag_dist.execution.events import StageFinished, UsageBill
from hirag_dist.indexing.budget import DueTexts, UpdateBudget, affordable
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.types import ChatReply

Row = tuple[bool, int, float, float]  # urgent, since, weight, tokens


def chosen(rows: Sequence[Row], allowance: float) -> list[int]:
    kinds = (bool, np.int64, np.float64, np.float64)
    columns = [np.array([row[at] for row in rows], kind) for at, kind in enumerate(kinds)]
    return np.flatnonzero(affordable(DueTexts(*columns), allowance)).tolist()


ROWS = st.lists(
    st.tuples(st.booleans(), st.integers(1, 4), st.sampled_from([0.5, 1.0, 2.0]), st.sampled_from([1.0, 5.0, 20.0])),
    max_size=12,
)


@given(ROWS, st.floats(0, 100))
def test_what_is_written_fits_and_is_not_behind_what_is_not(rows: list[Row], allowance: float) -> None:
    picked = set(chosen(rows, allowance))
    assert sum(rows[at][3] for at in picked) <= allowance
    order = sorted(range(len(rows)), key=lambda at: (not rows[at][0], rows[at][1], -rows[at][2], at))
    assert picked == set(order[: len(picked)])
    if len(picked) < len(rows):
        assert sum(rows[at][3] for at in order[: len(picked) + 1]) > allowance


STAGES = (
    ("extract", "extract", 1000),
    ("claims", "extract", 100),
    ("summarise layer 1", "summarise", 500),
    ("embed layer 1", "embed", 9999),
)


def bill(from_ledger: bool) -> UsageBill:
    """Return a bill of the stages, whose replies have a tenth of the tokens of the requests."""
    made = UsageBill()
    for label, role, n_tokens in STAGES:
        meter, reply = UsageMeter(), ChatReply("text", input_tokens=n_tokens, output_tokens=n_tokens // 10)
        meter.count(role, "model", "endpoint", reply, 0.0, from_ledger)
        made(StageFinished(label, False, 1, 0, 0.0, meter))
    return made


@pytest.mark.parametrize("from_ledger", [False, True])
def test_the_budget_is_a_multiple_of_what_extraction_rests_on_or_a_number(from_ledger: bool) -> None:
    """Replies of the ledger count: a run that was killed and resumed decides as one that was not."""
    budget = UpdateBudget(bill(from_ledger), 3.0)
    assert (budget.extraction, budget.spent) == (1100 + 110, 1100 + 110 + 550)
    assert (budget.total, budget.left) == (3 * 1210, 3 * 1210 - 1760)
    limited = UpdateBudget(bill(from_ledger), None, max_tokens=2000)
    assert (limited.total, limited.left) == (2000, 2000 - 1760)
