"""Estimates before any call: the cost of a build or an update, and the calls of a build that begins.

A build is an update of nothing. Documents, and the chunks to extract, are counted: INPUT is read and compared by
content with the index. For a build the rest follows from ratios that were measured with the built-in model on the
sample corpus (60 chunks) and Mix (576 chunks, 644,008 tokens), where the tokens of every large stage came out within a
quarter and its calls within a third; for an update it follows from averages of the index and from its budget. How many
texts an update makes due depends on what its texts name, so a range is told beside the number. A real model finds more
or fewer entities and writes longer or shorter texts: expect a factor of two.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from tiktoken import Encoding

from hirag_dist.config.model import META_TYPES, Config, EndpointConfig, RoleTarget, shares
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
from hirag_dist.core.retrieval.places import record_name
from hirag_dist.core.text.ids import chunk_id, document_id, text_key, text_keys
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.core.text.tokens import chunk_spans, counter, encoding
from hirag_dist.execution.dataset import Dataset
from hirag_dist.execution.events import CallsExpected
from hirag_dist.indexing.base import UpdateBase, check_embedder, open_configured
from hirag_dist.indexing.budget import is_unbounded, least_extraction
from hirag_dist.indexing.changed_documents import DocumentCounts, extraction_tokens, kept_beside, kept_places
from hirag_dist.indexing.context import BuildContext
from hirag_dist.indexing.descriptions import DESCRIPTION_SHARE
from hirag_dist.indexing.documents import UnreadRecords
from hirag_dist.indexing.inputs import read_options
from hirag_dist.indexing.metadata import field_changes
from hirag_dist.indexing.read_files import held_places, places_of
from hirag_dist.indexing.stages.embed import CHUNKS_PER_TASK, ENTITIES_PER_TASK
from hirag_dist.indexing.stages.packed_calls import MAX_UNITS
from hirag_dist.indexing.stages.read import unit_of_letter
from hirag_dist.indexing.stages.resolve import PAIRS_PER_CALL
from hirag_dist.indexing.stages.summarise import EXCERPT_CHARS, N_EXCERPTS
from hirag_dist.llm.endpoints.onnx_models import BATCH_SIZE
from hirag_dist.llm.usage import dollars, total_cost
from hirag_dist.readers import Document, find_inputs, missing_packages, read_source
from hirag_dist.storage.snapshot.manifest import OpenTexts
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.types import ChatRequest, IntVector

logger = logging.getLogger(__name__)
EXTRACT, CLAIMS = "extract", "claims"  # stages of the calls that read chunks
# Reply of an extraction, in tokens: per token of text, as lines and as JSON, and at least per call.
OUT_PER_TOKEN, JSON_OUT_PER_TOKEN, MIN_OUT = 1.3, 2.05, 150
# Distinct entities of layer 0 per token of text, in a corpus of so many tokens. A small one repeats itself less: its
# share is larger by (ENTITIES_TOKENS / tokens) ** ENTITIES_EXPONENT.
ENTITIES_PER_TOKEN, ENTITIES_TOKENS, ENTITIES_EXPONENT = 0.0133, 644_000, 0.06
CLAIMS_OUT_PER_TOKEN = 0.8  # per token of text: 0.55 and 1.01 in two recorded GraphRAG indexes
CLAIM_NAMES_PER_TOKEN = 0.06  # tokens of the entity names shown, per token of text, in the same two
# Entities whose descriptions a model merges, × description_tokens per chunk (0.043 and 0.033 a chunk at 400 tokens, for
# Mix and the sample corpus), the descriptions that it reads in shares of description_tokens, and the tokens of a reply.
DESCRIBED_PER_CHUNK, DESCRIBE_IN, DESCRIBE_OUT = 16.0, 1.5, 240
MAX_DESCRIBED = 50_000  # about the most tokens of descriptions that are merged in one call
QUESTIONS_PER_ENTITY = 0.03  # pairs that entity resolution asks about; 0.01 to 0.09 in graphs of real models
QUESTION_IN, QUESTION_OUT = 180, 25
# Members of clusters per entity (one of two clusters counts twice), clusters × target_size per entity, and entities per
# summary of a cluster. All layers of Mix have 1.082, 1.29, 1.60 with `hashing`, and 1.016, 1.06, 1.92 with `minilm`.
MEMBERS_PER_ENTITY, CLUSTERS_PER_ENTITY, SUMMARIES_PER_CLUSTER = 1.05, 1.17, 1.75
MEMBER_IN, MEMBER_IN_ABOVE, MEMBER_OUT = 54, 104, 13  # tokens per member: entities, summaries, and of the reply
MEMBER_NAMED = 12  # tokens of a member's number, name and type
COMMUNITIES_PER_ROOT = 0.55  # communities of a level / square root of its entities
REPORT_IN_PER_ENTITY, REPORT_OUT = 85, 660  # tokens of an entity with its relations, and of a report
REPORT_FILLED = 0.85  # share of communities.report_tokens that the material of a report fills at most
_SIZE_EXPONENT = 0.8  # the largest share s of communities has s ** 0.8 of the tokens; measured on Mix, 0.1 to 0.5
SUMMARIES_PER_CALL, REPORTS_PER_CALL = 5.7, 4.8  # units that share one call, with the tokens of a pack below
SUMMARY_PACK_TOKENS, REPORT_PACK_TOKENS = 8000, 12000
# Of 28 updates of the sample corpus by 1 to 4 documents, each made between half and twice as many texts due as it
# filled groups, × staleness ** -_SCATTER: some of what a document adds lies in groups of other documents.
_FEWEST_DUE, _SCATTER = 0.5, 0.2
_MOST_MOVED = 0.5  # share of the text that comes or goes, beyond which all texts are made anew
_MOST_GROWTH = 2.0  # factor by which an index grows or shrinks, up to which its number of texts is scaled by its tokens
_MOST_SCALE = 2.0  # maximum factor between the extraction of the base and the usual one
TOKENS_PER_ENTITY = 60  # embedded
UNKNOWN_CONCURRENCY = 32  # calls at a time where the configuration leaves it to be found
NO_SPEEDS: Mapping[str, float] = {}
FIRST_TOKEN_S, S_PER_TOKEN = 1.0, 1 / 60  # assumed latency of a call where the speed of its endpoint is not known


@dataclass(frozen=True)
class StageEstimate:
    """One stage at one endpoint: expected calls, tokens, cost and time.

    Attributes:
        cost_usd: US dollars; None where the endpoint's price is not known.
        seconds: The largest of calls / rpm, tokens / tpm, and the time of the replies: their tokens at the known speed,
            or calls × assumed latency / max_concurrent. 0 for built-in models. An estimate, as the calls are: an
            endpoint may be faster or slower.
        bound: which of these it is: rpm, tpm, speed or concurrency; empty for built-in models.
    """

    stage: str
    endpoint: str
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    seconds: float
    bound: str = ""


@dataclass(frozen=True)
class DueEstimate:
    """Texts of one kind that an update makes due, about.

    Attributes:
        due: Texts whose material changes by `update.staleness` or more, or that derive from removed text.
        written: Due texts that the budget pays.
        tokens: Tokens of the texts that are written.
        due_range: Smallest and largest number of due texts to expect: which entities a new text names is not known.
    """

    total: int = 0
    due: int = 0
    written: int = 0
    tokens: int = 0
    due_range: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class CostEstimate:
    """Estimate of a build, or of the update of an index.

    Attributes:
        documents: Documents of the index afterwards.
        duplicates: Copies that are left out.
        unreadable: (name, reason) of what cannot be read.
        changes: Documents added, changed and removed; exact.
        chunks, tokens: Chunks whose text the index does not have, which are extracted, and their tokens; exact.
        stages: one for each stage and endpoint of its role. Replies that an index's ledger already holds are not
            known here: they cost nothing again.
        seconds: Times of the stages one after the other, the endpoints of one stage side by side; an estimate.
        windows: Role → tokens of its models' context window, to which the sizes were cut.
        speeds: Endpoint → tokens a second of its replies that the times rest on.
        metadata_fields: Names of declared fields that are `gone` since the index was built, `new` and `changed`.
        base: Id of the snapshot that is updated; empty for a build from nothing.
        rebuilt_because: Why an index that exists would be built from nothing; empty for an update and a new index.
        descriptions, summaries, reports: Texts that an update writes again, about; of the descriptions, those of
            entities that many chunks name.
        extraction_tokens: Tokens of the extraction of changed documents, by the average of the index; of removed ones
            the tokens that it has cost.
        budget_tokens: Tokens that the update may spend in all; None for no bound: the built-in model has none.
    """

    documents: int
    duplicates: int
    unreadable: tuple[tuple[str, str], ...]
    changes: DocumentCounts
    chunks: int
    tokens: int
    stages: tuple[StageEstimate, ...] = ()
    seconds: float = 0.0
    windows: Mapping[str, int] = field(default_factory=dict)
    speeds: Mapping[str, float] = field(default_factory=dict)
    metadata_fields: Mapping[str, Sequence[str]] = field(default_factory=dict)
    base: str = ""
    rebuilt_because: str = ""
    descriptions: DueEstimate = DueEstimate()
    summaries: DueEstimate = DueEstimate()
    reports: DueEstimate = DueEstimate()
    extraction_tokens: int = 0
    budget_tokens: int | None = None

    def __repr__(self) -> str:
        material = f"{count_noun(self.documents, 'document')}, {count_noun(self.chunks, 'chunk')} to extract"
        work = f"{count_noun(self.calls, 'call')}, {dollars(self.cost_usd)}, {self.seconds:.0f} s"
        return f"<CostEstimate {material}: {work}>"

    @property
    def calls(self) -> int:
        """Calls of all stages."""
        return sum(stage.calls for stage in self.stages)

    @property
    def cost_usd(self) -> float | None:
        """Cost of all stages; None where the price of an endpoint is not known."""
        return total_cost(stage.cost_usd for stage in self.stages)


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
        unreadable: (name, reason) of what could not be read.
        unread: places of which an update keeps what the index has.
        refused: places of which nothing stays, because access rules refuse what is there.
        places: (path, record) of what was read, copies too.
    """

    documents: Mapping[str, PlannedDocument]
    duplicates: int
    unreadable: tuple[tuple[str, str], ...]
    unread: UnreadRecords
    refused: UnreadRecords
    places: frozenset[tuple[str, int]]


