"""A question, what is found for it, and its answer, as small records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from textwrap import shorten
from typing import TYPE_CHECKING, Any, Final, TypedDict

from hirag_dist.types.index_info import MetadataValue


@dataclass(frozen=True, slots=True)
class Box:
    """An area of a page, in shares of its width and height from the top left corner, 0 to 1."""

    left: float
    top: float
    right: float
    bottom: float


@dataclass(frozen=True, slots=True)
class Place:
    """A stretch of a document's text (characters, half open) with its position in the original.

    Attributes:
        kind: page, slide, section, chapter, sheet, record or part; empty where only the characters are known.
        display: the position in words, such as "p. 7" or "Prices, row 12".
        page: page or slide from 1, counted from the first one of the file; 0 for none.
        page_label: that the file gives the page, such as "vii".
        section: heading, chapter, sheet or attachment that holds the text.
        anchor: identifier of the nearest preceding element that has one, or of a heading of Markdown.
        row: Row of the sheet, or record of the file without its header, from 1; 0 for none.
        boxes: areas of the page that hold the text, in its order.
        link: URI of the document with a fragment that opens it at the position, where its format has such fragments.
    """

    start: int
    end: int
    kind: str = ""
    display: str = ""
    page: int = 0
    page_label: str = ""
    section: str = ""
    anchor: str = ""
    row: int = 0
    boxes: tuple[Box, ...] = ()
    link: str = ""


if TYPE_CHECKING:  # a client has no numpy
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    Numbers = Sequence[float] | NDArray[np.floating[Any]]

BY_NAME: Final = "name"
BY_VECTOR: Final = "vector"
MAP_REDUCE: Final = ("graphrag-global", "text-map-reduce")  # modes that ask a model about every part of the corpus

# Entities, paths and triples come by the hundred for a question. They are not frozen, for a frozen record takes five
# times as long to make; treat them as frozen, for they have a hash.


@dataclass(slots=True, unsafe_hash=True)
class EntityItem:
    """An entity in a result. `score` is the cosine similarity to the question, None where it was not scored.

    Attributes:
        matched: why a local entity is there: name (the question names it) or vector (it is among the nearest to the
            question, and may be named too). Empty elsewhere.
    """

    entity_id: str
    name: str
    type: str
    description: str
    layer: int
    score: float | None = None
    matched: str = ""


@dataclass(frozen=True, slots=True)
class CommunityItem:
    """A community in a result, with its report. `hits` counts the local entities that it holds.

    Attributes:
        report_missing: whether its report is not written yet. `title` and `report` are then its main members.
    """

    community_id: str
    level: int
    title: str
    report: str
    rating: float
    hits: int
    score: float
    report_missing: bool = False


@dataclass(slots=True, unsafe_hash=True)
class PathItem:
    """A shortest path between two consecutive key entities (Eq. 15); empty `entity_ids` when unconnected."""

    source_id: str
    target_id: str
    entity_ids: tuple[str, ...]
    entity_names: tuple[str, ...]

    @property
    def connected(self) -> bool:
        """Return whether the pair is joined in the graph."""
        return bool(self.entity_ids)


@dataclass(slots=True, unsafe_hash=True)
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
    """A claim of a text (GraphRAG paper §3.1.2); GraphRAG's tables call them covariates.

    Attributes:
        subject, object: as the claim names them; `object` is empty where there is none.
        subject_id, object_id: the entities of layer 0 of those names; empty where there are none.
        status: true, false or suspected, as a rule; empty where the text does not state it.
        start_date, end_date: ISO 8601, as a rule; empty where the text does not state it.
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

    @property
    def line(self) -> str:
        """The claim on one line, as prompts and contexts show it.

        >>> ClaimItem("c", "Ann", "Bob", "", "", "debt", "suspected", "2020-01-01", "", "Ann owes Bob.", "", "").line
        'Ann → Bob, debt (suspected, from 2020-01-01): Ann owes Bob.'
        """
        head = " → ".join(filter(None, (self.subject, self.object)))
        dates = [f"{word} {day}" for word, day in (("from", self.start_date), ("to", self.end_date)) if day]
        details = ", ".join(filter(None, (self.status, " ".join(dates))))
        what = ", ".join(filter(None, (head, self.type))) + (f" ({details})" if details else "")
        return f"{what}: {self.description}"


@dataclass(frozen=True, slots=True)
class SourceItem:
    """A chunk behind what was retrieved, with its place in its document (characters, half open).

    Attributes:
        metadata: of the document, by field; a date is an ISO 8601 text. Fields without a value are absent.
        places: pages, sections, rows and the like of the original; empty where the reader knows none.
        score: rank score: share of the random walk, or the relevance that a reranker gives.
        similarity: cosine similarity to the question; None where no question was asked, and in map-reduce modes.
    """

    chunk_id: str
    document_id: str
    title: str
    uri: str
    start: int
    end: int
    text: str
    score: float
    metadata: Mapping[str, MetadataValue] = field(default_factory=dict)
    places: tuple[Place, ...] = ()
    similarity: float | None = None


