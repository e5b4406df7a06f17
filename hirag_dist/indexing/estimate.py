"""Estimates before any call: the cost of an index, the calls of a build that begins, and the cost of a retry.

Documents and chunks are counted; the rest follows from ratios that were measured with the built-in model on the sample
corpus (60 chunks) and Mix (576 chunks, 644,008 tokens), where the tokens of every large stage came out within a quarter
and its calls within a third. A real model finds more or fewer entities and writes longer or shorter texts, so an
estimate is good to about a factor of two.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappush, heapreplace
from html import escape
from typing import Any

import pyarrow.compute as pc
from tiktoken import Encoding

from hirag_dist.config.model import META_TYPES, Config, EndpointConfig, RoleTarget
from hirag_dist.core.entities.claims import claims_request
from hirag_dist.core.entities.merging import CHARS_PER_TOKEN
from hirag_dist.core.prompts.templates import (
    Prompts,
    describe_request,
    extraction_request,
    meta_types_request,
    report_request,
    same_entity_request,
    summary_request,
)
from hirag_dist.core.text.chunking import chunk_spans
from hirag_dist.core.text.ids import chunk_id, document_id, text_key
from hirag_dist.core.text.normalize import name_key
from hirag_dist.core.text.tokens import counter, encoding
from hirag_dist.execution.dataset import Dataset
from hirag_dist.execution.events import CallsExpected
from hirag_dist.indexing.context import BuildContext
from hirag_dist.indexing.documents import UnreadRecords
from hirag_dist.indexing.inputs import read_options
from hirag_dist.indexing.mentions import DESCRIBE_PROMPT_TOKENS
from hirag_dist.indexing.stages.meta_types import EXCERPT_CHARS, N_EXCERPTS
from hirag_dist.indexing.stages.packed_calls import MAX_UNITS
from hirag_dist.indexing.stages.read import unit_of
from hirag_dist.indexing.stages.resolve import PAIRS_PER_CALL
from hirag_dist.llm.rule_based.finder import best_names
from hirag_dist.llm.rule_based.language import split_sentences
from hirag_dist.llm.usage import dollars, total_cost
from hirag_dist.readers import Document, find_inputs, is_access_refusal, missing_packages, read_source
from hirag_dist.types import ChatRequest
from hirag_dist.types.notebook import table_html

logger = logging.getLogger(__name__)
EXTRACT = "extract"  # stage of the calls that find entities and relations
OUT_PER_TOKEN, MIN_OUT = 1.3, 150  # reply of an extraction, in tokens: per token of text, and at least per call
ENTITIES_PER_TOKEN = 0.0133  # distinct entities of layer 0 per token of text
CLAIMS_OUT_PER_TOKEN = 0.8  # per token of text: 0.55 and 1.01 in two recorded GraphRAG indexes
CLAIM_NAMES_PER_TOKEN = 0.06  # tokens of the entity names shown, per token of text, in the same two
SAMPLED_CHUNKS, _LEAST_SAMPLED = 200, 6  # chunks in which names are counted, and those of a name that counts
DESCRIPTION_TOKENS, DESCRIBE_OUT = 35, 240  # tokens of a mention's description, and of a merged one
QUESTIONS_PER_ENTITY = 0.03  # pairs that entity resolution asks about; 0.01 to 0.09 in graphs of real models
QUESTION_IN, QUESTION_OUT = 180, 25
# Members of clusters per entity (one of two clusters counts twice), clusters × target_size per entity, and entities per
# summary of a cluster. All layers of Mix have 1.082, 1.29, 1.60 with `hashing`, and 1.016, 1.06, 1.92 with `minilm`.
MEMBERS_PER_ENTITY, CLUSTERS_PER_ENTITY, SUMMARIES_PER_CLUSTER = 1.05, 1.17, 1.75
MEMBER_IN, MEMBER_IN_ABOVE, MEMBER_OUT = 54, 104, 13  # tokens per member: entities, summaries, and of the reply
MEMBER_NAMED = 12  # tokens of a member's number, name and type
COMMUNITIES_PER_ROOT = 0.55  # communities of a level / square root of its entities
REPORT_IN_PER_ENTITY, REPORT_OUT = 85, 660  # tokens of an entity with its relations, and of a report
_SIZE_EXPONENT = 0.8  # the largest share s of communities has s ** 0.8 of the tokens; measured on Mix, 0.1 to 0.5
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
        latency_s: assumed seconds of a call.
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
        documents: documents by id, each text once for each set of labels.
        duplicates: copies that were left out.
        unreadable: (name, reason) of what could not be read.
        mentions: chunks that mention an entity, for each entity that several mention, see `expected_mentions`.
        unread: places of which an update keeps what the index has.
    """

    documents: Mapping[str, PlannedDocument]
    duplicates: int
    unreadable: tuple[tuple[str, str], ...]
    mentions: tuple[float, ...] = ()
    unread: UnreadRecords = field(default_factory=UnreadRecords)

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
        latency_s: seconds of a chat call; None for `FIRST_TOKEN_S` and `S_PER_TOKEN` for each token of its reply.
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
    works = works_of_build(n_chunks, n_tokens, config, prompts, planned.mentions)
    stages, seconds = stages_of(works, config, latency_s, speeds)
    entities = n_tokens * ENTITIES_PER_TOKEN
    reports = _reports(entities + _summaries(entities, config).entities, config)
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
    """Read INPUT and cut it into chunks; names are counted in those chunks whose keys are the smallest.

    Raises:
        InputError: nothing to read.
    """
    tokens, options = encoding(config.tokenizer), read_options(config.reading, config.metadata)
    documents: dict[str, PlannedDocument] = {}
    unreadable: list[tuple[str, str]] = []
    units: list[str] = []
    places: list[tuple[str, int]] = []
    sample: list[tuple[int, str]] = []  # a heap, the largest key first
    copies = 0
    sources = find_inputs(inputs, follow_links=config.reading.follow_links)
    if notice := missing_packages(sources):
        logger.warning("%s", notice)
    for source in sources:
        for read in read_source(source, options):
            if not isinstance(read, Document):
                unreadable.append((source.display, read.reason))
                if not is_access_refusal(read.reason):
                    units.append(unit_of(source.name, read.record))
                continue
            places.append((source.name, read.record))
            identity = document_id(read.text, read.labels)
            if identity in documents:
                copies += 1
                continue
            chunks = []
            for text, n_tokens in _chunk_texts(read.text, tokens, config):
                key = text_key(chunk_id("", 0, 0, text))
                chunks.append((key, n_tokens))
                if len(sample) < SAMPLED_CHUNKS:
                    heappush(sample, (-key, text))
                elif -key > sample[0][0]:
                    heapreplace(sample, (-key, text))
            documents[identity] = PlannedDocument(f"{source.name}#{read.record}", tuple(chunks))
    unread = UnreadRecords.of(units, {source.name for source in sources}, places)
    planned = PlannedInput(documents, copies, tuple(unreadable), unread=unread)
    return replace(planned, mentions=expected_mentions([text for _, text in sample], planned.n_chunks))


