"""The configuration, key for key: meaning, default and bounds. `loader` reads it from files.

Keys at the top level decide what an index holds. `llm` says who answers; `retrieval`, `vectors` and `service` say
how it is served; `execution` and `traces_endpoint` never change what is built.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SecretStr, model_validator

from hirag_dist.config.sections import (
    ConfigSection,
    ExtractionConfig,
    MetadataConfig,
    ReadingConfig,
    Url,
    is_http_url,
    long_form,
    public_url,
)
from hirag_dist.config.sections import RetrievalConfig as RetrievalConfig
from hirag_dist.config.service import ServiceConfig


class ExecutionConfig(ConfigSection):
    """Engine that builds the index; it does not change the content of the index."""

    executor: Literal["auto", "ray", "inline"] = Field(
        "auto",
        description="Engine of builds. ray: a Ray of this machine or ray_address; inline: this process; auto: inline "
        "up to 1,024 chunks, Ray above, and where workers, gpu_workers or ray_address is set",
    )
    workers: int | None = Field(None, ge=1, description="Number of workers; null: one for each core of the cluster")
    gpu_workers: int = Field(
        0,
        ge=0,
        description="Number of Ray workers with a GPU each, which run only while kernels compute; the others do the "
        "rest. 0: every worker does everything",
    )
    ray_address: Url | None = Field(
        None, description="Address of a Ray cluster; auto: a running one; null: a Ray that lives as long as the command"
    )

    @property
    def chosen(self) -> Literal["auto", "ray", "inline"]:
        """The executor; auto only where the size of the work decides."""
        return (
            "ray"
            if self.executor == "auto" and (self.workers or self.gpu_workers or self.ray_address)
            else self.executor
        )


class PriceConfig(ConfigSection):
    """Price in US dollars a million tokens. Without `input` and `output` it is not known."""

    input: float | None = Field(None, ge=0, description="Dollars a million input tokens; 0 for a free model")
    cached: float | None = Field(
        None, ge=0, description="Dollars a million input tokens that the provider had cached; null: the price of input"
    )
    output: float | None = Field(
        None, ge=0, description="Dollars a million output tokens; null: 0 where input is given, else not known"
    )


ENTITY_TYPES = ("person", "organization", "location", "event", "work", "technology", "product", "concept")
META_TYPES = ("organization", "person", "location", "event", "technology", "product", "concept", "field", "process")


class EndpointConfig(ConfigSection):
    """One model at an address, or a built-in one."""

    kind: Literal["openai", "rerank", "extractive", "recorded", "onnx", "auto", "hashing", "minilm"] = Field(
        "openai",
        description="Kind of the endpoint. openai: any server that speaks the OpenAI API; rerank: a server with "
        "/rerank; onnx: an embedder or reranker of this process, whose weights are in path; the others are built in. "
        "auto: the embedder of the index; for a new index minilm where its weights "
        "are installed, else hashing",
    )
    base_url: Url | None = Field(None, description="Address of the API, such as https://api.example.com/v1")
    api_key: SecretStr | None = Field(None, description="Key of the API, best as ${NAME} from the environment")
    api_key_file: str | None = Field(None, description="File that holds the key, in place of api_key")
    key_header: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$",
        description="Header that carries the key, such as api-key; null: Authorization, as a bearer token",
    )
    model: str | None = Field(None, description="Name of the model at the endpoint")
    rpm: float | None = Field(None, gt=0, description="Maximum requests a minute; null: found by trying")
    tpm: float | None = Field(
        None, gt=0, description="Maximum tokens a minute, input and output together; null: found by trying"
    )
    max_concurrent: int | None = Field(
        None, ge=1, description="Maximum concurrent calls; null: found by trying, beginning with a few"
    )
    price: PriceConfig = PriceConfig()
    silence_timeout_s: float = Field(60.0, gt=0, description="Maximum seconds between two tokens of a reply")
    first_token_timeout_s: float = Field(
        600.0,
        gt=0,
        description="Maximum seconds until the first token of a reply, or until an answer that is no stream; the "
        "server's queue and the reading of a long prompt are part of it",
    )
    max_reply_tokens: int | None = Field(
        None, ge=1, description="Maximum tokens of any reply; null: the limit of its task alone"
    )
    context_window: int | None = Field(
        None,
        ge=512,
        description="Maximum tokens of a prompt and its reply together; all that the model reads is cut to it. null: "
        "the server is asked, as llama.cpp, vLLM and Ollama tell it",
    )
    temperature: float | None = Field(0.0, ge=0, le=2, description="Temperature of sampling; null: not sent")
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = Field(
        "max_tokens", description="Name of the field that carries the maximum tokens of a reply"
    )
    output: Literal["auto", "json_schema", "delimited"] = Field(
        "auto",
        description="Form of extracted records; auto: the endpoint is asked once whether it has structured outputs",
    )
    extra_body: dict[str, Any] = Field(
        default_factory=dict, description="Fields that are added to the body of every request as they are"
    )
    extra_query: dict[str, str] = Field(
        default_factory=dict, description="Parameters of the query of every request, such as api-version"
    )
    dim: int | None = Field(
        None, ge=1, description="Dimensions of the vectors of an embedding endpoint; of kind onnx, the first of them"
    )
    prefixes: dict[Literal["query", "passage"], str] = Field(
        default_factory=dict,
        description="Texts that an embedding endpoint reads before questions and before passages, such as "
        "{query: 'query: ', passage: 'passage: '}",
    )
    batch_size: int = Field(128, ge=1, description="Maximum texts of an embedding request")
    path: str | None = Field(
        None,
        description="JSONL file with the replies of an endpoint of kind recorded, or a folder of such files; weights "
        "(.onnx) of an endpoint of kind onnx, with tokenizer.json beside them or in the folder above",
    )
    fallback: str | None = Field(
        None, description="Name of the endpoint that is asked where an endpoint of kind recorded has no reply"
    )

    @model_validator(mode="after")
    def _complete(self) -> EndpointConfig:
        if self.is_remote and not (self.base_url and self.model):
            raise ValueError(f"base_url and model are required for an endpoint of kind {self.kind}")
        if self.base_url and not is_http_url(self.base_url):
            raise ValueError(f"base_url {public_url(self.base_url)!r} must look like https://host/v1")
        if self.kind in ("recorded", "onnx") and not self.path:
            raise ValueError(f"path is required for an endpoint of kind {self.kind}")
        return self

    @property
    def is_remote(self) -> bool:
        """True if it is an address, not a part of this program."""
        return self.kind in ("openai", "rerank")

    @property
    def prices(self) -> tuple[float, float, float] | None:
        """US dollars a million tokens of input, cached input and output; None: not known. Built-in models are free."""
        price = self.price
        if price.input is None and price.output is None:
            return None if self.is_remote else (0.0, 0.0, 0.0)
        uncached = price.input or 0.0
        return uncached, uncached if price.cached is None else price.cached, price.output or 0.0


class RoleShare(ConfigSection):
    """One of several endpoints of a role."""

    endpoint: str = Field(description="Name of the endpoint")
    weight: float = Field(1.0, gt=0, description="Share of the calls, relative to the weights of the others")


RoleTarget = str | tuple[RoleShare, ...]


def shares(target: RoleTarget) -> list[tuple[str, float]]:
    """Return the endpoints of a role, each with its weight."""
    if isinstance(target, str):
        return [(target, 1.0)]
    return [(share.endpoint, share.weight) for share in target]


class RolesConfig(ConfigSection):
    """Endpoints by role: a name, or a list of {endpoint, weight}, from which the hash of the request chooses."""

    extract: RoleTarget = Field("builtin", description="Endpoint for entities, relations and claims of chunks")
    summarise: RoleTarget = Field(
        "builtin", description="Endpoint for summaries of clusters, long descriptions and questions of resolution"
    )
    report: RoleTarget = Field("builtin", description="Endpoint for reports of communities")
    answer: RoleTarget = Field("builtin", description="Endpoint for answers to questions")
    judge: RoleTarget = Field("builtin", description="Endpoint for evaluation")
    embed: str = Field("builtin-embedder", description="Endpoint for vectors; one only")
    rerank: str | None = Field(
        None, description="Endpoint for the relevance of chunks to a question; null: chunks keep their rank"
    )


_CHAT_KINDS = ("openai", "extractive", "recorded")
_KINDS = {"embed": ("openai", "onnx", "auto", "hashing", "minilm"), "rerank": ("rerank", "onnx")}


class LlmConfig(ConfigSection):
    """Endpoints of models, their roles, and how long they are waited for."""

    endpoints: dict[str, EndpointConfig] = Field(default_factory=dict, description="Endpoints by name")
    roles: RolesConfig = RolesConfig()
    attempts: int = Field(
        3, ge=1, le=10, description="Maximum attempts at a unit whose reply is refused, before it is a dead letter"
    )
    outage_timeout_s: float = Field(
        600.0, ge=0, description="Seconds without an answer of any endpoint after which the run fails"
    )

    @model_validator(mode="before")
    @classmethod
    def _builtin(cls, data: Any) -> Any:
        if isinstance(data, dict):
            own = dict(data.get("endpoints") or {})
            own.setdefault("builtin", {"kind": "extractive"})
            own.setdefault("builtin-embedder", {"kind": "auto"})
            data = {**data, "endpoints": own}
        return data

    @model_validator(mode="after")
    def _known(self) -> LlmConfig:
        for role, target in self.roles:
            if target is None:
                continue
            for name, _ in shares(target):
                if name not in self.endpoints:
                    defined = ", ".join(self.endpoints)
                    raise ValueError(f"Invalid llm.roles.{role}: {name!r} is not defined; defined are: {defined}")
                kind = self.endpoints[name].kind
                if kind not in _KINDS.get(role, _CHAT_KINDS):
                    raise ValueError(f"Invalid llm.roles.{role}: {name!r} is of kind {kind}, which cannot do it")
        for name, endpoint in self.endpoints.items():
            if endpoint.fallback and endpoint.fallback not in self.endpoints:
                raise ValueError(f"Invalid llm.endpoints.{name}.fallback: {endpoint.fallback!r} is not defined")
        return self


MEMBER_CHARS = 480


class ClusteringConfig(ConfigSection):
    """Gaussian mixtures of a layer (Eq. 8)."""

    reduction: Literal["pca", "umap"] = Field(
        "pca",
        description="How vectors are reduced; umap, best with reduce_dims: 10, needs a GPU and the extra umap-cu12 or "
        "umap-cu13, and takes 1,000,000 entities a layer at most",
    )
    reduce_dims: int = Field(64, ge=1, description="Dimensions to which vectors are reduced before they are clustered")
    target_size: int = Field(
        20,
        ge=2,
        description="Members that a cluster should have, about; a cluster with more than twice as many is split again",
    )
    threshold: float = Field(0.1, gt=0, lt=1, description="Minimum responsibility of a cluster for its members")
    member_chars: int = Field(
        MEMBER_CHARS,
        ge=20,
        description="Maximum characters of a member's description in the prompt of a summary",
    )

    @property
    def max_size(self) -> int:
        """Maximum members of a cluster, which one prompt shows; a larger cluster is split again."""
        return 2 * self.target_size


_Decisions = tuple[tuple[str, str, bool], ...]  # name, other name, and whether both are one entity's


def _read_aliases(value: Any) -> Any:
    """Return the rows of a CSV file of decisions, or what is given instead of its path."""
    if not isinstance(value, str):
        return value
    try:
        with Path(value).open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"cannot read {value}: {error}") from None
    decisions = []
    said: dict[frozenset[str], str] = {}  # the names of a pair → yes or no
    for number, row in enumerate(rows, 2):
        name, other, same = ((row.get(column) or "").strip() for column in ("name", "other", "same"))
        if not name or not other or same.casefold() not in ("yes", "no"):
            raise ValueError(f"{value}, line {number}: expected values of name and other, and yes or no in same")
        if said.setdefault(frozenset((name.casefold(), other.casefold())), same.casefold()) != same.casefold():
            raise ValueError(f"{value}, line {number}: an earlier line decides otherwise about {name} and {other}")
        decisions.append((name, other, same.casefold() == "yes"))
    return decisions


class ResolutionConfig(ConfigSection):
    """Names of one entity of layer 0, joined by rules where they are certain, and by the summarise model in doubt."""

    enabled: bool = Field(False, description="Join the names of one entity before clustering")
    aliases: Annotated[_Decisions, BeforeValidator(_read_aliases, json_schema_input_type=str | _Decisions)] = Field(
        (),
        description="CSV file of your own decisions, with the columns name, other and same (yes or no): they hold "
        "whatever the rules and the model say; or the rows themselves",
    )


class CommunitiesConfig(ConfigSection):
    """Hierarchical Leiden over all layers, and reports."""

    max_size: int = Field(150, ge=2, description="Maximum entities of a community; a larger one is split if it can be")
    resolution: float = Field(
        1.0, gt=0, le=1e6, description="Resolution of modularity; a larger one gives more and smaller communities"
    )
    report_share: float = Field(
        1.0,
        ge=0,
        le=1,
        description="Share of the communities whose reports a build writes, the most prominent first; `refresh "
        "--reports` writes the others. A community of fewer than four entities always has a report",
    )
    report_tokens: int = Field(4000, ge=200, description="Maximum tokens of the material in the prompt of a report")


class UpdateConfig(ConfigSection):
    """Updates of an index: their cost, and how stale a text may get. Nothing here decides the content of a text."""

    max_ratio: float = Field(
        3.0,
        ge=0,
        description="Maximum cost of an update as a multiple of the extraction of the changed documents; without "
        "effect where the built-in model writes, unless it is set",
    )
    staleness: float = Field(
        0.2,
        ge=0,
        le=1,
        description="Share of the material of a summary or report that may change before it is written again; 0: none",
    )


class VectorsConfig(ConfigSection):
    """Search of the entity vectors."""

    backend: Literal["auto", "milvus-lite", "milvus", "memory"] = Field(
        "auto",
        description="Where vectors are searched; auto: milvus where uri is set, else memory, which is faster than "
        "Milvus Lite",
    )
    uri: Url | None = Field(None, description="Address of a Milvus server")
    token: SecretStr | None = Field(None, description="Token of the Milvus server, such as user:password")

    @property
    def chosen(self) -> Literal["milvus-lite", "milvus", "memory"]:
        """The backend; of `auto` the one that it stands for."""
        if self.backend == "auto":
            return "memory" if self.uri is None else "milvus"
        return self.backend


def _meta_types(given: Any) -> Any:
    if given == "generate":
        return given
    if not isinstance(given, list | tuple) or not given or not all(isinstance(kind, str) for kind in given):
        raise ValueError("Expected a list of types, such as [person, event], or the word generate")
    kinds = [kind.strip() for kind in given]
    if not all(kinds) or len(set(kinds)) < len(kinds):
        raise ValueError("Expected every type once, and none empty")
    return tuple(kinds)


class Config(ConfigSection):
    """The whole configuration."""

    seed: int = Field(0, ge=0, lt=1 << 63, description="Seed of all random algorithms")
    reading: ReadingConfig = ReadingConfig()
    metadata: MetadataConfig = MetadataConfig()
    chunking: Literal["sentences", "tokens", "none"] = Field(
        "sentences",
        description="Where chunks end. sentences: at ends of sentences; tokens: at fixed positions; none: every "
        "document of INPUT is a chunk",
    )
    chunk_tokens: int = Field(1200, ge=16, description="Maximum tokens of a chunk")
    chunk_overlap_tokens: int = Field(100, ge=0, description="Tokens that consecutive chunks share")
    tokenizer: Literal["o200k_base", "cl100k_base"] = Field(
        "o200k_base", description="Tokenizer by which chunks, contexts and estimates are counted"
    )
    extraction: Annotated[
        ExtractionConfig,
        BeforeValidator(long_form, json_schema_input_type=ExtractionConfig | Literal["joint", "two_step"]),
    ] = ExtractionConfig()
    gleaning_rounds: int = Field(0, ge=0, le=5, description="Further passes of extraction over each chunk")
    entity_types: tuple[str, ...] = Field(ENTITY_TYPES, min_length=1, description="Types that extracted entities have")
    claims: bool = Field(
        False, description="Extract claims about the entities too, which takes one more call for each chunk"
    )
    meta_types: Annotated[tuple[str, ...] | Literal["generate"], BeforeValidator(_meta_types)] = Field(
        META_TYPES,
        description="General types that guide the entities of summaries; generate: the summarise model proposes them",
    )
    prompts: str | None = Field(
        None,
        description="Folder with NAME.md, which replaces a prompt, and NAME.examples.md, which adds examples to it",
    )
    description_tokens: int = Field(
        400, ge=20, description="Maximum tokens of a merged description; a longer one is summarised"
    )
    pack_tokens: int = Field(
        12_000,
        ge=0,
        description="Approximate tokens of the clusters, communities or questions of resolution that share one call; "
        "0: one a call",
    )
    reply_language: Literal["text", "any"] = Field(
        "text",
        description="Language of replies. text: a reply in another language than its text is refused; any: taken",
    )
    max_reject_ratio: float = Field(
        0.2,
        ge=0,
        le=1,
        description="Share of dead letters above which a stage with at least three of them fails; 0: any dead letter "
        "fails it",
    )
    stop: Literal["compression", "paper"] = Field(
        "compression",
        description="Rule that ends the hierarchy. compression: clusters no longer group; paper: Algorithm 1",
    )
    min_change_rate: float = Field(
        0.05,
        ge=0,
        description="Minimum change of the cluster sparsity for a further layer (ε of Algorithm 1; stop: paper)",
    )
    max_layers: int = Field(8, ge=0, description="Maximum summary layers; 0: the extracted graph alone")
    resolution: ResolutionConfig = ResolutionConfig()
    clustering: ClusteringConfig = ClusteringConfig()
    communities: CommunitiesConfig = CommunitiesConfig()
    update: UpdateConfig = UpdateConfig()
    kernels: Literal["auto", "cpu", "gpu", "cupy"] = Field(
        "auto",
        description="Where clusters and communities are computed. cupy: on a GPU, communities on the CPU; gpu: "
        "communities by cuGraph too, with lower modularity; auto: as the index was built, for a new one cupy where "
        "there is a GPU, else cpu",
    )
    llm: LlmConfig = Field(default_factory=lambda: LlmConfig.model_validate({}))
    retrieval: RetrievalConfig = RetrievalConfig()
    vectors: VectorsConfig = VectorsConfig()
    service: ServiceConfig = ServiceConfig()
    execution: ExecutionConfig = ExecutionConfig()
    traces_endpoint: Url | None = Field(
        None,
        description="OTLP endpoint (HTTP) for traces of requests and builds, such as http://collector:4318/v1/traces",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Config:
        if self.chunk_overlap_tokens >= self.chunk_tokens:
            raise ValueError("Invalid chunk_overlap_tokens: must be below chunk_tokens")
        target = self.llm.roles.extract
        extractors = [name for name, _ in shares(target)]
        if self.claims and any(self.llm.endpoints[name].kind == "extractive" for name in extractors):
            raise ValueError(
                "Invalid claims: true needs a language model in llm.roles.extract; the built-in one finds none"
            )
        return self