def estimate_build(
    inputs: Sequence[str],
    config: Config,
    prompts: Prompts,
    speeds: Mapping[str, float] = NO_SPEEDS,
    *,
    snapshot: Snapshot | None = None,
    add: bool = False,
    vectors: tuple[str, int] | None = None,
) -> CostEstimate:
    """Read INPUT and estimate its index, or the update that makes an index equal to it.

    Args:
        speeds: Endpoint → tokens a second of its replies, all calls together, where that is known.
        snapshot: Current snapshot of the index that is updated; None for a new index.
        add: Estimate the addition of INPUT: documents of the index stay, except those of the same place.
        vectors: Identity of the configured embedder and the dimensions of its vectors; None: as the index has them.

    Raises:
        ConfigError: the embedder is not that of the index, or its field of labels is not named.
    """
    known, reason = (None, "") if snapshot is None else open_configured(snapshot, config)
    base = UpdateBase() if known is None else known
    if not base.is_nothing and vectors is not None:
        check_embedder(base.snapshot, {**base.note.decisive, "embedder": vectors[0], "dim": vectors[1]})
    planned = _with_kept(base, read_planned(inputs, config), everything=add)
    changed = _changed(base, planned)
    made = CostEstimate(
        len(planned.documents),
        planned.duplicates,
        planned.unreadable,
        changed.counts,
        changed.chunks,
        changed.tokens,
        speeds=dict(speeds),
        metadata_fields={} if snapshot is None else field_changes(UpdateBase(snapshot), config.metadata),
        base="" if base.is_nothing else base.snapshot_id,
        rebuilt_because=reason,
    )
    if base.is_nothing:
        works = list(works_of_build(changed.chunks, changed.tokens, config, prompts))
    elif changed.counts:
        described = _described_again(base, changed, config, prompts)
        made = replace(made, **_within_budget(base, changed, described, config, prompts))
        works = [*_works_of_update(base, changed, described, made, config, prompts)]
    else:
        return made
    stages, seconds = stages_of(works, config, speeds)
    return replace(made, stages=stages, seconds=seconds)


