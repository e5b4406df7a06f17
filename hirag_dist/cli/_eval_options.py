"""Options of the kinds of `hirag-dist eval`: those of all kinds as one value, and those of several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import typer

from hirag_dist.cli._options import (
    ConfigOptions,
    FreshOption,
    MaxTokensOption,
    MaxUsdOption,
    SnapshotOption,
    configuration,
)
from hirag_dist.config.model import RetrievalConfig, RoleTarget
from hirag_dist.errors import ConfigError
from hirag_dist.evaluation import SessionOptions

OutOption = Annotated[
    str, typer.Option("--out", "-o", metavar="DIR", help="Folder of the evaluation; run again with it to go on.")
]
QuestionsOption = Annotated[
    str, typer.Option("--questions", "-q", metavar="FILE", help="JSONL, JSON, CSV or Parquet with a question a record.")
]
ModesOption = Annotated[str, typer.Option("--modes", metavar="MODE,…", help="Modes to compare, by commas.")]
VariantOption = Annotated[
    list[str] | None,
    typer.Option(
        "--variant",
        metavar="NAME:KEY=VALUE,…",
        help="Compare other settings of retrieval too, as in wide:top_n=40,top_c=20. Several: one option each.",
    ),
]
LimitOption = Annotated[int | None, typer.Option(min=1, help="The first so many questions only.")]
QuestionFieldOption = Annotated[str | None, typer.Option(help="Field with the question.")]
IdFieldOption = Annotated[str | None, typer.Option("--question-id-field", help="Field with the question's id.")]
TypeFieldOption = Annotated[
    str | None, typer.Option(help="Field with the question's type; results are shown by type too.")
]
AnswerFieldOption = Annotated[str | None, typer.Option(help="Field with the gold answer, or answers.")]
GoldFieldOption = Annotated[str | None, typer.Option(help="Field with the ids of the records that hold the evidence.")]
AnswersOption = Annotated[
    list[str] | None,
    typer.Option("--answers", "-a", metavar="[NAME=]FILE", help="Recorded answers; one option for each file."),
]
JudgeOption = Annotated[
    str | None, typer.Option("--judge", metavar="ENDPOINT", help="The endpoint that is asked. [llm.roles.judge]")
]
AskedQuestionsOption = Annotated[
    str | None,
    typer.Option("--questions", "-q", metavar="FILE", help="JSONL, JSON, CSV or Parquet with a question a record."),
]
AskedModesOption = Annotated[
    str | None, typer.Option("--modes", metavar="MODE,…", help="Modes of the index that answer, by commas.")
]


@dataclass(frozen=True, kw_only=True)
class EvalOptions(ConfigOptions):
    """Options of every kind, as they were given."""

    out: OutOption
    snapshot: SnapshotOption = None
    max_usd: MaxUsdOption = None
    max_tokens: MaxTokensOption = None
    fresh: FreshOption = False

    def session(
        self,
        kind: str,
        index: str | None,
        variants: list[str] | None = None,
        roles: Mapping[str, RoleTarget] | None = None,
    ) -> SessionOptions:
        """Return the options of a run of a kind.

        Args:
            kind: the name of the kind.
            index: the index to ask; None where answers are recorded.
            variants: values of --variant.
            roles: role → endpoint, in addition to those of the configuration.
        """
        settings = self.variants(variants)
        limits = (self.max_usd, self.max_tokens)
        return SessionOptions(kind, self.out, index, self.snapshot, settings, roles or {}, *limits, self.fresh)

    def variants(self, given: list[str] | None) -> dict[str, RetrievalConfig]:
        """Return the values of --variant: name → settings of retrieval.

        Raises:
            ConfigError: no NAME:KEY=VALUE, a name given twice, an unknown key of retrieval, a value out of bounds.
        """
        variants: dict[str, RetrievalConfig] = {}
        for text in given or []:
            name, colon, pairs = text.partition(":")
            name = name.strip()
            changes = [pair.strip() for pair in pairs.split(",") if pair.strip()]
            if not colon or not name or not changes or not all("=" in change for change in changes):
                raise ConfigError(f"--variant takes NAME:KEY=VALUE,…, not {text!r}")
            if name in variants:
                raise ConfigError(f"--variant {name} is given twice")
            own = [f"retrieval.{change.removeprefix('retrieval.')}" for change in changes]
            self.load()  # an error in these settings is not the variant's
            try:
                variants[name] = configuration(self.config, [*(self.settings or []), *own]).config.retrieval
            except ConfigError as error:
                raise ConfigError(f"--variant {name}: {error}") from None
        return variants


def comma_list(text: str) -> list[str]:
    """Return the items of an option's value, each once.

    >>> comma_list("hirag, naive,hirag")
    ['hirag', 'naive']
    """
    return list(dict.fromkeys(item.strip() for item in text.split(",") if item.strip()))
