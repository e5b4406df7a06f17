"""`eval coverage`: the share of the local and global context that the bridge holds too (HiRAG paper, Table 7).

The paper gives "the average token-level recall ratio of local- and global-level context in the bridge-level context",
and neither a formula nor its program. Here it is the recall that goes by that name in question answering (a part of
SQuAD's F1): tokens are a multiset, so a token that the level holds five times and the bridge twice counts two of five,
and a bridge cannot hold more of a level than it is long. No model is asked but the one that embeds questions.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Sequence

from hirag_dist.core.retrieval.context import LEVEL_OF_HEADING, RECORD_LETTERS
from hirag_dist.core.text.tokens import encoding
from hirag_dist.evaluation.board import NOTE, Board, comparison, mean_table
from hirag_dist.evaluation.questions import Questions
from hirag_dist.evaluation.session import Session
from hirag_dist.evaluation.work_units import Findings, Trial, Value, trial_units
from hirag_dist.html import Table, Text
from hirag_dist.retrieval.search import MODES
from hirag_dist.types import Query, Retrieval

ENCODING = "cl100k_base"  # the paper's, whatever the index counts by
LEVELS = ("local", "global", "bridge")
COVERED = ("local", "global")
_HEADING = re.compile(rf"^## ({'|'.join(LEVEL_OF_HEADING)})$", re.MULTILINE)
_REFERENCE = re.compile(rf"^\[[{RECORD_LETTERS}]\d+\]", re.MULTILINE)


async def evaluate_coverage(session: Session, questions: Questions, modes: Sequence[str]) -> Findings:
    """Retrieve for every question in every mode and variant, and measure what the bridge covers.

    Args:
        modes: with a bridge; of others nothing is covered.

    Raises:
        ConfigError: no index, or an unknown mode.
    """
    snapshot_id = session.require_snapshot().manifest.snapshot_id
    systems = session.systems(modes, MODES)
    session.refuse_records("questions", questions.unreadable)
    context = {"snapshot": snapshot_id, "tokenizer": session.config.tokenizer, "encoding": ENCODING}

    def decides(trial: Trial) -> Value:
        return {"question": trial.question.text, **context, **trial.system.decides}

    async def work(asked: Trial) -> Value:
        return measured(await session.engine(asked.system).retrieve(Query(asked.question.text, mode=asked.system.mode)))

    sizes = [f"tokens of {level}" for level in LEVELS]
    board = Board(
        [question.type for question in questions.items],
        [system.name for system in systems],
        [*COVERED, *sizes, "context tokens", "connected pairs"],
    )
    async for outcome in await session.map("coverage", trial_units(questions.items, systems, decides), work):
        board.add(outcome.item.place, outcome.item.system.name, outcome.value)
    averages = board.averages([*sizes, "context tokens", "connected pairs"])
    results = board.results(COVERED) | {"averages": averages}
    title = "Share of a level's tokens that the bridge holds too"
    rows = [[system, *found.values()] for system, found in averages.items()]
    columns = ["system", *next(iter(averages.values()), {})]
    sizes_table = Table("What was retrieved, on average", columns, rows, form=",.4g")
    sections = [*comparison(title, results), sizes_table, _EXPLAINED]
    return Findings(results, sections, [mean_table(title, results), sizes_table], questions.counts)


def measured(found: Retrieval) -> Value:
    """Return the measures of one retrieval: shares of levels, tokens of levels, and the share of connected pairs."""
    encode = encoding(ENCODING).encode_ordinary
    tokens = {level: encode(text) for level, text in rendered_levels(found.context).items()}
    return {
        **{level: token_recall(tokens[level], tokens["bridge"]) for level in COVERED},
        **{f"tokens of {level}": len(tokens[level]) for level in LEVELS},
        "context tokens": found.context_tokens,
        "connected pairs": sum(path.connected for path in found.paths) / len(found.paths) if found.paths else None,
    }


def token_recall(part: Sequence[Hashable], whole: Sequence[Hashable]) -> float | None:
    """Return the share of `part` that stands in `whole` too; None where `part` is empty, of which no share can be said.

    >>> token_recall("aab", "abc")
    0.6666666666666666
    """
    return (Counter(part) & Counter(whole)).total() / len(part) if part else None


def rendered_levels(context: str) -> dict[str, str]:
    """Return a rendered context by level, without headings and references: what a model reads of each.

    Args:
        context: as `core.retrieval.context.render_context` makes it; no text of a record can pass for a heading there.
    """
    headings = list(_HEADING.finditer(context))
    ends = [heading.start() for heading in headings[1:]] + [len(context)]
    texts = dict.fromkeys(LEVELS, "")
    for heading, end in zip(headings, ends, strict=False):
        texts[LEVEL_OF_HEADING[heading[1]]] = _REFERENCE.sub("", context[heading.end() : end]).strip()
    return texts


_EXPLAINED = Text(
    "What is measured",
    [
        "The paper calls its Table 7 an average token-level recall ratio and gives no formula. Here a level's tokens "
        f"({ENCODING}) are a multiset, as in the recall of question answering: a token that the level holds five times "
        "and the bridge twice counts two of five.",
        "Levels are read as a model's context has them, each cut to its share of the token limit. The bridge's text is "
        "its triples: both names and the relation's description. Shares are means over the questions whose level holds "
        f"any text. {NOTE}",
        "High coverage says that the bridge repeats a level's words, not that answers become better by it.",
    ],
)
