"""Configuration section `extraction`: how entities and relations are found in chunks, and what that may cost."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from hirag_dist.config.base import ConfigSection

Method = Literal["llm", "nlp", "verify", "skeleton"]
METHODS: tuple[Method, ...] = ("llm", "verify", "skeleton", "nlp")  # by cost, the dearest first


class NlpConfig(ConfigSection):
    """Extraction without a language model, used by the methods nlp, verify and skeleton."""

    finder: Literal["builtin", "gliner"] = Field(
        "builtin",
        description="builtin: names and noun phrases by rules; gliner: a GLiNER model, which needs the extra `gliner`",
    )
    model: str | None = Field(
        None, description="gliner: folder of the model, or its name at Hugging Face, which is then fetched"
    )
    onnx_file: str | None = Field(
        None, description="gliner: file of the model's folder that onnxruntime runs; null: torch runs the model"
    )
    threshold: float = Field(0.5, gt=0, lt=1, description="gliner: score from which a span is an entity")
    device: Literal["cpu", "gpu"] = Field(
        "cpu", description="gliner: what computes; gpu: on a cluster, the workers that have one"
    )

    @model_validator(mode="after")
    def _complete(self) -> NlpConfig:
        if self.finder == "gliner" and not self.model:
            raise ValueError("finder: gliner needs model, the folder or the name of a GLiNER model")
        return self


class VerifyConfig(ConfigSection):
    """Method verify: what one call checks."""

    text: Literal["sentences", "whole"] = Field(
        "sentences",
        description="of a chunk that the model sees. sentences: those that the proposed descriptions quote; whole: all",
    )
    pack_tokens: int = Field(8000, ge=0, description="of chunks that share one call, about; 0: one chunk a call")


class SkeletonConfig(ConfigSection):
    """Method skeleton: what the extract model reads."""

    share: float = Field(
        0.3,
        gt=0,
        lt=1,
        description="of the text, and in a build of the tokens of its extraction: the most central chunks; nlp reads "
        "the rest",
    )


class ExtractionConfig(ConfigSection):
    """Entities and relations of chunks. `extraction: joint` is short for `extraction: {calls: joint}`."""

    method: Method = Field(
        "llm",
        description="llm: the extract model reads every chunk; nlp: no call; verify: one short call checks what "
        "nlp proposes; skeleton: the extract model reads the central chunks, nlp the others",
    )
    calls: Literal["joint", "two_step"] = Field(
        "joint",
        description="of the extract model for a chunk. joint: one; two_step: the entity call and the relation call of "
        "the paper",
    )
    nlp: NlpConfig = NlpConfig()
    verify: VerifyConfig = VerifyConfig()
    skeleton: SkeletonConfig = SkeletonConfig()

    def content(self) -> str | dict[str, Any]:
        """Return the settings that decide the extracted records under this method, as JSON.

        For `llm` it is the number of calls alone, which is what former versions recorded.
        """
        if self.method == "llm":
            return self.calls
        found: dict[str, Any] = {"method": self.method, "nlp": _used(self.nlp)}
        if self.method == "verify":
            return found | {"verify": self.verify.model_dump(mode="json")}
        if self.method == "skeleton":
            return found | {"calls": self.calls, "skeleton": self.skeleton.model_dump(mode="json")}
        return found


def _used(nlp: NlpConfig) -> dict[str, Any]:
    """Return the settings of the finder, without the device, which does not decide what is found."""
    if nlp.finder == "builtin":
        return {"finder": nlp.finder}
    return nlp.model_dump(mode="json", exclude={"device"})


def long_form(given: Any) -> Any:
    """Return the section that the short form `joint` or `two_step` stands for.

    >>> long_form("two_step")
    {'calls': 'two_step'}
    """
    return {"calls": given} if isinstance(given, str) else given
