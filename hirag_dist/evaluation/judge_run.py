"""`eval judge` from its material to its findings: answers made and judged, or recorded verdicts counted again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hirag_dist.core.text.normalize import count_noun
from hirag_dist.evaluation.answer_collections import AnswerCollections, add_made, add_recorded
from hirag_dist.evaluation.findings import Findings
from hirag_dist.evaluation.judging import JudgingOptions, answer_lengths, judge
from hirag_dist.evaluation.judging_report import findings_of, judging_results, judging_sections, win_rate_table
from hirag_dist.evaluation.metrics.win_rates import AnswerPair, VerdictTable, pair_titles, tally
from hirag_dist.evaluation.questions import Questions
from hirag_dist.evaluation.session import Session
from hirag_dist.evaluation.verdict_records import read_verdicts
from hirag_dist.html import Section, Table, Text


@dataclass(frozen=True)
class AnswerMaterial:
    """Sources of answers.

    Attributes:
        sources: files of recorded answers, as `answer_sources` gives them.
        questions: of a question file; empty where the answers bring their questions.
        modes: of the index, in which it answers.
    """

    sources: tuple[tuple[str | None, str], ...]
    questions: Questions
    modes: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """Counts of the question file, without those of gold answers and evidence."""
        counts = self.questions.counts if self.questions.items else {}
        return {name: n for name, n in counts.items() if not name.startswith("without_")}

    async def gather(self, session: Session) -> AnswerCollections:
        """Return the answers; what cannot be read is a dead letter of the session.

        Raises:
            InputError: a file without an answer that can be used, or a name used twice.
        """
        sets = AnswerCollections()
        session.refuse_records("questions", self.questions.unreadable)
        session.refuse_records("answers", add_recorded(sets, self.sources, self.questions.items))
        if self.modes:
            await add_made(sets, session, self.questions.items, session.systems(self.modes))
        return sets


async def judge_answers(session: Session, *, material: AnswerMaterial, judging: JudgingOptions) -> Findings:
    """Have answers judged, and return what is found.

    Raises:
        InputError: there is nothing to compare.
    """
    sets = await material.gather(session)
    verdicts = await judge(session, sets, judging)
    return _findings(session, verdicts, sets, material)


async def recount(session: Session, *, paths: Sequence[str], material: AnswerMaterial) -> Findings:
    """Count recorded verdicts, and return what is found; answers, where there are any, give the lengths.

    Raises:
        InputError: the files hold no verdict.
    """
    recorded = read_verdicts(paths)
    session.refuse_records("verdicts", recorded.unreadable)
    sets = await material.gather(session)
    found = _findings(session, recorded.verdicts, sets, material)
    if recorded.by_row is None:
        return found
    rows = row_rule(recorded.verdicts, recorded.by_row)
    table = _row_table(rows)
    return Findings(
        {**found.results, "by_row": rows}, [*found.sections, table], [*found.headline, table], found.questions
    )


def _findings(session: Session, verdicts: VerdictTable, sets: AnswerCollections, material: AnswerMaterial) -> Findings:
    found = findings_of(verdicts)
    results = judging_results(verdicts, answer_lengths(sets, verdicts, session.count_tokens), found)
    results["answers"] = sets.counts
    results["answer_copies"] = sets.copies
    results["answers_in_part"] = sets.in_part
    sections: list[Section] = judging_sections(verdicts, results, found)
    if sets.in_part:
        said = [
            f"{method}: {count_noun(count, 'answer lacks', 'answers lack')} parts whose call failed."
            for method, count in sets.in_part.items()
        ]
        sections.append(Text("Answers in part", said))
    return Findings(results, sections, [win_rate_table(found)], material.counts)


def row_rule(aligned: VerdictTable, by_row: VerdictTable) -> list[dict[str, Any]]:
    """Return the counts of recorded verdicts by both rules of which answer was whose, pair by pair.

    `aligned` goes by what each record says, `published` by the row in which it was published (`read_verdicts`).
    """
    rows = []
    for place, pair in enumerate(aligned.pairs):
        for number, criterion in enumerate(aligned.criteria):
            counts = {}
            for rule, verdicts in (("published", by_row), ("aligned", aligned)):
                counted = tally(verdicts.where(pair=place, criterion=number))
                counts[rule] = {
                    "wins": counted.wins,
                    "ties": counted.ties,
                    "losses": counted.losses,
                    "win_rate": counted.rate,
                }
            rows.append(
                {"name": pair.name, "first": pair.first, "second": pair.second, "criterion": criterion} | counts
            )
    return rows


def _row_table(rows: Sequence[dict[str, Any]]) -> Table:
    pairs = [AnswerPair(row["first"], row["second"], row["name"]) for row in rows]
    titles = pair_titles(list(dict.fromkeys(pairs)))
    shown = [
        [
            titles[pair],
            row["criterion"],
            *(row[rule][key] for rule in ("published", "aligned") for key in ("wins", "win_rate")),
        ]
        for pair, row in zip(pairs, rows, strict=True)
    ]
    columns = ["pair", "criterion", "wins by row", "win rate by row", "wins by record", "win rate by record"]
    note = (
        "By row: rows below the number of questions are taken to show the first method first, as the published "
        "evaluation did. By record: each record says which answer was whose, also after a row that was dropped."
    )
    return Table("Both ways of counting", columns, shown, note, ".1%")