def read_planned(inputs: Sequence[str], config: Config) -> PlannedInput:
    """Read INPUT and cut it into chunks."""
    tokens, options = encoding(config.tokenizer), read_options(config.reading, config.metadata)
    documents: dict[str, PlannedDocument] = {}
    unreadable: list[tuple[str, str]] = []
    letters: list[tuple[str, str]] = []
    places: list[tuple[str, int]] = []
    copies = 0
    sources = find_inputs(inputs, follow_links=config.reading.follow_links)
    if notice := missing_packages(sources):
        logger.warning("%s", notice)
    for source in sources:
        for read in read_source(source, options):
            if not isinstance(read, Document):
                shown = source.display if read.is_file else record_name(source.display, read.record)
                unreadable.append((shown, read.reason))
                letters.append((unit_of_letter(source.name, read), read.reason))
                continue
            places.append((source.name, read.record))
            identity = document_id(read.text, read.labels)
            if identity in documents:
                copies += 1
                continue
            chunks = [
                (text_key(chunk_id("", 0, 0, text)), n_tokens)
                for text, n_tokens in _chunk_texts(read.text, tokens, config)
            ]
            documents[identity] = PlannedDocument(f"{source.name}#{read.record}", tuple(chunks))
    unread, refused = UnreadRecords.of(letters, {source.name for source in sources}, places)
    return PlannedInput(documents, copies, tuple(unreadable), unread, refused, frozenset(places))


def _chunk_texts(text: str, tokens: Encoding, config: Config) -> Iterator[tuple[str, int]]:
    """Yield the text and the tokens of each chunk."""
    if config.chunking == "none":
        yield text, len(tokens.encode_ordinary(text))
        return
    at_sentences = config.chunking == "sentences"
    for span in chunk_spans(text, tokens, config.chunk_tokens, config.chunk_overlap_tokens, at_sentences):
        yield text[span.start : span.end], span.n_tokens


def _with_kept(base: UpdateBase, planned: PlannedInput, *, everything: bool) -> PlannedInput:
    """Return the documents of INPUT and those of the base that stay: everything elsewhere, or what was unreadable."""
    if base.is_nothing or not (everything or planned.unread.records):
        return planned
    chunks = base.table("chunks", ["chunk_id", "document_id", "n_tokens"])
    of_document: dict[str, list[tuple[int, int]]] = {}
    keys, tokens = text_keys(chunks["chunk_id"]).tolist(), chunks["n_tokens"].to_pylist()
    for own, key, n_tokens in zip(chunks["document_id"].to_pylist(), keys, tokens, strict=True):
        of_document.setdefault(own, []).append((key, n_tokens))
    places = held_places(base)
    if everything:
        kept, _ = kept_beside(places, planned.places, [place in planned.refused for place in places_of(places)])
    else:
        kept, _ = kept_places(places, [place in planned.unread for place in places_of(places)])
    documents = dict(planned.documents)
    for own, (uri, record) in zip(kept["document_id"].to_pylist(), places_of(kept), strict=True):
        documents.setdefault(own, PlannedDocument(f"{uri}#{record}", tuple(of_document.get(own, ()))))
    return replace(planned, documents=documents)


