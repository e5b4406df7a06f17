"""Configuration section `retrieval`: defaults of a question."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from hirag_dist.config.base import ConfigSection


class MapReduceConfig(ConfigSection):
    """Answers in the modes graphrag-global and text-map-reduce, which ask about every part of the corpus."""

    max_calls: int = Field(
        256,
        ge=1,
        description="Maximum calls about parts of the corpus for one question; one that needs more is refused",
    )


class RetrievalConfig(ConfigSection):
    """Defaults of a question (§4.2 of the paper)."""

    mode: Literal["hirag", "local", "global", "bridge", "nobridge", "naive", "flat", "graphrag-local"] = Field(
        "hirag", description="Retrieval mode: the levels that are searched"
    )
    fidelity: Literal["best", "paper"] = Field(
        "best",
        description="best: the retrieval with the best measured results; paper: retrieval exactly as in the HiRAG "
        "paper, where community_level is all unless it is set",
    )
    top_n: int = Field(20, ge=1, le=1000, description="Maximum local entities (Eq. 12)")
    top_m: int = Field(10, ge=1, le=100, description="Maximum key entities of a community (Eq. 14)")
    top_c: int = Field(10, ge=1, le=100, description="Maximum communities (Eq. 13)")
    top_sources: int = Field(10, ge=0, le=100, description="Maximum chunks returned as sources")
    community_level: Annotated[str, BeforeValidator(str)] = Field(
        "leaf",
        pattern=r"^(leaf|all|\d+)$",
        description="Level of the communities. leaf: the deepest community of each entity; all: every level; a number: "
        "that level, 0 the coarsest",
    )
    context_tokens: int = Field(8000, ge=200, description="Maximum tokens of the context that the model reads")
    source_url: str | None = Field(
        None,
        pattern=r"^https?://\S+$",
        description="Address at which the files of INPUT are served, with which links to sources begin",
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