def _chunk_texts(text: str, tokens: Encoding, config: Config) -> Iterator[tuple[str, int]]:
    """Yield the text and the tokens of each chunk."""
    if config.chunking == "none":
        yield text, len(tokens.encode_ordinary(text))
        return
    at_sentences = config.chunking == "sentences"
    for span in chunk_spans(text, tokens, config.chunk_tokens, config.chunk_overlap_tokens, at_sentences):
        yield text[span.start : span.end], span.n_tokens


def expected_mentions(texts: Sequence[str], n_chunks: int) -> tuple[float, ...]:
    """Return how many chunks mention each name, the most frequent names first, from a sample of the chunks.

    The count of a name in fewer than six sampled chunks is mostly chance: below it counts are taken to fall in
    proportion to the rank of the name.

    Args:
        texts: the sampled chunks.
        n_chunks: all chunks.
    """
    found: Counter[str] = Counter()
    for text in texts:
        found.update({name_key(one.name) for one in best_names(split_sentences(text))})
    if len(texts) >= n_chunks:
        return tuple(float(count) for _, count in found.most_common() if count > 1)
    scale = n_chunks / len(texts)
    mentions = [count * scale for _, count in found.most_common() if count >= _LEAST_SAMPLED]
    known, least = len(mentions), _LEAST_SAMPLED * scale
    tail = (least * known / rank for rank in range(known + 1, int(least * known / 2) + 1))
    return (*mentions, *tail)


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


