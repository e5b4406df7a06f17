"""Small frozen records that pass between layers. Rows of data are Arrow tables (`schemas`), not these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

FloatMatrix = NDArray[np.float32]
FloatVector = NDArray[np.float64]
IntVector = NDArray[np.int64]
Covariance = Literal["diag", "spherical", "tied", "full"]


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message. `role` is system, user or assistant."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One call to a language model, before anything is known of who answers it.

    Attributes:
        role: which configured role answers: extract, summarise, report, answer, judge.
        messages: fixed text first, so that providers' prompt caches hit.
        unit: hash of the normalised text the call is about; recordings are found by it.
        form: name of the reply's JSON schema in `core.prompts.SCHEMAS`, or None for delimited text.
        round: 0 for a first pass, 1, 2, … for gleaning.
        max_tokens: limit on the reply, or None for the endpoint's own.
        packed: `unit` of each unit that shares this call; empty where it is about one.
        replicate: 0, or 1, 2, … where the same is asked again for another reply, which is stored beside the first.
    """

    role: str
    messages: tuple[Message, ...]
    unit: str
    form: str | None = None
    round: int = 0
    max_tokens: int | None = None
    packed: tuple[str, ...] = ()
    replicate: int = 0

    @property
    def text(self) -> str:
        """The messages as one text, as a dead letter shows them."""
        return "\n\n".join(f"{message.role}: {message.content}" for message in self.messages)


@dataclass(frozen=True, slots=True)
class ChatReply:
    """What came back, with what the endpoint says it cost."""

    text: str
    finish_reason: str = "stop"
    model: str = ""
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Rejected:
    """A unit that could not be done: the last reply and why it was refused."""

    unit: str
    reason: str
    attempts: int
    request: str = ""
    reply: str = ""


