"""Configuration section `retrieval`: defaults of a question."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from hirag_dist.config.base import ConfigSection
from hirag_dist.config.reports import ReportsOnDemandConfig


class MapReduceConfig(ConfigSection):
    """Answers in the modes graphrag-global and text-map-reduce, which ask about every part of the corpus."""

    max_calls: int = Field(
        256, ge=1, description="about parts of the corpus, for one question; a question that takes more is refused"
    )
    concurrency: int = Field(16, ge=1, description="of these calls at a time, for one question")
    reply_tokens: int = Field(1000, ge=50, description="of what is found in a part")
    seed: int = Field(0, ge=0, lt=1 << 63, description="shuffles what is read")


class LeanConfig(ConfigSection):
    """Defaults of a question in mode lean."""

    top_n: int = Field(10, ge=1, le=1000, description="entities of layer 0 that it begins with")
    top_sources: int = Field(5, ge=0, le=100, description="chunks at most; never more than retrieval.top_sources")
    context_tokens: int | None = Field(
        None, ge=100, description="limit of the rendered context; null: half of retrieval.context_tokens"
    )


class RetrievalConfig(ConfigSection):
    """Defaults of a question (§4.2 of the paper)."""

    mode: Literal[
        "hirag", "local", "global", "bridge", "nobridge", "naive", "flat", "graphrag-local", "lean", "auto"
    ] = Field("hirag", description="levels that are searched; auto: chosen by the question")
    top_n: int = Field(20, ge=1, le=1000, description="local entities (Eq. 12)")
    top_m: int = Field(10, ge=1, le=100, description="key entities of each community (Eq. 14)")
    top_c: int = Field(10, ge=1, le=100, description="communities at most (Eq. 13)")
    local_entities: Literal["named", "nearest"] = Field(
        "named",
        description="named: entities that the question names come first, a quarter of top_n at most, then the nearest; "
        "nearest: the nearest alone (Eq. 12)",
    )
    selection: Literal["rank", "coverage"] = Field(
        "rank",
        description="records of hirag and global; rank: the nearest entities and the first communities; coverage: of "
        "more candidates those that add most to the ones before them",
    )
    top_sources: int = Field(10, ge=0, le=100, description="chunks returned with a result")
    source_fusion: bool = Field(
        True, description="whether chunks near the question are among the starting points of ranking sources"
    )
    lexical: bool = Field(
        True, description="whether chunks with the question's words (BM25) are among them; needs source_fusion"
    )
    rerank_candidates: int = Field(
        50, ge=1, le=1000, description="chunks whose relevance the endpoint of llm.roles.rerank judges"
    )
    max_triples: int = Field(60, ge=1, le=1000, description="bridge relations at most")
    bridge_endpoints: Literal["named", "communities"] = Field(
        "named",
        description="named: where a question names several entities, the bridge joins these before the key entities of "
        "communities; communities: key entities alone (Eq. 14)",
    )
    bridge_paths: Literal["graph", "hierarchy"] = Field(
        "graph",
        description="between key entities (Eq. 15): graph: a shortest path; hierarchy: up to the lowest common summary "
        "entity and down again",
    )
    bridge_ranking: Literal["question", "plain"] = Field(
        "question", description="question: bridge relations near the question first; plain: along the paths"
    )
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
    lean: LeanConfig = LeanConfig()
    map_reduce: MapReduceConfig = MapReduceConfig()
    reports_on_demand: ReportsOnDemandConfig = ReportsOnDemandConfig()