def works_of_build(
    n_chunks: int, n_tokens: int, config: Config, prompts: Prompts, mentions: Iterable[float] = ()
) -> Iterator[Work]:
    """Yield the work of an index built from nothing, stage by stage.

    Args:
        n_tokens: tokens of all chunks.
        mentions: chunks that mention an entity, for each entity that many mention.
    """
    roles = config.llm.roles
    count = counter(config.tokenizer)

    def system(request: ChatRequest) -> int:
        return count(request.messages[0].content)

    entities = n_tokens * ENTITIES_PER_TOKEN
    if config.extraction.method != "nlp":
        passes = (2 if config.extraction.calls == "two_step" else 1) * (1 + config.gleaning_rounds)
        calls = n_chunks * passes
        fixed = system(extraction_request("extract-graph", "", prompts, config.entity_types, None))
        # Two steps, or several rounds, write the same records in parts.
        written = max(n_tokens * OUT_PER_TOKEN, calls * MIN_OUT)
        yield Work(EXTRACT, roles.extract, calls, n_tokens * passes + calls * fixed, written)
    if config.claims:
        shown = n_tokens * (1 + CLAIM_NAMES_PER_TOKEN) + n_chunks * system(claims_request("", [], prompts, None))
        yield Work("claims", roles.extract, n_chunks, shown, n_tokens * CLAIMS_OUT_PER_TOKEN)
    described = [tokens for n in mentions if (tokens := n * DESCRIPTION_TOKENS) > config.description_tokens]
    parts = [math.ceil(tokens / DESCRIBE_PROMPT_TOKENS) for tokens in described]
    calls = sum(n + (n > 1) for n in parts)  # one call more makes one description of several parts
    shown = sum(described) + calls * system(describe_request("", "", [], prompts, 1))
    shown += sum(n * DESCRIBE_OUT for n in parts if n > 1)
    yield Work("describe", roles.summarise, calls, shown, calls * DESCRIBE_OUT)
    if config.resolution.enabled:
        pairs = entities * QUESTIONS_PER_ENTITY
        n_calls = pairs / (PAIRS_PER_CALL if config.pack_tokens else 1)
        shown = pairs * QUESTION_IN + n_calls * system(same_entity_request([], prompts, None))
        yield Work("resolve", roles.summarise, n_calls, shown, pairs * QUESTION_OUT)
    summaries = _summaries(entities, config)
    generated = config.meta_types == "generate"
    if generated and summaries.clusters:
        shown = min(n_chunks, N_EXCERPTS) * min(config.chunk_tokens, EXCERPT_CHARS / CHARS_PER_TOKEN)
        yield Work("meta types", roles.summarise, 1, system(meta_types_request([], prompts)) + shown, MIN_OUT)
    n_calls = summaries.clusters / units_per_call(SUMMARIES_PER_CALL, config.pack_tokens / SUMMARY_PACK_TOKENS)
    fixed = system(summary_request([], prompts, META_TYPES if generated else config.meta_types, None))
    yield Work("summarise", roles.summarise, n_calls, summaries.tokens_in + n_calls * fixed, summaries.tokens_out)
    in_graph = entities + summaries.entities
    reports = _reports(in_graph, config)
    n_calls = reports.written / units_per_call(REPORTS_PER_CALL, config.pack_tokens / REPORT_PACK_TOKENS)
    fixed = system(report_request([], [], [], prompts, None))
    yield Work("reports", roles.report, n_calls, reports.tokens_in + n_calls * fixed, reports.tokens_out)
    batches = (in_graph + n_chunks) / config.llm.endpoints[roles.embed].batch_size
    yield Work("embed", roles.embed, batches, n_tokens + in_graph * TOKENS_PER_ENTITY, 0)


