"""What an index would cost, before any call is made: documents and chunks are counted, the rest is estimated.

The ratios were measured with the built-in model on the Mix corpus (576 chunks); a real model finds more or fewer
entities in a text of another kind, so the estimate is good to about a factor of two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hirag_dist.config import Config, Endpoint
from hirag_dist.core.chunking import chunk_spans
from hirag_dist.core.ids import document_id
from hirag_dist.core.prompts import Prompts, extraction_request, report_request, summary_request
from hirag_dist.core.tokens import counter, encoding
from hirag_dist.reading import Document, ReadOptions, find_inputs, read_source

ENTITIES_PER_CHUNK = 14.5
CLUSTERS_PER_ENTITY = 0.1
COMMUNITIES_PER_ENTITY = 0.05
DESCRIBED_SHARE = 0.003
EXTRACT_OUT = 1500
SUMMARISE_IN, SUMMARISE_OUT = 1100, 500
REPORT_IN, REPORT_OUT = 2400, 700
SUMMARIES_PER_CALL = 2.3  # with the default pack tokens; measured on Mix
REPORTS_PER_CALL = 2.6
TOKENS_PER_ENTITY = 60


@dataclass(frozen=True)
class StagePlan:
    """One stage's expected calls, tokens, cost and time under the configured limits."""

    stage: str
    endpoint: str
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float
    seconds: float


@dataclass(frozen=True)
class Plan:
    """The whole estimate. `unreadable` are (name, reason) of what could not be read."""

    documents: int
    duplicates: int
    chunks: int
    tokens: int
    unreadable: tuple[tuple[str, str], ...]
    stages: tuple[StagePlan, ...]


def make_plan(inputs: Sequence[str], config: Config, prompts: Prompts) -> Plan:
    """Read INPUT and estimate its index.

    Raises:
        InputError: nothing to read.
    """
    tokens = encoding(config.tokenizer)
    seen: set[str] = set()
    unreadable: list[tuple[str, str]] = []
    n_chunks = n_tokens = copies = 0
    options = ReadOptions(config.reading.text_field, config.reading.title_field, config.reading.label_field)
    for source in find_inputs(inputs):
        for found in read_source(source, options):
            if not isinstance(found, Document):
                unreadable.append((source.display, found.reason))
                continue
            own = document_id(found.text)
            if own in seen:
                copies += 1
                continue
            seen.add(own)
            if config.chunking == "none":
                n_chunks += 1
                n_tokens += len(tokens.encode_ordinary(found.text))
                continue
            spans = chunk_spans(
                found.text,
                tokens,
                config.chunk_tokens,
                config.chunk_overlap_tokens,
                config.chunking == "sentences",
            )
            n_chunks += len(spans)
            n_tokens += sum(span.n_tokens for span in spans)
    stages = tuple(_stages(n_chunks, n_tokens, config, prompts))
    return Plan(len(seen), copies, n_chunks, n_tokens, tuple(unreadable), stages)


def _stages(n_chunks: int, n_tokens: int, config: Config, prompts: Prompts) -> list[StagePlan]:
    count = counter(config.tokenizer)
    entities = n_chunks * ENTITIES_PER_CHUNK
    passes = (2 if config.extraction == "two_step" else 1) * (1 + config.gleaning_rounds)
    task = "extract-entities" if config.extraction == "two_step" else "extract-graph"
    fixed = count(extraction_request(task, "", prompts, config.entity_types, None).messages[0].content)
    fixed_summary = count(summary_request([], prompts, config.meta_types, None).messages[0].content)
    fixed_report = count(report_request([], [], [], prompts, None).messages[0].content)
    clusters = entities * CLUSTERS_PER_ENTITY if config.max_layers else 0
    communities = entities * COMMUNITIES_PER_ENTITY
    described = entities * DESCRIBED_SHARE
    roles = config.llm.roles
    by_summary = _per_call(SUMMARIES_PER_CALL, config.clustering.summary_pack_tokens, 4000, config.pack_units)
    by_report = _per_call(REPORTS_PER_CALL, config.communities.report_pack_tokens, 8000, config.pack_units)
    summaries, reports = clusters / by_summary, communities / by_report
    summarise_in = clusters * SUMMARISE_IN + summaries * fixed_summary
    report_in = communities * REPORT_IN + reports * fixed_report
    stages = [
        _stage(
            "extract", roles.extract, n_chunks * passes, (n_tokens + n_chunks * fixed) * passes, EXTRACT_OUT, config
        ),
        _stage("describe", roles.summarise, described, described * 2 * config.description_tokens, 250, config),
        _stage("summarise", roles.summarise, summaries, summarise_in, SUMMARISE_OUT * by_summary, config),
        _stage("reports", roles.report, reports, report_in, REPORT_OUT * by_report, config),
    ]
    embed = config.llm.endpoints[roles.embed]
    texts = entities * (1 + CLUSTERS_PER_ENTITY * 2) + n_chunks
    stages.append(
        _stage("embed", roles.embed, texts / embed.batch_size, n_tokens + entities * TOKENS_PER_ENTITY, 0, config)
    )
    return stages


def _per_call(usual: float, pack_tokens: int, usual_tokens: int, max_units: int) -> float:
    """Return how many units share a call, about: in proportion to the tokens that may."""
    return min(max(usual * pack_tokens / usual_tokens, 1.0), float(max_units))


def _stage(
    stage: str, target: object, calls: float, input_tokens: float, output_per_call: float, config: Config
) -> StagePlan:
    name = target if isinstance(target, str) else getattr(target[0], "endpoint", "")  # type: ignore[index]
    endpoint: Endpoint = config.llm.endpoints[name]
    n_calls, output = round(calls), round(calls * output_per_call)
    cost = (input_tokens * endpoint.price.input + output * endpoint.price.output) / 1e6
    seconds = 0.0
    if endpoint.rpm is not None:
        seconds = max(seconds, n_calls / endpoint.rpm * 60)
    if endpoint.tpm is not None:
        seconds = max(seconds, (input_tokens + output) / endpoint.tpm * 60)
    return StagePlan(stage, name, n_calls, round(input_tokens), output, cost, seconds)
