"""`hirag-dist eval questions`: sensemaking questions on a corpus, for the other kinds to ask."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hirag_dist.cli._eval import evaluate
from hirag_dist.cli._eval_options import (
    EvalOptions,
)
from hirag_dist.cli._options import OptionalIndexOption
from hirag_dist.errors import ConfigError
from hirag_dist.evaluation import Findings, Session
from hirag_dist.evaluation.kinds.judge import ROLE, require_llm
from hirag_dist.evaluation.kinds.questions import (
    GenerationOptions,
    describe_corpus,
    make_questions,
    question_findings,
)
from hirag_dist.readers import clean_text


def questions(
    options: EvalOptions,
    index: OptionalIndexOption = None,
    description: Annotated[
        str | None,
        typer.Option(metavar="TEXT|@FILE", help="What the corpus is about. [the index's broadest reports]"),
    ] = None,
    personas: Annotated[int, typer.Option(min=1, max=100, help="Users of the corpus.")] = 5,
    tasks: Annotated[int, typer.Option(min=1, max=100, help="Tasks of each user.")] = 5,
    per_task: Annotated[int, typer.Option("--questions", min=1, max=100, help="Questions of each task.")] = 5,
) -> None:
    """Make questions that need an understanding of the whole corpus."""
    loaded = options.load()
    told = None if description is None else read_description(description)
    if told is None and index is None:
        raise ConfigError("say what the corpus is about: --description TEXT or @FILE, or --index URI")
    require_llm("questions", {ROLE: loaded.llm.roles.judge}, loaded)
    wanted = GenerationOptions(personas, tasks, per_task)

    async def work(session: Session) -> Findings:
        about = told
        if about is None and session.snapshot is not None:
            about = describe_corpus(session.snapshot, session.count_tokens)
        assert about is not None
        return question_findings(session, await make_questions(session, about, wanted), about)

    evaluate(options.session("questions", index), loaded, work, options.json)


def read_description(given: str) -> str:
    """Return a description: the text, or that of a file where it begins with @.

    Raises:
        ConfigError: the file cannot be read, or there is no text.
    """
    text = given
    if given.startswith("@"):
        try:
            text = Path(given[1:]).read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"--description: cannot read {given[1:]}: {error}") from None
    text = clean_text(text).strip()
    if not text:
        raise ConfigError("--description is empty; say in a few sentences what the corpus is about")
    return text
