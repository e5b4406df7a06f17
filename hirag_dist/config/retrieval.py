"""Configuration section `retrieval`: defaults of a question."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from hirag_dist.config.base import ConfigSection


class MapReduceConfig(ConfigSection):
    """Answers in the modes graphrag-global and text-map-reduce, which ask about every part of the corpus."""

    max_calls: int = Field(
        256, ge=1, description="about parts of the corpus, for one question; a question that takes more is refused"
    )
    concurrency: int = Field(16, ge=1, description="of these calls at a time, for one question")
    reply_tokens: int = Field(1000, ge=50, description="of what is found in a part")


class RetrievalConfig(ConfigSection):
    """Defaults of a question (§4.2 of the paper)."""

    mode: Literal["hirag", "local", "global", "bridge", "nobridge", "naive", "flat", "graphrag-local"] = Field(
        "hirag", description="levels that are searched"
    )
    fidelity: Literal["best", "paper"] = Field(
        "best",
        description="best: the retrieval with the best measured results; paper: the HiRAG paper's, without our "
        "additions; community_level is then all, if it is not set",
    )
    top_n: int = Field(20, ge=1, le=1000, description="local entities (Eq. 12)")
    top_m: int = Field(10, ge=1, le=100, description="key entities of each community (Eq. 14)")
    top_c: int = Field(10, ge=1, le=100, description="communities at most (Eq. 13)")
    top_sources: int = Field(10, ge=0, le=100, description="chunks returned with a result")
    rerank_candidates: int = Field(
        50, ge=1, le=1000, description="chunks whose relevance the endpoint of llm.roles.rerank judges"
    )
    max_triples: int = Field(60, ge=1, le=1000, description="bridge relations at most")
    community_level: Annotated[str, BeforeValidator(str)] = Field(
        "leaf",
        pattern=r"^(leaf|all|\d+)$",
        description="leaf: the deepest community of each entity; all; or a level, 0 the coarsest",
    )
    context_tokens: int = Field(8000, ge=200, description="limit of the rendered context")
    filter_share: float = Field(
        1.0,
        gt=0,
        le=1,
        description="share of the sources of a summary or report that must pass a question's filter for it to be used; "
        "1: all of them",
    )
    source_url: str | None = Field(
        None,
        pattern=r"^https?://\S+$",
        description="address under which the files of INPUT are served; links to sources begin with it",
    )
    map_reduce: MapReduceConfig = MapReduceConfig()

    @model_validator(mode="before")
    @classmethod
    def _levels_of_the_paper(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("fidelity") == "paper":
            return {"community_level": "all"} | data  # Eq. 13 to the letter
        return data

    @property
    def follows_paper(self) -> bool:
        """Whether deviations from the paper are off."""
        return self.fidelity == "paper"