@dataclass(frozen=True)
class _Changes:
    """Documents and chunks that differ from the base.

    Attributes:
        chunks, tokens: Chunks whose text the base does not have, and their tokens.
        document_chunks, document_tokens: All chunks of added and changed documents, and their tokens.
        moved_tokens: Tokens of texts that come or go; of a document that changes, the larger of what comes and goes.
        gone_tokens: Tokens of texts that no chunk has any more.
        removed_keys: Keys of texts of removed documents that no chunk has any more.
    """

    counts: DocumentCounts
    chunks: int
    tokens: int
    document_chunks: int
    document_tokens: int
    moved_tokens: int
    gone_tokens: int
    removed_extraction: int
    removed_tokens: int
    removed_keys: IntVector


def _changed(base: UpdateBase, planned: PlannedInput) -> _Changes:
    before = base.table("documents", ["document_id", "uri", "record"]).to_pylist()
    gone = {row["document_id"]: f"{row['uri']}#{row['record']}" for row in before}
    new = {own: document for own, document in planned.documents.items() if own not in gone}
    gone = {own: place for own, place in gone.items() if own not in planned.documents}
    replaced = {document.place for document in new.values()} & set(gone.values())
    n_changed = len(replaced)
    chunks = base.table("chunks", ["chunk_id", "document_id", "n_tokens"])
    keys = text_keys(chunks["chunk_id"])
    known = set(keys.tolist())
    added = [
        (document.place in replaced, tokens)
        for document in new.values()
        for key, tokens in document.chunks
        if key not in known
    ]
    left = pc.is_in(chunks["document_id"], value_set=pa.array(list(gone), pa.string())).to_numpy()
    removed_ids = pa.array([own for own, place in gone.items() if place not in replaced], pa.string())
    removed = pc.is_in(chunks["document_id"], value_set=removed_ids).to_numpy()
    present = np.array([key for document in planned.documents.values() for key, _ in document.chunks], np.int64)
    sizes = chunks["n_tokens"].to_numpy()
    is_gone = left & ~np.isin(keys, present)
    come, go = (sum(tokens for stays, tokens in added if stays), int(sizes[is_gone & ~removed].sum()))
    moved = sum(tokens for stays, tokens in added if not stays) + int(sizes[is_gone & removed].sum()) + max(come, go)
    return _Changes(
        DocumentCounts(len(new) - n_changed, n_changed, len(gone) - n_changed),
        len(added),
        sum(tokens for _, tokens in added),
        sum(len(document.chunks) for document in new.values()),
        sum(tokens for document in new.values() for _, tokens in document.chunks),
        moved,
        int(sizes[is_gone].sum()),
        0 if base.is_nothing else extraction_tokens(base, chunks.filter(pa.array(removed))),
        int(sizes[removed].sum()),
        np.setdiff1d(keys[removed], present),
    )


def _within_budget(
    base: UpdateBase, changed: _Changes, described: Work, config: Config, prompts: Prompts
) -> dict[str, Any]:
    """Return the fields of an estimate about the budget of an update, and about the due texts that it pays."""
    reading = _extraction(base, changed.document_chunks, changed.document_tokens, config, prompts)
    extraction = int(sum(work.input_tokens + work.output_tokens for work in reading)) + changed.removed_extraction
    n_tokens = changed.document_tokens + changed.removed_tokens
    extraction = max(extraction, least_extraction(config.extraction.method, n_tokens))
    budget = None if is_unbounded(config) else int(config.update.max_ratio * extraction)
    kinds = _due_texts(base, changed, config)
    wanted = sum(text.tokens for text in kinds.values())
    asked = described.input_tokens + described.output_tokens
    rest = math.inf if budget is None else max(budget - extraction, 0)
    paid = min(1.0, rest * DESCRIPTION_SHARE / asked) if asked else 1.0
    n_due, n_written = round(described.calls), math.floor(described.calls * paid)
    due_range = (math.floor(described.calls / 2), math.ceil(described.calls * 2))  # by what the texts name
    n_entities = base.layer_entities(0)[0].num_rows
    descriptions = DueEstimate(n_entities, n_due, n_written, int(asked * paid), due_range)
    share = min(1.0, max(rest - asked * paid, 0) / wanted) if wanted else 1.0
    due = {
        name: replace(text, written=math.floor(text.due * share), tokens=int(text.tokens * share))
        for name, text in kinds.items()
    }
    return {"extraction_tokens": extraction, "budget_tokens": budget, "descriptions": descriptions, **due}


def _corpus_tokens(base: UpdateBase) -> int:
    """Return the tokens of all chunks of the base."""
    return pc.sum(base.table("chunks", ["n_tokens"])["n_tokens"]).as_py() or 0


