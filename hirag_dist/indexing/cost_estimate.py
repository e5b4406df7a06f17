"""Estimate of the cost of an index before any call: documents and chunks are counted, the rest is estimated.

The ratios were measured with the built-in model on two corpora, the sample corpus (60 chunks) and Mix (576 chunks,
644,008 tokens), where the tokens of every large stage came out within a quarter and its calls within a third. A real
model finds more or fewer entities in a text of another kind and writes longer or shorter, so the estimate is good to
about a factor of two.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from tiktoken import Encoding

from hirag_dist.config.model import META_TYPES, Config, EndpointConfig, RoleTarget
from hirag_dist.core.entities.claims import claims_request
from hirag_dist.core.entities.merging import CHARS_PER_TOKEN
from hirag_dist.core.entities.resolution.candidate_pairs import LLM
from hirag_dist.core.prompts.templates import (
    Prompts,
    describe_request,
    meta_types_request,
    report_request,
    same_entity_request,
    summary_request,
)
from hirag_dist.core.text.chunking import chunk_spans
from hirag_dist.core.text.ids import chunk_id, document_id, text_key
from hirag_dist.core.text.tokens import counter, encoding
from hirag_dist.indexing.extraction_estimate import MIN_OUT, extraction_calls
from hirag_dist.indexing.inputs import read_options
from hirag_dist.indexing.report_estimate import estimate_reports
from hirag_dist.indexing.stages.meta_types import EXCERPT_CHARS, N_EXCERPTS
from hirag_dist.indexing.summary_estimate import estimate_summaries
from hirag_dist.llm.usage import dollars, total_cost
from hirag_dist.readers import Document, find_inputs, missing_packages, read_source
from hirag_dist.types.notebook import table_html

logger = logging.getLogger(__name__)
EXTRACT = "extract"  # stage of the calls that find entities and relations
ENTITIES_PER_TOKEN = 0.0133  # distinct, of layer 0
CLAIMS_OUT_PER_TOKEN = 0.8  # of the text: 0.55 and 1.01 in two recorded GraphRAG indexes
CLAIM_NAMES_PER_TOKEN = 0.06  # names of entities shown, in the same two
DESCRIBED_SHARE = 0.0025  # entities whose descriptions grow past the limit
DESCRIBE_OUT = 240
QUESTIONS_PER_ENTITY = 0.03  # pairs that entity resolution asks about; 0.01 to 0.09 in graphs of real models
QUESTION_IN, QUESTION_OUT = 180, 25
SUMMARIES_PER_CALL, REPORTS_PER_CALL = 5.7, 4.8  # units that share one call, with the tokens of a pack below
SUMMARY_PACK_TOKENS, REPORT_PACK_TOKENS = 8000, 12000
TOKENS_PER_ENTITY = 60  # embedded
UNKNOWN_CONCURRENCY = 32  # calls at a time where the configuration leaves it to be found
SPEED = "speed"  # bound of a stage at an endpoint whose speed is known
NO_SPEEDS: Mapping[str, float] = {}
FIRST_TOKEN_S, S_PER_TOKEN = 1.0, 1 / 60  # the assumed latency of a call


@dataclass(frozen=True)
class StageEstimate:
    """One stage at one endpoint: expected calls, tokens, cost, and the least time that the limits allow.

    Attributes:
        cost_usd: US dollars; None where the endpoint's price is not known.
        seconds: max(calls / rpm, tokens / tpm, calls × latency / max_concurrent); 0 for built-in models.
        bound: which of these it is: rpm, tpm, concurrency or speed; empty for built-in models.
        latency_s: what a call is assumed to take.
    """

    stage: str
    endpoint: str
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    seconds: float
    bound: str = ""
    latency_s: float = 0.0


@dataclass(frozen=True, repr=False)
class CostEstimate:
    """Estimate of a whole build.

    Attributes:
        unreadable: (name, reason) of what could not be read.
        stages: one for each stage and endpoint of its role. Replies that an index's ledger already holds are not
            known here: they cost nothing again.
        seconds: the stages' least times one after the other, the endpoints of one stage side by side.
        methods: the same build by each method of extraction.
        windows: Role → tokens of its models' context window, to which the sizes are cut.
        speeds: Endpoint → tokens a second of its replies that the times rest on.
        missing_reports, missing_report_tokens: reports left out, and what writing them all would take.
    """

    documents: int
    duplicates: int
    chunks: int
    tokens: int
    unreadable: tuple[tuple[str, str], ...]
    stages: tuple[StageEstimate, ...]
    seconds: float
    missing_reports: int = 0
    missing_report_tokens: int = 0
    windows: Mapping[str, int] = field(default_factory=dict)
    speeds: Mapping[str, float] = field(default_factory=dict)

    @property
    def calls(self) -> int:
        """Calls of all stages."""
        return sum(stage.calls for stage in self.stages)

    @property
    def cost_usd(self) -> float | None:
        """Cost of all stages; None where the price of an endpoint is not known."""
        return total_cost(stage.cost_usd for stage in self.stages)

    def __repr__(self) -> str:
        return (
            f"<CostEstimate {self.documents:,} documents, {self.chunks:,} chunks, {self.tokens:,} tokens: "
            f"{self.calls:,} calls, {dollars(self.cost_usd)}, at least {self.seconds:.0f} s>"
        )

    def _repr_html_(self) -> str:
        rows = [(s.stage, s.endpoint, s.calls, s.input_tokens, s.output_tokens, s.cost_usd) for s in self.stages]
        columns = ("stage", "endpoint", "calls", "input tokens", "output tokens", "USD")
        return f"<p>{escape(repr(self))}</p>" + table_html("Stages", columns, rows)


@dataclass(frozen=True)
class Work:
    """Calls of a stage to its role, and their tokens in total."""

    stage: str
    target: RoleTarget
    calls: float
    input_tokens: float
    output_tokens: float


@dataclass(frozen=True)
class PlannedDocument:
    """A document of INPUT.

    Attributes:
        place: its path and record.
        chunks: the key of the text and the tokens of each.
    """

    place: str
    chunks: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class PlannedInput:
    """INPUT as a build would read it.

    Attributes:
        documents: by id, each text once for each set of labels.
        duplicates: copies that were left out.
        unreadable: (name, reason) of what could not be read.
    """

    documents: Mapping[str, PlannedDocument]
    duplicates: int
    unreadable: tuple[tuple[str, str], ...]

    @property
    def n_chunks(self) -> int:
        """Chunks of all documents."""
        return sum(len(document.chunks) for document in self.documents.values())

    @property
    def n_tokens(self) -> int:
        """Tokens of all chunks."""
        return sum(tokens for document in self.documents.values() for _, tokens in document.chunks)


def estimate_build(
    inputs: Sequence[str],
    config: Config,
    prompts: Prompts,
    latency_s: float | None = None,
    speeds: Mapping[str, float] = NO_SPEEDS,
) -> CostEstimate:
    """Read INPUT and estimate its index.

    Args:
        latency_s: what a chat call takes; None for `FIRST_TOKEN_S` and `S_PER_TOKEN` for each token of its reply.
        speeds: Endpoint → tokens a second of its replies, all calls together, where that is known.

    Raises:
        InputError: nothing to read.
    """
    return estimate_planned(read_planned(inputs, config), config, prompts, latency_s, speeds)


def estimate_planned(
    planned: PlannedInput,
    config: Config,
    prompts: Prompts,
    latency_s: float | None = None,
    speeds: Mapping[str, float] = NO_SPEEDS,
) -> CostEstimate:
    """Return the estimate of an index of INPUT that was read; see `estimate_build`."""
    n_chunks, n_tokens = planned.n_chunks, planned.n_tokens
    stages, seconds = stages_of(works_of_build(n_chunks, n_tokens, config, prompts), config, latency_s, speeds)
    entities = n_tokens * ENTITIES_PER_TOKEN
    reports = estimate_reports(entities + estimate_summaries(entities, config).entities, config)
    return CostEstimate(
        len(planned.documents),
        planned.duplicates,
        n_chunks,
        n_tokens,
        planned.unreadable,
        stages,
        seconds,
        round(reports.missing),
        round(reports.missing_tokens),
        _windows(config),
        dict(speeds),
    )


def _windows(config: Config) -> dict[str, int]:
    """Return the known context windows of the roles of a build."""
    found = {}
    for role in ("extract", "summarise", "report"):
        target = getattr(config.llm.roles, role)
        names = [target] if isinstance(target, str) else [share.endpoint for share in target]
        known = [config.llm.endpoints[name].context_window for name in names]
        if windows := [window for window in known if window is not None]:
            found[role] = min(windows)
    return found


def read_planned(inputs: Sequence[str], config: Config) -> PlannedInput:
    """Read INPUT and cut it into chunks.

    Raises:
        InputError: nothing to read.
    """
    tokens = encoding(config.tokenizer)
    found: dict[str, PlannedDocument] = {}
    unreadable: list[tuple[str, str]] = []
    copies = 0
    options = read_options(config.reading, config.metadata)
    sources = find_inputs(inputs, follow_links=config.reading.follow_links)
    if notice := missing_packages(sources):
        logger.warning("%s", notice)
    for source in sources:
        for read in read_source(source, options):
            if not isinstance(read, Document):
                unreadable.append((source.display, read.reason))
                continue
            own = document_id(read.text, read.labels)
            if own in found:
                copies += 1
                continue
            found[own] = PlannedDocument(f"{source.name}#{read.record}", _planned_chunks(read.text, tokens, config))
    return PlannedInput(found, copies, tuple(unreadable))


def _planned_chunks(text: str, tokens: Encoding, config: Config) -> tuple[tuple[int, int], ...]:
    if config.chunking == "none":
        return ((text_key(chunk_id("", 0, 0, text)), len(tokens.encode_ordinary(text))),)
    at_sentences = config.chunking == "sentences"
    spans = chunk_spans(text, tokens, config.chunk_tokens, config.chunk_overlap_tokens, at_sentences)
    return tuple((text_key(chunk_id("", 0, 0, text[span.start : span.end])), span.n_tokens) for span in spans)


def stages_of(
    works: Iterable[Work], config: Config, latency_s: float | None, speeds: Mapping[str, float] = NO_SPEEDS
) -> tuple[tuple[StageEstimate, ...], float]:
    """Return the stages of the work at the endpoints of its roles, and their least time one after the other."""
    stages: list[StageEstimate] = []
    seconds = 0.0
    for work in works:
        shares = list(_shares(work, config, latency_s, speeds))
        stages += shares
        seconds += max(share.seconds for share in shares)
    return tuple(stages), seconds


def remote_calls(works: Iterable[Work], config: Config) -> dict[str, int]:
    """Return the calls of each stage to endpoints that are no built-in models."""
    return {
        work.stage: sum(
            share.calls
            for share in _shares(work, config, None, NO_SPEEDS)
            if config.llm.endpoints[share.endpoint].is_remote
        )
        for work in works
    }


def works_of_build(n_chunks: int, n_tokens: int, config: Config, prompts: Prompts) -> Iterator[Work]:
    """Yield the work of an index built from nothing, stage by stage."""
    roles = config.llm.roles
    count = counter(config.tokenizer)
    meta_types = META_TYPES if config.meta_types == "generate" else config.meta_types
    fixed = {
        "describe": count(describe_request("", "", [], prompts, 1).messages[0].content),
        "meta types": count(meta_types_request([], prompts).messages[0].content),
        "summarise": count(summary_request([], prompts, meta_types, None).messages[0].content),
        "report": count(report_request([], [], [], prompts, None).messages[0].content),
    }
    entities = n_tokens * ENTITIES_PER_TOKEN
    extraction = extraction_calls(n_chunks, n_tokens, config, prompts, count)
    if extraction is not None:
        yield Work(EXTRACT, roles.extract, extraction.calls, extraction.input_tokens, extraction.output_tokens)
    if config.claims:
        system = count(claims_request("", [], prompts, None).messages[0].content)
        shown = n_tokens * (1 + CLAIM_NAMES_PER_TOKEN) + n_chunks * system
        yield Work("claims", roles.extract, n_chunks, shown, n_tokens * CLAIMS_OUT_PER_TOKEN)
    described = entities * DESCRIBED_SHARE
    describe_in = described * (2 * config.description_tokens + fixed["describe"])
    yield Work("describe", roles.summarise, described, describe_in, described * DESCRIBE_OUT)
    if config.resolution.enabled and LLM in config.resolution.tiers:
        pairs = entities * QUESTIONS_PER_ENTITY
        calls = pairs / config.resolution.pairs_per_call
        system = count(same_entity_request([], prompts, None).messages[0].content)
        yield Work("resolve", roles.summarise, calls, pairs * QUESTION_IN + calls * system, pairs * QUESTION_OUT)
    summaries = estimate_summaries(entities, config)
    if config.meta_types == "generate" and summaries.clusters:
        shown = min(n_chunks, N_EXCERPTS) * min(config.chunk_tokens, EXCERPT_CHARS / CHARS_PER_TOKEN)
        yield Work("meta types", roles.summarise, 1, fixed["meta types"] + shown, MIN_OUT)
    calls = summaries.clusters / units_per_call(
        SUMMARIES_PER_CALL, config.clustering.summary_pack_tokens / SUMMARY_PACK_TOKENS, config.pack_units
    )
    shown = summaries.tokens_in + calls * fixed["summarise"]
    yield Work("summarise", roles.summarise, calls, shown, summaries.tokens_out)
    in_graph = entities + summaries.entities
    reports = estimate_reports(in_graph, config)
    calls = reports.written / units_per_call(
        REPORTS_PER_CALL, config.communities.report_pack_tokens / REPORT_PACK_TOKENS, config.pack_units
    )
    yield Work("reports", roles.report, calls, reports.tokens_in + calls * fixed["report"], reports.tokens_out)
    texts = in_graph + n_chunks
    batches = texts / config.llm.endpoints[roles.embed].batch_size
    yield Work("embed", roles.embed, batches, n_tokens + in_graph * TOKENS_PER_ENTITY, 0)


def units_per_call(usual: float, room: float, max_units: int) -> float:
    """Return how many units share a call, about: in proportion to the tokens that may."""
    return min(max(usual * room, 1.0), float(max(max_units, 1)))


def _shares(
    work: Work, config: Config, latency_s: float | None, speeds: Mapping[str, float]
) -> Iterator[StageEstimate]:
    """Yield a stage's part at each endpoint of its role, by weight."""
    targets = [(work.target, 1.0)] if isinstance(work.target, str) else [(s.endpoint, s.weight) for s in work.target]
    whole = sum(weight for _, weight in targets)
    for name, weight in targets:
        endpoint = config.llm.endpoints[name]
        calls, read, written = (round(n * weight / whole) for n in (work.calls, work.input_tokens, work.output_tokens))
        if calls == 0 and work.calls > 0:
            calls = math.ceil(work.calls * weight / whole)
        prices = endpoint.prices
        cost = (read * prices[0] + written * prices[2]) / 1e6 if prices else None if calls else 0.0
        latency = FIRST_TOKEN_S + S_PER_TOKEN * written / max(calls, 1)
        if latency_s is not None and written:
            latency = latency_s
        seconds, bound = _least_time(calls, read + written, latency, endpoint)
        if name in speeds and bound and (needed := written / speeds[name]) > seconds:
            seconds, bound = needed, SPEED
        yield StageEstimate(work.stage, name, calls, read, written, cost, seconds, bound, latency if bound else 0.0)


def _least_time(calls: int, tokens: int, latency_s: float, endpoint: EndpointConfig) -> tuple[float, str]:
    """Return the least time that an endpoint's limits allow, and the limit that binds."""
    if endpoint.kind != "openai" or not calls:
        return 0.0, ""
    bounds = {"concurrency": calls * latency_s / min(endpoint.max_concurrent or UNKNOWN_CONCURRENCY, calls)}
    if endpoint.rpm is not None:
        bounds["rpm"] = calls / endpoint.rpm * 60
    if endpoint.tpm is not None:
        bounds["tpm"] = tokens / endpoint.tpm * 60
    bound = max(bounds, key=lambda name: bounds[name])
    return bounds[bound], bound