@dataclass(frozen=True, slots=True)
class CsrGraph:
    """An undirected weighted graph, each edge stored in both directions; a node is its row in `entities`.

    Attributes:
        indptr: (n_nodes + 1,) int64.
        indices: (n_entries,) int32 neighbours, ascending within a row.
        weights: (n_entries,) float32, positive.
        relation_rows: (n_entries,) int32 row in `relations` of the heaviest relation between the two.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    weights: NDArray[np.float32]
    relation_rows: NDArray[np.int32]

    @property
    def n_nodes(self) -> int:
        """Nodes, isolated ones too."""
        return len(self.indptr) - 1


class Admission(NamedTuple):
    """What one caller may see of an index whose documents carry labels.

    A row's state is that of its pattern (`core.access`): hidden, mixed, or whole. What is mixed is made of parts, one
    for each label set of the documents that speak of it, and some of these are in reach.

    Attributes:
        sets: (n_sets + 1,) bool, by label set, whether its documents are in reach.
        entity_patterns, relation_patterns: (n_rows,) int32.
        entity_states, relation_states: (n_patterns,) uint8.
        part_entities: (n_parts,) int32 entity row of each part, ascending.
        part_sets: (n_parts,) int32 label set.
        part_vectors: (n_parts, dim) float32.
        stated_rows: (n_stated,) int32 rows of the relations that have statements, ascending.
        stated_indptr: (n_stated + 1,) int64 where the statements of each begin.
        statement_sets: (n_statements,) int32 label set.
        statement_strengths: (n_statements,) float64; those in reach add up to a mixed relation's weight.
    """

    sets: NDArray[np.bool_]
    entity_patterns: NDArray[np.int32]
    entity_states: NDArray[np.uint8]
    relation_patterns: NDArray[np.int32]
    relation_states: NDArray[np.uint8]
    part_entities: NDArray[np.int32]
    part_sets: NDArray[np.int32]
    part_vectors: FloatMatrix
    stated_rows: NDArray[np.int32]
    stated_indptr: NDArray[np.int64]
    statement_sets: NDArray[np.int32]
    statement_strengths: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Mixture:
    """A Gaussian mixture (Eq. 7): k components over d columns.

    Attributes:
        weights: (k,) shares, summing to 1.
        means: (k, d) float32.
        variances: float32; (k, d) diag, (k, 1) spherical and tied, (k, d, d) full.
        covariance: which of the four; tied is spherical with one variance for all.
        min_variance: floor of the variance along any axis.
        log_likelihood: of all rows together, in nats, by the round before the last update.
        bic: lower is better.
    """

    weights: FloatVector
    means: FloatMatrix
    variances: FloatMatrix
    covariance: Covariance
    min_variance: float
    log_likelihood: float = -np.inf
    bic: float = np.inf

    @property
    def n_components(self) -> int:
        """k."""
        return len(self.weights)


@dataclass(frozen=True, slots=True)
class Statistics:
    """What the maximisation of a mixture needs to know of some rows; those of two sets of rows add up.

    Attributes:
        counts: (k,) float64 rows of each component, in shares.
        sums: (k, d) float64 rows weighted by their shares.
        squares: (k, q) float64 second-order features, weighted alike: q = d diag, 1 spherical and tied,
            d (d + 1) / 2 full.
        log_likelihood: nats, under the mixture that the shares come from.
    """

    counts: FloatVector
    sums: FloatVector
    squares: FloatVector
    log_likelihood: float

    def __add__(self, other: Statistics) -> Statistics:
        return Statistics(
            self.counts + other.counts,
            self.sums + other.sums,
            self.squares + other.squares,
            self.log_likelihood + other.log_likelihood,
        )


@dataclass(frozen=True, slots=True)
class Assignment:
    """Sparse responsibilities, sorted by (row, component).

    Attributes:
        rows: (n_entries,) row of each entry.
        components: (n_entries,) component.
        shares: (n_entries,) float32 responsibility.
    """

    rows: IntVector
    components: IntVector
    shares: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Moments:
    """Sums over rows, from which their covariance follows; those of two sets of rows add up.

    Attributes:
        n_rows: rows summed.
        sums: (d,) float64.
        products: (d, d) float64 sum of outer products.
    """

    n_rows: int
    sums: FloatVector
    products: FloatVector

    def __add__(self, other: Moments) -> Moments:
        return Moments(self.n_rows + other.n_rows, self.sums + other.sums, self.products + other.products)


@dataclass(frozen=True, slots=True)
class Projection:
    """Axes of largest variance: a row's scores are `row @ axes - shift`.

    Attributes:
        axes: (d, c) float32, by falling variance; the largest entry of each is positive.
        shift: (c,) float32, the scores of the mean row.
    """

    axes: FloatMatrix
    shift: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class EntityItem:
    """An entity in a result. `score` is the cosine similarity to the question, None where it was not scored."""

    entity_id: str
    name: str
    type: str
    description: str
    layer: int
    score: float | None = None


@dataclass(frozen=True, slots=True)
class CommunityItem:
    """A community in a result, with its report. `hits` counts the local entities that it holds."""

    community_id: str
    level: int
    title: str
    report: str
    rating: float
    hits: int
    score: float


@dataclass(frozen=True, slots=True)
class PathItem:
    """A shortest path between two consecutive key entities (Eq. 15); empty `entity_ids` when unconnected."""

    source_id: str
    target_id: str
    entity_ids: tuple[str, ...]
    entity_names: tuple[str, ...]

    @property
    def connected(self) -> bool:
        """Whether the pair is joined in the graph."""
        return bool(self.entity_ids)


@dataclass(frozen=True, slots=True)
class TripleItem:
    """A relation between path nodes (Eq. 16)."""

    relation_id: str
    source_id: str
    target_id: str
    source_name: str
    target_name: str
    kind: str
    description: str
    weight: float
    score: float


@dataclass(frozen=True, slots=True)
class ClaimItem:
    """A claim of a text (GraphRAG paper §3.1.2).

    Attributes:
        subject, object: as the claim names them; `object` is empty where there is none.
        subject_id, object_id: the entities of layer 0 of those names; empty where there are none.
        status: true, false or suspected, as a rule; empty where it is not told.
        start_date, end_date: ISO 8601, as a rule; empty where it is not told.
        source_text: quoted from the chunk.
        chunk_id: where it is claimed; empty where that is not known.
    """

    claim_id: str
    subject: str
    object: str
    subject_id: str
    object_id: str
    type: str
    status: str
    start_date: str
    end_date: str
    description: str
    source_text: str
    chunk_id: str


@dataclass(frozen=True, slots=True)
class SourceItem:
    """A chunk behind what was retrieved, with its place in its document (characters, half open)."""

    chunk_id: str
    document_id: str
    title: str
    uri: str
    start: int
    end: int
    text: str
    score: float


@dataclass(frozen=True, slots=True)
class Query:
    """A question and how to look for its answer. None takes the configured default.

    Attributes:
        mode: hirag, local, global, bridge, nobridge, naive, flat or graphrag-local; None the configured one. For an
            answer also graphrag-global or ts, which ask a model about every part of the corpus.
        top_n: local entities (Eq. 12).
        top_m: key entities of each community (Eq. 14).
        top_c: communities at most.
        community_level: leaf, all, or a level number as text.
        context_tokens: limit of the rendered context.
        vector: (dim,) the question's embedding, where the caller has it.
        labels: what every document searched must carry; a wish, within `reach`.
        reach: the labels that the caller holds, which decide what may be seen; None: everything may.
    """

    question: str
    mode: str | None = None
    top_n: int | None = None
    top_m: int | None = None
    top_c: int | None = None
    community_level: str | None = None
    context_tokens: int | None = None
    vector: FloatMatrix | None = None
    labels: tuple[str, ...] = ()
    reach: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class MapWork:
    """What the calls of a map-reduce were and brought. Before they are made, all but the first three are 0.

    Attributes:
        records: reports or chunks that are read.
        parts: into which they are cut, each read by one call.
        part_tokens: of all parts, without the instructions that each call brings.
        calls: replies that came, those that were refused and asked for again included.
        points: that help to answer, of all parts.
        unhelpful: parts that hold nothing that helps.
        failed: parts without a usable reply: what they hold is missing from the answer.
        uncited: points left out because they rest on no record.
        dropped: references in points that named nothing, and were removed.
        left_out: points, the least helpful, that the final answer's context had no room for.
        input_tokens, output_tokens: of those replies.
    """

    records: int
    parts: int
    part_tokens: int
    calls: int = 0
    points: int = 0
    unhelpful: int = 0
    failed: int = 0
    uncited: int = 0
    dropped: int = 0
    left_out: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Retrieval:
    """What was found for a question, level by level, and the context rendered from it.

    Attributes:
        key_entities: top-m members of each retrieved community, in the order that the bridge walks (Eq. 14).
        paths: one per consecutive pair of key entities; unconnected pairs are there too.
        context_refs: reference in the context ("E3", "S1") → id of the entity, relation, claim, community or chunk.
        timings_ms: embed, search, communities, bridge, sources, render, total.
        partial: levels that the deadline cut off.
        map_work: of a map-reduce mode. Communities or sources are then those that the points in the context cite, by
            how the context has them; their `score` is the best helpfulness of those points in hundredths, and a
            community's `hits` is how many they are.
        claims: about the local entities, in graphrag-local mode.
    """

    question: str
    mode: str
    snapshot_id: str
    local: tuple[EntityItem, ...] = ()
    communities: tuple[CommunityItem, ...] = ()
    key_entities: tuple[EntityItem, ...] = ()
    paths: tuple[PathItem, ...] = ()
    triples: tuple[TripleItem, ...] = ()
    sources: tuple[SourceItem, ...] = ()
    context: str = ""
    context_tokens: int = 0
    context_refs: Mapping[str, str] = field(default_factory=dict)
    timings_ms: Mapping[str, float] = field(default_factory=dict)
    partial: tuple[str, ...] = ()
    map_work: MapWork | None = None
    claims: tuple[ClaimItem, ...] = ()


@dataclass(frozen=True, slots=True)
class Citation:
    """One reference of an answer: `kind` is entity, relation, claim, community or chunk; `ref` stands in the text."""

    ref: str
    kind: str
    id: str
    title: str


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer with the items it cites. `dropped_citations` counts references that named nothing.

    Tokens are those of all calls, the calls of a map-reduce included.
    """

    text: str
    citations: tuple[Citation, ...]
    dropped_citations: int
    retrieval: Retrieval
    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class IndexInfo:
    """What `DescribeIndex` and `inspect` say of a snapshot."""

    snapshot_id: str
    created_at: str
    complete: bool
    counts: Mapping[str, int]
    layers: tuple[Mapping[str, Any], ...]
    communities_by_level: Mapping[int, int]
    embedder: str
    dim: int