def _due_texts(base: UpdateBase, changed: _Changes, config: Config) -> Mapping[str, DueEstimate]:
    """Return summaries and reports that become due, with their tokens, before any bound."""
    counts = base.snapshot.manifest.counts
    replies = base.note.reply_tokens
    before = _corpus_tokens(base)
    after = max(before + changed.tokens - changed.gone_tokens, 0)
    growth = max(after / max(before, 1), 1.0)
    all_due = changed.moved_tokens > _MOST_MOVED * before
    scale = after / max(before, 1)
    if all_due and not 1 / _MOST_GROWTH <= scale <= _MOST_GROWTH:
        return _due_when_made_new(after, config)
    moved = counts["mentions"] / max(before, 1) * changed.moved_tokens
    layers = base.table("layers").to_pylist()
    clustered = sum(int(row["n_entities"]) for row in layers if row["n_clusters"])
    per_entity = counts["clusters"] / max(clustered, 1)  # clusters that an entity is a member of
    here, tokens, total, touched = moved, 0.0, 0, 0.0
    summaries, staleness = np.zeros(3), config.update.staleness
    for row in layers:
        touched += here
        n_clusters = int(row["n_clusters"] or 0)
        if not n_clusters:
            break
        size = row["n_entities"] * per_entity / n_clusters
        due = _groups_due(here, size / per_entity, n_clusters, staleness)
        due = np.full(3, n_clusters * scale) if all_due else due
        summaries, total = summaries + due, total + n_clusters
        tokens += due[1] * (size * member_tokens(config, row["layer"]) + replies[0])
        here = due[1] * SUMMARIES_PER_CLUSTER
    urgent = _deriving(base.table("summaries"), changed.removed_keys)
    if urgent > summaries[1]:
        usual = config.clustering.target_size * member_tokens(config, 0) + replies[0]
        tokens = urgent * (tokens / summaries[1] if summaries[1] else usual)
    summaries = _with_urgent(summaries, urgent)
    n_missing = base.snapshot.manifest.missing_reports  # they are not due
    n_reports = base.table("report_inputs").num_rows - n_missing
    n_communities = n_reports + n_missing
    size = counts["entities"] / max(n_communities, 1)
    reports = _groups_due(touched, size, n_reports, staleness) * n_reports / max(n_communities, 1)
    reports = np.full(3, n_reports * scale) if all_due else reports
    if not n_missing:
        reports = _with_urgent(reports, _deriving(base.table("report_inputs"), changed.removed_keys))
    report = min(size * REPORT_IN_PER_ENTITY, REPORT_FILLED * config.communities.report_tokens) + replies[1]
    return {
        "summaries": _due_estimate(round(total * growth), summaries, tokens),
        "reports": _due_estimate(round(n_reports * growth), reports, reports[1] * report),
    }


def _due_when_made_new(n_tokens: int, config: Config) -> Mapping[str, DueEstimate]:
    """Return all summaries and reports of a corpus: where most of its text comes or goes, little stays as it was."""
    entities = _entities(n_tokens)
    summaries = _summaries(entities, config)
    reports = _reports(entities + summaries.above, config)
    return {
        name: DueEstimate(
            n := round(texts.n_texts),
            n,
            0,
            int(texts.input_tokens + texts.output_tokens),
            (math.floor(texts.n_texts / 2), math.ceil(2 * texts.n_texts)),
        )
        for name, texts in (("summaries", summaries), ("reports", reports))
    }


def _due_estimate(total: int, due: NDArray[np.float64], tokens: float) -> DueEstimate:
    """Return an estimate of due texts, at most as many as there are.

    Args:
        total: Texts of the index after the update.
        due: The fewest to expect, about, and the most.
        tokens: Tokens of the number in the middle.
    """
    tokens *= min(total / max(due[1], 1e-9), 1.0)
    due = np.minimum(due, total)
    most = math.ceil(due[2]) + (due[2] > 0)  # a few words that change one text may change the one above too
    return DueEstimate(total, round(due[1]), 0, int(tokens), (math.floor(due[0]), min(int(most), total)))


def _with_urgent(due: NDArray[np.float64], urgent: int) -> NDArray[np.float64]:
    """Return due texts with those that derive from removed text, some of which go with their group."""
    return np.maximum(due, [urgent * _FEWEST_DUE, urgent, urgent + due[1] if urgent else 0.0])


def _groups_due(changed: float, size: float, n_groups: int, staleness: float) -> NDArray[np.float64]:
    """Return how many groups changed members make due: the fewest to expect, about, and the most.

    What a document adds or removes stands together in the graph: it fills or empties some groups, and its rest lies
    in others. That makes about as many due as the changed members fill; at the most all that they fill just so far
    that each is due.

    Args:
        changed: Members that come, go or change.
        size: Members of a group, on average.
        staleness: Share of changed members from which a group is due.

    >>> _groups_due(40.0, 20.0, 100, 1.0).tolist(), _groups_due(40.0, 20.0, 100, 0.2).round(1).tolist()
    ([1.0, 2.0, 2.0], [1.0, 2.8, 10.0])
    """
    filled = changed / max(size, 1.0)
    most = min(filled / staleness if staleness else changed, n_groups + filled)
    return np.array([filled * _FEWEST_DUE, min(filled * staleness**-_SCATTER if staleness else most, most), most])