@dataclass(frozen=True)
class _Summaries:
    """Clusters that a build summarises, the tokens of their members and replies, and the entities above layer 0."""

    clusters: float
    tokens_in: float
    tokens_out: float
    entities: float


def _summaries(entities: float, config: Config) -> _Summaries:
    """Return the summaries of all layers above a layer 0 of some entities."""
    target = config.clustering.target_size
    clusters = tokens_in = tokens_out = above = 0.0
    here = entities
    for layer in range(config.max_layers):
        if here <= target:
            break
        members, clusters_here = here * MEMBERS_PER_ENTITY, here * CLUSTERS_PER_ENTITY / target
        clusters += clusters_here
        tokens_in += members * member_tokens(config, layer)
        tokens_out += members * MEMBER_OUT
        here = min(clusters_here * SUMMARIES_PER_CLUSTER, here * 0.8)
        above += here
    return _Summaries(clusters, tokens_in, tokens_out, above)


def member_tokens(config: Config, layer: int) -> float:
    """Return the tokens that a member of a cluster of a layer takes in the prompt of the summary."""
    most = MEMBER_NAMED + config.clustering.member_chars / CHARS_PER_TOKEN
    return min(MEMBER_IN if layer == 0 else MEMBER_IN_ABOVE, most)


@dataclass(frozen=True)
class _Reports:
    """Reports that a build writes with their tokens, and those that `communities.report_share` leaves out."""

    written: float
    tokens_in: float
    tokens_out: float
    missing: float
    missing_tokens: float


def _reports(entities: float, config: Config) -> _Reports:
    """Return the reports of a graph of some entities of all layers."""
    largest, limit = config.communities.max_size, config.communities.report_tokens
    total = tokens = 0.0
    n_here, inside = 1.0, entities  # groups that are parted, and the entities of each
    while n_here >= 0.5 and inside > 1:
        parts = max(1.0, COMMUNITIES_PER_ROOT * math.sqrt(inside))
        size = inside / parts
        total += n_here * parts
        tokens += n_here * parts * min(size * REPORT_IN_PER_ENTITY, 0.85 * limit)
        if parts == 1.0:
            break
        # Sizes differ: few communities exceed the limit where the mean is a quarter of it, nearly all where it is more.
        n_here, inside = n_here * parts * min(max(size / largest - 0.25, 0.0), 1.0), size
    share = config.communities.report_share
    of_tokens, out = share**_SIZE_EXPONENT, total * REPORT_OUT
    missing = (tokens + out) * (1 - of_tokens)
    return _Reports(total * share, tokens * of_tokens, out * of_tokens, total * (1 - share), missing)


def units_per_call(usual: float, room: float) -> float:
    """Return how many units share a call, about: in proportion to the tokens that may."""
    return min(max(usual * room, 1.0), float(MAX_UNITS))


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


