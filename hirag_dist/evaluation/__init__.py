"""Evaluations: a kind makes units, says how one is done, and draws what came of all; the rest is here.

`open_session` holds a folder in which steps of units are journaled (`Session.map`), asked through pool and ledger;
`read_questions` reads question files; `Findings` and its sections become `report.json` and `report.html`.
"""

from hirag_dist.evaluation.open_session import open_session
from hirag_dist.evaluation.questions import Question, QuestionFields, Questions, read_questions, rows_of
from hirag_dist.evaluation.report import write_report
from hirag_dist.evaluation.report_model import Bars, Findings, Lines, Matrix, Section, Table, Text
from hirag_dist.evaluation.session import Order, Session, System
from hirag_dist.evaluation.work_units import Letter, Outcome, Outcomes, Unit

__all__ = [
    "Bars",
    "Findings",
    "Letter",
    "Lines",
    "Matrix",
    "Order",
    "Outcome",
    "Outcomes",
    "Question",
    "QuestionFields",
    "Questions",
    "Section",
    "Session",
    "System",
    "Table",
    "Text",
    "Unit",
    "open_session",
    "read_questions",
    "rows_of",
    "write_report",
]