def _deriving(state: pa.Table, removed_keys: IntVector) -> int:
    """Return the number of texts that derive from removed text."""
    sources = state["sources"].combine_chunks()
    hit = pc.is_in(sources.flatten(), value_set=pa.array(removed_keys, pa.int64()))
    return len(pc.unique(pc.list_parent_indices(sources).filter(hit)))


def _described_again(base: UpdateBase, changed: _Changes, config: Config, prompts: Prompts) -> Work:
    """Return the work of merging descriptions again: of entities that many chunks name, where one more names them.

    Those that earlier updates put off are due too.
    """
    n_chunks = base.snapshot.manifest.counts["chunks"]
    some = next(filter(len, base.snapshot.pieces("mentions", ["description"])), None)
    each = 0.0 if some is None else pc.mean(pc.utf8_length(some["description"])).as_py() / CHARS_PER_TOKEN
    named = pc.list_value_length(base.layer_entities(0)[0]["chunk_ids"]).to_numpy().astype(np.float64)
    shown = named * each
    many = shown > config.description_tokens
    n_moved = changed.moved_tokens * n_chunks / max(_corpus_tokens(base), 1)
    share = np.minimum(named[many] / max(n_chunks, 1), 1)
    touched = 1 - (1 - share) ** n_moved  # chance that one of the moved chunks names it
    calls = float(touched.sum())
    fixed = counter(config.tokenizer)(describe_request("", "", [], prompts, 1).messages[0].content)
    owed = base.note.debt.get("descriptions", OpenTexts(units=0, tokens=0))
    return Work(
        "describe",
        config.llm.roles.summarise,
        calls + owed.units,
        float(touched @ np.minimum(shown[many], MAX_DESCRIBED)) + calls * fixed + owed.tokens,
        calls * min(DESCRIBE_OUT, config.description_tokens),
    )


def _works_of_update(
    base: UpdateBase, changed: _Changes, described: Work, made: CostEstimate, config: Config, prompts: Prompts
) -> Iterator[Work]:
    """Yield the work of an update: reading its chunks, the texts that its budget pays, and the vectors."""
    roles, counts = config.llm.roles, base.snapshot.manifest.counts
    if changed.chunks:
        yield from _extraction(base, changed.chunks, changed.tokens, config, prompts)
    share = made.descriptions.tokens / max(described.input_tokens + described.output_tokens, 1)
    yield replace(
        described,
        calls=described.calls * share,
        input_tokens=described.input_tokens * share,
        output_tokens=described.output_tokens * share,
    )
    summary, report = base.note.reply_tokens
    for stage, target, text, reply, per_call in (
        ("summarise", roles.summarise, made.summaries, summary, summaries_per_call(config)),
        ("reports", roles.report, made.reports, report, reports_per_call(config)),
    ):
        written = min(text.written * float(reply), float(text.tokens))
        yield Work(stage, target, text.written / per_call, text.tokens - written, written)
    extracted, *above = base.table("layers", ["n_entities"])["n_entities"].to_pylist()
    share_written = made.summaries.written / max(made.summaries.total, 1)
    entities = [extracted * changed.chunks / max(counts["chunks"], 1), *(size * share_written for size in above)]
    calls = embedding_calls(config, entities, changed.chunks)
    yield Work("embed", roles.embed, calls, changed.tokens + sum(entities) * TOKENS_PER_ENTITY, 0)


def _extraction(base: UpdateBase, n_chunks: int, n_tokens: int, config: Config, prompts: Prompts) -> tuple[Work, ...]:
    """Return the work of reading chunks, in proportion to what the extraction of the base has cost."""

    def read(n_chunks: int, n_tokens: int) -> list[Work]:
        return [work for work in works_of_build(n_chunks, n_tokens, config, prompts) if work.stage in (EXTRACT, CLAIMS)]

    before = _corpus_tokens(base)
    whole = read(base.snapshot.manifest.counts["chunks"], before)
    guess = sum(work.input_tokens + work.output_tokens for work in whole)
    scale = base.note.extraction_per_token * before / guess if guess else 0.0
    scale = min(max(scale, 1 / _MOST_SCALE), _MOST_SCALE) if scale else 1.0  # few chunks tell little
    return tuple(
        replace(work, input_tokens=work.input_tokens * scale, output_tokens=work.output_tokens * scale)
        for work in read(n_chunks, n_tokens)
    )


def stages_of(
    works: Iterable[Work], config: Config, speeds: Mapping[str, float] = NO_SPEEDS
) -> tuple[tuple[StageEstimate, ...], float]:
    """Return the stages of the work at the endpoints of its roles, and their time one after the other, in seconds."""
    stages: list[StageEstimate] = []
    seconds = 0.0
    for work in works:
        parts = list(_shares(work, config, speeds))
        stages += parts
        seconds += max(part.seconds for part in parts)
    return tuple(stages), seconds