def announce_calls(context: BuildContext, chunks: Dataset) -> None:
    """Emit the estimated calls of an index of these chunks, unless built-in models make all of it."""
    config = context.config
    if not any(endpoint.is_remote for endpoint in config.llm.endpoints.values()):
        return
    sizes = context.datasets.read(chunks, ["n_tokens"])["n_tokens"]
    first = context.datasets.read(Dataset(chunks.schema, chunks.parts[:1]), ["text"])["text"]
    texts = first[:: math.ceil(len(first) / SAMPLED_CHUNKS) or 1].to_pylist()
    mentions = expected_mentions(texts, len(sizes))
    works = works_of_build(len(sizes), pc.sum(sizes).as_py() or 0, config, context.prompts, mentions)
    expected = {
        work.stage: sum(
            share.calls
            for share in _shares(work, config, None, NO_SPEEDS)
            if config.llm.endpoints[share.endpoint].is_remote
        )
        for work in works
    }
    if any(expected.values()):
        context.runner.emit(CallsExpected({stage: calls for stage, calls in expected.items() if calls}))


# Stage of a dead letter, in the order of a build → role, beginning of its label on the bill, and whether its replies
# change units of the same stage, in the layers or levels above.
_ASKED: Mapping[str, tuple[str, str, bool]] = {
    "extract": ("extract", "extract", False),
    "claims": ("extract", "claims", False),
    "describe": ("summarise", "describe", False),
    "resolve": ("summarise", "resolve", False),
    "meta_types": ("summarise", "meta types", False),
    "summarise": ("summarise", "summarise", True),
    "reports": ("report", "reports", True),
}
_REPLY_TOKENS = 150  # of a stage without a reply on the bill


@dataclass(frozen=True)
class RetryEstimate:
    """Estimate of a retry.

    Attributes:
        letters: open dead letters, by stage; those of `read` and `import` need no model.
        dropped: letters whose loss was accepted, which are not asked again.
        finished: whether the last build ran to its end. A retry of another one also makes the calls that are left.
        stages: the letters themselves, one call each.
        later: at most in addition: every call of the later stages again. Units that the new replies do not reach are
            found in the ledger.
        seconds: seconds of `stages` and `later`, one after the other.
    """

    letters: Mapping[str, int]
    dropped: int
    finished: bool
    stages: tuple[StageEstimate, ...]
    later: tuple[StageEstimate, ...]
    seconds: float

    @property
    def calls(self) -> tuple[int, int]:
        """The least and the largest number of calls."""
        least = sum(stage.calls for stage in self.stages)
        return least, least + sum(stage.calls for stage in self.later)

    @property
    def cost_usd(self) -> tuple[float | None, float | None]:
        """The least and the largest cost; None where the price of an endpoint is not known."""
        least = total_cost(stage.cost_usd for stage in self.stages)
        return least, total_cost(stage.cost_usd for stage in (*self.stages, *self.later))


def retry_works(
    requests: Mapping[str, Sequence[str]], usage: Sequence[Mapping[str, Any]], config: Config
) -> tuple[list[Work], list[Work]]:
    """Return the work of asking dead letters again, and all that the stages after the first of them cost at most.

    Args:
        requests: stage → the prompts of its letters.
        usage: rows of USAGE of the build.
    """
    count = counter(config.tokenizer)

    def paid(label: str) -> tuple[int, int, int]:
        rows = [row for row in usage if row["stage"].startswith(label)]
        calls, read, written = (sum(row[name] for row in rows) for name in ("calls", "input_tokens", "output_tokens"))
        return calls, read, written

    letters: list[Work] = []
    later: list[Work] = []
    for stage, (role, label, repeats) in _ASKED.items():
        calls, read, written = paid(label)
        target = getattr(config.llm.roles, role)
        if calls and letters:
            later.append(Work(stage, target, calls, read, written))
        if asked := requests.get(stage):
            each = written / calls if calls and written else _REPLY_TOKENS
            if calls and not letters and repeats:
                later.append(Work(stage, target, calls, read, written))
            letters.append(Work(stage, target, len(asked), sum(map(count, asked)), each * len(asked)))
    vectors = [paid(label) for label in ("chunk vectors", "embed")]
    calls, read = (sum(row[at] for row in vectors) for at in (0, 1))
    if letters and calls:
        later.append(Work("embed", config.llm.roles.embed, calls, read, 0))
    return letters, later
