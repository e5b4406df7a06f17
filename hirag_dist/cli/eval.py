"""`hirag-dist eval KIND`: evaluations on the user's own questions. A kind is a module `cli/eval_KIND.py`."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Add the group with its kinds."""
    from hirag_dist.cli import eval_claims, eval_coverage, eval_judge, eval_qa, eval_questions, eval_retrieval

    group = typer.Typer(
        help="Evaluate on your own questions: resumable, through pool and ledger, with a report.", no_args_is_help=True
    )
    for kind in (eval_retrieval, eval_qa, eval_judge, eval_claims, eval_questions, eval_coverage):
        kind.register(group)
    app.add_typer(group, name="eval")
