"""Evaluations: a kind makes units, says how one is done, and draws what came of all; the rest is here.

`open_session` holds a folder in which steps of units are journaled (`Session.map`), asked through pool and ledger;
`read_questions` reads question files; `Findings` and its sections become `report.json` and `report.html`.
"""

from hirag_dist.evaluation.questions import Question, QuestionFields, Questions, read_questions, rows_of
from hirag_dist.evaluation.report import write_report
from hirag_dist.evaluation.session import Session, SessionOptions, open_session
from hirag_dist.evaluation.work_units import EvaluationLetter, Findings, Outcome, Outcomes, SystemUnderTest, WorkUnit

__all__ = [
    "EvaluationLetter",
    "Findings",
    "Outcome",
    "Outcomes",
    "Question",
    "QuestionFields",
    "Questions",
    "Session",
    "SessionOptions",
    "SystemUnderTest",
    "WorkUnit",
    "open_session",
    "read_questions",
    "rows_of",
    "write_report",
]
