"""`hirag-dist eval KIND`: evaluations on the user's own questions. A kind is a module `cli/eval_KIND.py`."""

from __future__ import annotations

import typer

from hirag_dist.cli._groups import flattened
from hirag_dist.cli.eval_claims import claims
from hirag_dist.cli.eval_coverage import coverage
from hirag_dist.cli.eval_judge import judge
from hirag_dist.cli.eval_qa import qa
from hirag_dist.cli.eval_questions import questions
from hirag_dist.cli.eval_retrieval import retrieval

eval = typer.Typer(  # noqa: A001 (the command)
    help="Evaluate on your own questions: resumable, through pool and ledger, with a report.", no_args_is_help=True
)
for kind in (retrieval, qa, judge, claims, questions, coverage):
    eval.command(kind.__name__)(flattened(kind))