def works_of_build(n_chunks: int, n_tokens: int, config: Config, prompts: Prompts) -> Iterator[Work]:
    """Yield the work of an index built from nothing, stage by stage."""
    roles = config.llm.roles
    count = counter(config.tokenizer)

    def system(request: ChatRequest) -> int:
        return count(request.messages[0].content)

    entities = _entities(n_tokens)
    if config.extraction.method != "nlp":
        passes = (2 if config.extraction.calls == "two_step" else 1) * (1 + config.gleaning_rounds)
        calls = n_chunks * passes
        fixed = system(extraction_request("extract-graph", "", prompts, config.entity_types, None))
        # Two steps, or several rounds, write the same records in parts.
        written = max(n_tokens * _out_per_token(config), calls * MIN_OUT)
        yield Work(EXTRACT, roles.extract, calls, n_tokens * passes + calls * fixed, written)
    if config.claims:
        shown = n_tokens * (1 + CLAIM_NAMES_PER_TOKEN) + n_chunks * system(claims_request("", [], prompts, None))
        yield Work(CLAIMS, roles.extract, n_chunks, shown, n_tokens * CLAIMS_OUT_PER_TOKEN)
    described = n_chunks * DESCRIBED_PER_CHUNK / config.description_tokens
    shown = DESCRIBE_IN * config.description_tokens + system(describe_request("", "", [], prompts, 1))
    yield Work("describe", roles.summarise, described, described * shown, described * DESCRIBE_OUT)
    if config.resolution.enabled:
        pairs = entities * QUESTIONS_PER_ENTITY
        n_calls = pairs / (PAIRS_PER_CALL if config.pack_tokens else 1)
        shown = pairs * QUESTION_IN + n_calls * system(same_entity_request([], prompts, None))
        yield Work("resolve", roles.summarise, n_calls, shown, pairs * QUESTION_OUT)
    summaries = _summaries(entities, config)
    generated = config.meta_types == "generate"
    if generated and summaries.calls:
        shown = min(n_chunks, N_EXCERPTS) * min(config.chunk_tokens, EXCERPT_CHARS / CHARS_PER_TOKEN)
        yield Work("meta types", roles.summarise, 1, system(meta_types_request([], prompts)) + shown, MIN_OUT)
    fixed = system(summary_request([], prompts, META_TYPES if generated else config.meta_types, None))
    shown = summaries.input_tokens + summaries.calls * fixed
    yield Work("summarise", roles.summarise, summaries.calls, shown, summaries.output_tokens)
    in_graph = entities + summaries.above
    reports = _reports(in_graph, config)
    fixed = system(report_request([], [], [], prompts, None))
    shown = reports.input_tokens + reports.calls * fixed
    yield Work("reports", roles.report, reports.calls, shown, reports.output_tokens)
    calls = embedding_calls(config, [entities, *summaries.layers], n_chunks)
    yield Work("embed", roles.embed, calls, n_tokens + in_graph * TOKENS_PER_ENTITY, 0)


def embedding_calls(config: Config, layers: Iterable[float], n_chunks: int) -> int:
    """Return the calls that embed the entities of layers, and chunks; each task of a stage sends calls of its own."""
    endpoint = config.llm.endpoints[config.llm.roles.embed]
    if endpoint.kind == "hashing":
        return 0
    size = endpoint.batch_size if endpoint.is_remote else BATCH_SIZE
    stages = [(math.ceil(entities), ENTITIES_PER_TASK) for entities in layers]
    tasks = ((divmod(n_texts, n_task), n_task) for n_texts, n_task in (*stages, (n_chunks, CHUNKS_PER_TASK)))
    return sum(whole * math.ceil(n_task / size) + math.ceil(rest / size) for (whole, rest), n_task in tasks)


def _out_per_token(config: Config) -> float:
    """Return the tokens of the replies of an extraction per token of text: JSON takes more than lines."""
    name, _ = shares(config.llm.roles.extract)[0]
    endpoint = config.llm.endpoints[name]
    as_json = endpoint.output == "json_schema" or (endpoint.kind == "openai" and endpoint.output == "auto")
    return JSON_OUT_PER_TOKEN if as_json else OUT_PER_TOKEN


class _Texts(NamedTuple):
    """All summaries or reports of an index, about.

    Attributes:
        input_tokens, output_tokens: Tokens of their material, without instructions, and of the replies.
        layers: Entities that summaries make, by layer.
    """

    n_texts: float
    calls: float
    input_tokens: float
    output_tokens: float
    layers: tuple[float, ...] = ()

    @property
    def above(self) -> float:
        """Entities of all layers above the first."""
        return sum(self.layers)


def _entities(n_tokens: int) -> float:
    """Return the entities of layer 0 in a corpus: a small one has more for its size."""
    more: float = max(ENTITIES_TOKENS / max(n_tokens, 1), 1.0) ** ENTITIES_EXPONENT
    return n_tokens * ENTITIES_PER_TOKEN * more


