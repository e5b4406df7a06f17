"""`hirag-dist eval coverage`: what the bridge holds of the other levels, and the paper's measures of an index."""

from __future__ import annotations

import typer

from hirag_dist.cli._eval import (
    FreshOption,
    LimitOption,
    ModesOption,
    OutOption,
    QuestionFieldOption,
    QuestionsOption,
    VariantOption,
    comma_list,
    evaluate,
    read_variants,
)
from hirag_dist.cli._options import (
    ConfigOption,
    IndexOption,
    JsonOption,
    MaxTokensOption,
    MaxUsdOption,
    SetOption,
    SnapshotOption,
    configuration,
)
from hirag_dist.cli._output import use_json
from hirag_dist.composition.build_records import earlier_builds, last_build
from hirag_dist.evaluation import Findings, QuestionFields, Session, SessionOptions, read_questions
from hirag_dist.evaluation.coverage import evaluate_coverage
from hirag_dist.storage.store import Store


def register(group: typer.Typer) -> None:
    """Add the kind."""
    group.command("coverage")(coverage)


def coverage(
    index: IndexOption,
    questions: QuestionsOption,
    out: OutOption,
    modes: ModesOption = "hirag",
    variant: VariantOption = None,
    limit: LimitOption = None,
    question_field: QuestionFieldOption = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    snapshot: SnapshotOption = None,
    max_usd: MaxUsdOption = None,
    max_tokens: MaxTokensOption = None,
    fresh: FreshOption = False,
    json: JsonOption = False,
) -> None:
    """Measure how far the bridge covers the local and global levels, and the layers, graph and cost of an index."""
    use_json(json)
    loaded = configuration(config, settings).config
    asked = read_questions(questions, QuestionFields(question=question_field), limit)

    async def work(session: Session) -> Findings:
        assert session.snapshot is not None
        seconds = build_seconds(Store(index), session.snapshot.manifest.snapshot_id)
        return await evaluate_coverage(session, asked, comma_list(modes), seconds)

    variants = read_variants(variant, config, settings)
    evaluate(
        SessionOptions("coverage", out, index, snapshot, variants, {}, max_usd, max_tokens, fresh), loaded, work, json
    )


def build_seconds(store: Store, snapshot_id: str) -> float | None:
    """Return how long the stages of the build took that published a snapshot, None where no record of it is left.

    Stages that an earlier build had done are in none of its seconds: of a build that was interrupted and of one that
    found finished stages it is the part of the last.
    """
    for record in (last_build(store), *earlier_builds(store)):
        if record is not None and record.get("snapshot") == snapshot_id:
            return float(sum(stage["seconds"] for stage in record["stages"]))
    return None