@dataclass(frozen=True, slots=True)
class Query:
    """A question and how to look for its answer. None takes the configured default.

    Attributes:
        mode: hirag, local, global, bridge, nobridge, naive, flat or graphrag-local; None the configured one.
            For an answer also graphrag-global or text-map-reduce, which ask a model about every part of the corpus.
        top_n: local entities (Eq. 12).
        top_m: key entities of each community (Eq. 14).
        top_c: communities at most.
        community_level: leaf, all, or a level number as text.
        context_tokens: limit of the rendered context, at least 200.
        vector: (dim,) the question's embedding, where the caller has it: any sequence of numbers.
        labels: what every document searched must carry; a wish, within `reach`.
        filter: expression over metadata that every document searched must meet, within `reach`; empty for none.
        as_of: date or time, ISO 8601, that no document searched is later than; empty for none.
        reach: the labels that the caller holds, which decide what may be seen; None: everything may.
    """

    question: str
    mode: str | None = None
    top_n: int | None = None
    top_m: int | None = None
    top_c: int | None = None
    community_level: str | None = None
    context_tokens: int | None = None
    vector: Numbers | None = None
    labels: tuple[str, ...] = ()
    filter: str = ""
    as_of: str = ""
    reach: frozenset[str] | None = None


class QueryOptions(TypedDict, total=False):
    """Fields of `Query` besides the question, as keyword arguments."""

    mode: str | None
    top_n: int | None
    top_m: int | None
    top_c: int | None
    community_level: str | None
    context_tokens: int | None
    vector: Numbers | None
    labels: tuple[str, ...]
    filter: str
    as_of: str
    reach: frozenset[str] | None


def as_query(query: Query | str, options: QueryOptions) -> Query:
    """Return a question as a `Query` with the options applied.

    Raises:
        TypeError: an option has no such name, or the question is neither a text nor a `Query`.
    """
    if not isinstance(query, str | Query):
        raise TypeError(f"question: expected a text or a Query, got {type(query).__name__}")
    for name in options:
        if name not in QueryOptions.__annotations__:
            near = get_close_matches(name, QueryOptions.__annotations__, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(QueryOptions.__annotations__)}"
            raise TypeError(f"a query has no option {name!r}; {hint}")
    return Query(query, **options) if isinstance(query, str) else replace(query, **options)


@dataclass(frozen=True, slots=True)
class MapWork:
    """Counts of a map-reduce: its calls and their results. Before the calls are made, the results are 0.

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
        unreported: communities that no report stands for, nor the reports of those below: what they hold is not read.
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
    unreported: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class Retrieval:
    """Retrieval result of a question: each level, and the context rendered from them.

    Attributes:
        key_entities: top-m members of each retrieved community, in the order that the bridge walks (Eq. 14).
        paths: one per consecutive pair of key entities; unconnected pairs are there too.
        local: entities that the question names, then the nearest.
        context_refs: reference in the context ("E3", "S1") → id of the entity, relation, claim, community or chunk.
        timings_ms: embed, search, communities, bridge, sources, render, total.
        partial: levels that the deadline cut off.
        note: why nothing was retrieved, where the question itself is the cause; why the sources are not reranked; that
            no community is as deep as `community_level`; else empty.
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
    note: str = ""

    @property
    def missing_reports(self) -> tuple[str, ...]:
        """The communities of the result whose reports are not written; members stand in their places."""
        return tuple(item.community_id for item in self.communities if item.report_missing)

    def __repr__(self) -> str:
        counts = {
            "entities": self.local,
            "communities": self.communities,
            "paths": [path for path in self.paths if path.connected],
            "triples": self.triples,
            "sources": self.sources,
        }
        found = ", ".join(f"{len(items)} {name}" for name, items in counts.items() if items) or "nothing"
        partial = f", without {', '.join(self.partial)}" if self.partial else ""
        note = f" ({self.note})" if self.note else ""
        return f"<Retrieval {self.mode} of {self.question!r}: {found}{partial}{note}>"


@dataclass(frozen=True, slots=True)
class Citation:
    """One reference of an answer: `kind` is entity, relation, claim, community or chunk; `ref` stands in the text.

    Attributes:
        document_id, uri: of a cited chunk; empty for other kinds.
        places: stretches of that document that support the text: the sentences that state it, or the whole chunk where
            no sentence clearly does.
    """

    ref: str
    kind: str
    id: str
    title: str
    document_id: str = ""
    uri: str = ""
    places: tuple[Place, ...] = ()


_SHORTFALLS = {
    "length": "a token limit of the model cut the answer off",
    "content_filter": "the content filter of the model's endpoint cut the answer off",
    "repetition": "the model repeated itself and was stopped; a larger model answers better",
}


@dataclass(frozen=True, slots=True, repr=False)
class Answer:
    """An answer with the items it cites. `dropped_citations` counts references that named nothing.

    Tokens are those of all calls, the calls of a map-reduce included. `finish_reason` is `stop` for a complete answer;
    `length` says that a token limit cut it off, `content_filter` that the endpoint's filter did, `repetition` that the
    model repeated itself and was read no further.
    """

    text: str
    citations: tuple[Citation, ...]
    dropped_citations: int
    retrieval: Retrieval
    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    finish_reason: str = "stop"

    @property
    def shortfall(self) -> str:
        """Why the answer is incomplete; empty for a complete one."""
        return _SHORTFALLS.get(self.finish_reason, "")

    def __repr__(self) -> str:
        text = shorten(self.text, 200, placeholder="…")
        return f"<Answer {text!r}, {len(self.citations)} citations, {self.retrieval!r}>"

    def __str__(self) -> str:
        return self.text
