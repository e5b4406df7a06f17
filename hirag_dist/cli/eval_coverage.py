"""`hirag-dist eval coverage`: what the bridge holds of the other levels, and the paper's measures of an index."""

from __future__ import annotations

from hirag_dist.cli._eval import evaluate
from hirag_dist.cli._eval_options import (
    EvalOptions,
    LimitOption,
    ModesOption,
    QuestionFieldOption,
    QuestionsOption,
    VariantOption,
    comma_list,
)
from hirag_dist.cli._options import IndexOption
from hirag_dist.composition.build_records import earlier_builds, last_build
from hirag_dist.evaluation import Findings, QuestionFields, Session, read_questions
from hirag_dist.evaluation.kinds.coverage import evaluate_coverage
from hirag_dist.storage.store import Store


def coverage(
    options: EvalOptions,
    index: IndexOption,
    questions: QuestionsOption,
    modes: ModesOption = "hirag",
    variant: VariantOption = None,
    limit: LimitOption = None,
    question_field: QuestionFieldOption = None,
) -> None:
    """Measure how far the bridge covers the local and global levels, and the layers, graph and cost of an index."""
    loaded = options.load()
    asked = read_questions(questions, QuestionFields(question=question_field), limit)

    async def work(session: Session) -> Findings:
        assert session.snapshot is not None
        seconds = build_seconds(Store(index), session.snapshot.manifest.snapshot_id)
        return await evaluate_coverage(session, asked, comma_list(modes), seconds)

    evaluate(options.session("coverage", index, variant), loaded, work, options.json)


def build_seconds(store: Store, snapshot_id: str) -> float | None:
    """Return how long the stages of the build took that published a snapshot, None where no record of it is left.

    Stages that an earlier build had done are in none of its seconds: of a build that was interrupted and of one that
    found finished stages it is the part of the last.
    """
    for record in (last_build(store), *earlier_builds(store)):
        if record is not None and record.get("snapshot") == snapshot_id:
            return float(sum(stage["seconds"] for stage in record["stages"]))
    return None