def _summaries(entities: float, config: Config) -> _Texts:
    """Return the summaries of all layers above some entities."""
    target = config.clustering.target_size
    n_texts = n_calls = tokens_in = tokens_out = 0.0
    layers: list[float] = []
    here = entities
    for layer in range(config.max_layers):
        if here <= target:
            break
        members, clusters_here = here * MEMBERS_PER_ENTITY, here * CLUSTERS_PER_ENTITY / target
        n_texts += clusters_here
        n_calls += math.ceil(clusters_here / summaries_per_call(config))  # layers are summarised one after the other
        tokens_in += members * member_tokens(config, layer)
        tokens_out += members * MEMBER_OUT
        here = min(clusters_here * SUMMARIES_PER_CLUSTER, here * 0.8)
        layers.append(here)
    return _Texts(n_texts, n_calls, tokens_in, tokens_out, tuple(layers))


def member_tokens(config: Config, layer: int) -> float:
    """Return the tokens that a member of a cluster of a layer takes in the prompt of the summary."""
    most = MEMBER_NAMED + config.clustering.member_chars / CHARS_PER_TOKEN
    return min(MEMBER_IN if layer == 0 else MEMBER_IN_ABOVE, most)


def _reports(entities: float, config: Config) -> _Texts:
    """Return the reports of a graph of some entities."""
    largest, limit = config.communities.max_size, config.communities.report_tokens
    share = config.communities.report_share
    total = tokens = n_calls = 0.0
    n_here, inside = 1.0, entities  # groups that are parted, and the entities of each
    while n_here >= 0.5 and inside > 1:
        parts = max(1.0, COMMUNITIES_PER_ROOT * math.sqrt(inside))
        size = inside / parts
        total += n_here * parts
        n_calls += math.ceil(n_here * parts * share / reports_per_call(config))  # a level waits for the one below
        tokens += n_here * parts * min(size * REPORT_IN_PER_ENTITY, REPORT_FILLED * limit)
        if parts == 1.0:
            break
        # Sizes differ: few communities exceed the limit where the mean is a quarter of it, nearly all where it is more.
        n_here, inside = n_here * parts * min(max(size / largest - 0.25, 0.0), 1.0), size
    of_tokens = share**_SIZE_EXPONENT
    return _Texts(total * share, n_calls, tokens * of_tokens, total * REPORT_OUT * of_tokens)


def summaries_per_call(config: Config) -> float:
    """Return how many summaries share a call, about: in proportion to the tokens that may."""
    return min(max(SUMMARIES_PER_CALL * config.pack_tokens / SUMMARY_PACK_TOKENS, 1.0), float(MAX_UNITS))


def reports_per_call(config: Config) -> float:
    """Return how many reports share a call, about."""
    return min(max(REPORTS_PER_CALL * config.pack_tokens / REPORT_PACK_TOKENS, 1.0), float(MAX_UNITS))


def _shares(work: Work, config: Config, speeds: Mapping[str, float]) -> Iterator[StageEstimate]:
    """Yield a stage's part at each endpoint of its role, by weight."""
    targets = shares(work.target)
    whole = sum(weight for _, weight in targets)
    for name, weight in targets:
        endpoint = config.llm.endpoints[name]
        calls, read, written = (round(n * weight / whole) for n in (work.calls, work.input_tokens, work.output_tokens))
        if calls == 0 and work.calls > 0:
            calls = math.ceil(work.calls * weight / whole)
        prices = endpoint.prices
        cost = (read * prices[0] + written * prices[2]) / 1e6 if prices else None if calls else 0.0
        seconds, bound = _time(calls, read, written, endpoint, speeds.get(name))
        yield StageEstimate(work.stage, name, calls, read, written, cost, seconds, bound)


def _time(calls: int, read: int, written: int, endpoint: EndpointConfig, speed: float | None) -> tuple[float, str]:
    """Return the seconds that an endpoint's limits and speed make of the expected calls, and which of these binds."""
    if endpoint.kind != "openai" or not calls:
        return 0.0, ""
    if speed is not None and written:
        bounds = {"speed": written / speed}
    else:
        latency_s = FIRST_TOKEN_S + S_PER_TOKEN * written / calls
        bounds = {"concurrency": calls * latency_s / min(endpoint.max_concurrent or UNKNOWN_CONCURRENCY, calls)}
    if endpoint.rpm is not None:
        bounds["rpm"] = calls / endpoint.rpm * 60
    if endpoint.tpm is not None:
        bounds["tpm"] = (read + written) / endpoint.tpm * 60
    bound = max(bounds, key=lambda name: bounds[name])
    return bounds[bound], bound


def announce_calls(context: BuildContext, chunks: Dataset) -> None:
    """Emit the estimated calls of an index of these chunks, unless built-in models make all of it."""
    config = context.config
    if not any(endpoint.is_remote for endpoint in config.llm.endpoints.values()):
        return
    sizes = context.datasets.read(chunks, ["n_tokens"])["n_tokens"]
    works = works_of_build(len(sizes), pc.sum(sizes).as_py() or 0, config, context.prompts)
    expected = {}
    for work in works:
        parts = [each for each in _shares(work, config, NO_SPEEDS) if config.llm.endpoints[each.endpoint].is_remote]
        if calls := sum(part.calls for part in parts):
            expected[work.stage] = calls
    if expected:
        context.runner.emit(CallsExpected(expected))
