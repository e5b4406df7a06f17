"""Values that every part of one build shares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hirag_dist.config.model import Config
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.execution.dataset import DatasetStore
from hirag_dist.execution.runner import StageRunner


@dataclass(frozen=True)
class ResolvedModels:
    """Facts about models and kernels that stage keys depend on, resolved before the first stage.

    Attributes:
        structured: role of a build → whether JSON schemas are requested.
        models: role → the models that may answer, each with everything else that decides its replies.
        embedder, dim: what the vectors depend on (`llm.embedding.embedder_identity`), and their size.
        kernels: name of the numerical backend; empty if a worker with a GPU has to be asked (`gpu_kernels`), which
            happens before the first stage that needs one.
        embedder_name: of the embedder alone, for the manifest; empty: `embedder` is it.
        windows: Role → tokens of the smallest context window of its models, as the index was begun with; without the
            roles whose windows are not known.
    """

    structured: Mapping[str, bool]
    models: Mapping[str, tuple[str, ...]]
    embedder: str
    dim: int
    kernels: str
    embedder_name: str = ""
    windows: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class BuildContext:
    """Runner, configuration, prompts and models of one build."""

    runner: StageRunner
    config: Config
    prompts: Prompts
    models: ResolvedModels

    @property
    def datasets(self) -> DatasetStore:
        """Tables of the index."""
        return self.runner.datasets

    @property
    def same_language(self) -> bool:
        """True if replies are checked for the language of the text."""
        return self.config.reply_language == "text"
